"""Partial rollouts in the real loop: cut by a crash between park and resume, a run is the run that was never cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench import resume

from gfcr.run.directory import RunDirectory
from gfcr.types import GroupState, StopReason

PARTIAL = ["generate.partial={tokens=16, most_resumes=6, max_age=6}", "generate.topology.k=6", "run.checkpoint_every=2"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("partial")


@pytest.fixture(scope="module")
def uncut(place: Path) -> dict[str, Any]:
    assert resume.finish(place / "uncut", [*resume.small(place), *PARTIAL]) == 0
    return resume.content(place / "uncut")


def test_the_run_parks_resumes_and_books_every_token_once(place: Path, uncut: dict[str, Any]) -> None:
    assert uncut["verify"] == []
    rows = [json.loads(line) for line in (place / "uncut" / "metrics.jsonl").read_text().splitlines()]
    assert sum(row.get("rollouts_resumed", 0) for row in rows) > 5 and sum(row.get("groups_parked", 0) for row in rows) > 3
    assert any((row.get("share_off_policy") or 0) > 0 for row in rows)
    versions: dict[str, list[int]] = {}
    with RunDirectory.read(place / "uncut") as run:
        parked = done = 0
        state = run.state(rows[-1]["step"])["slots"]
        for step in run.steps():
            for group in run.groups(step):
                late = group.state is GroupState.PARKED
                for name, member in group.members.items():
                    old = versions.get(name, [])
                    now = [int(s.version or 0) for s in member.rollout.actions() for _ in range(len(s))]
                    assert now[: len(old)] == old  # nothing that was there is lost, changed or sampled again
                    versions[name] = now
                    parked += late and member.rollout.stop is StopReason.PARKED
                done += group.state is GroupState.CLOSED and group.round < step - 1
        assert parked > 5 and done > 1
        from gfcr.run.task_history import read_history

        told = sum(a.tokens for t in read_history(run).tasks.values() for a in t.attempts())
    waits = sum(w.worst(1) > 0 for w in state.get("parking", {}).get("waiting", ()))
    assert (rows[-1]["tokens_parked"] > 0) == bool(waits)
    generated = sum(map(len, versions.values()))
    assert rows[-1]["tokens_generated"] == generated == told
    assert any(len(set(v)) > 1 for v in versions.values())


@pytest.mark.parametrize("spec", ["rows.after_commit:exit:3", "checkpoint.after_write:torn:2"])
def test_cut_between_park_and_resume(spec: str, place: Path, uncut: dict[str, Any], tmp_path: Path) -> None:
    assert resume.crash_and_resume(spec, [*resume.small(place), *PARTIAL], uncut, tmp_path / "run") == ""
