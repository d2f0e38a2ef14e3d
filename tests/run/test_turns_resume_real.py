"""Runs of several turns, cut in the middle of a round by kill -9 and at commits by failpoints: resumed, they are the runs that were never
cut, with faults of their environment and with calls of a tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench import resume

from gfcr.run.directory import RunDirectory

RECIPE = "registers_turns"
SHAKY = "name = 'turn_cases:Shaky', every = 40"
SUMS = "name = 'turn_cases:Sums', every = 25"
CASES = {"registers with faults": SHAKY, "a tool with faults": SUMS}


class Runs:
    """An uncut run and what cuts the next."""

    def __init__(self, place: Path, environment: str) -> None:
        self.place, self.file = place, place / "kill"
        self.overrides = [
            *resume.small(place),
            "generate.topology.k=6",
            "generate.topology.turns=6",
            f"generate.environment={{{environment}, kill = '{self.file}'}}",
            "budget.steps=4",
            "run.checkpoint_every=2",
            "evaluate.every_tokens=600",
        ]
        assert resume.finish(place / "uncut", self.overrides, recipe=RECIPE) == 0
        self.uncut = resume.content(place / "uncut")
        assert self.uncut["verify"] == []


@pytest.fixture(scope="module", params=CASES, ids=str)
def runs(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("turns"), CASES[request.param])


def test_the_run_is_worth_cutting(runs: Runs) -> None:
    rows = [json.loads(line) for line in (runs.place / "uncut" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["version"] >= 2 and sum(row["heldout_accuracy"] is not None for row in rows) >= 2
    assert rows[-1]["tokens_discarded"] > 0
    with RunDirectory.read(runs.place / "uncut") as run:
        groups = [group for step in run.steps() for group in run.groups(step)]
        faults = [d.reason.partition(":")[0] for d in run.decisions() if d.action == "fault"]
    turns = [int(m.rollout.meta["turns"]) for g in groups for m in g.members.values()]
    assert faults and max(turns) > 2 and any(m.rollout.meta.get("restarts") for g in groups for m in g.members.values())


@pytest.mark.parametrize("spec", ["rows.after_commit:exit:2", "checkpoint.after_write:torn:2"])
def test_cut_at_a_commit(spec: str, runs: Runs, tmp_path: Path) -> None:
    assert resume.crash_and_resume(spec, runs.overrides, runs.uncut, tmp_path / "run", RECIPE) == ""


def test_killed_in_the_middle_of_a_round(runs: Runs, tmp_path: Path) -> None:
    runs.file.write_text("130")  # the turn at which the environment kills the process
    path = tmp_path / "run"
    assert resume.finish(path, runs.overrides, recipe=RECIPE) == -9 and not runs.file.exists()
    assert 0 <= resume.committed(path) < len(runs.uncut["steps"]) - 1
    assert resume.finish(path, runs.overrides, recipe=RECIPE) == 0
    assert resume.differences(path, runs.uncut) == []
