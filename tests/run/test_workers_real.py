"""The real loop with a second worker process: bit-equal across a crash, and an infrastructure failure costs tokens, not truth."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import real_runs
from bench import resume

from gfcr.engine.workers import WorkerEngine
from gfcr.recipe import load
from gfcr.run.directory import RunDirectory, RunDirectoryError
from gfcr.run.session import Session
from gfcr.types import StopReason

TWO = ("engine.workers=2", "budget.steps=3", "run.checkpoint_every=2")


def test_a_crash_in_the_middle_leaves_no_trace(tmp_path: Path) -> None:
    overrides = [*resume.small(tmp_path), *TWO]
    assert resume.finish(tmp_path / "uncut", overrides) == 0
    uncut = resume.content(tmp_path / "uncut")
    assert resume.crash_and_resume("rows.before_commit:exit:3", overrides, uncut, tmp_path / "cut") == ""


class Killing:
    """Kills the worker in the round's first wave, with its requests half grown."""

    def __init__(self, inner: WorkerEngine) -> None:
        self.inner, self.armed, self.killed = inner, False, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def step(self, tokens: int | None = None) -> Any:
        chunks = self.inner.step(2 if self.armed else tokens)
        if self.armed and self.inner._remotes[0].live:
            pid = self.inner._remotes[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            self.armed, self.killed = False, self.killed + 1
        return chunks


def test_a_killed_worker_is_no_wrong_answer(tmp_path: Path) -> None:
    session = real_runs.create(tmp_path / "run", "engine.workers=2", "budget.steps=1", "evaluate.every_tokens=none")
    engine = Killing(session.parts.engine)
    real_runs.through(session, engine)
    rows: list[dict[str, Any]] = []

    def progress(row: dict[str, Any]) -> None:
        engine.armed = row["step"] == 0  # evaluation is over, the round begins
        rows.append(row)

    session.progress = progress
    before = engine.usage()
    assert session.run() == "steps"
    assert engine.killed == 1 and engine.failures == ["worker 1 was killed by signal 9"]
    with RunDirectory.read(tmp_path / "run") as run:
        retried = [d for d in run.decisions(step=1) if d.action == "retry"]
        assert {d.reason for d in retried} == {"worker_lost: worker 1 was killed by signal 9"}
        members = [m for g in run.groups(1) for m in g.members.values()]
        assert len(members) == 9 and retried
        assert not any(m.rollout.stop is StopReason.FAILED for m in members)  # each was asked again and answered
        assert all(m.signals.verdict is not None for m in members)
        total = session.ledger.total
        assert session.ledger.discarded["worker_lost"] == 2 * len(retried)
        used = engine.usage()
        assert total.generated + total.evaluated == used.decoded - before.decoded
        assert total.scored == used.scored - before.scored  # the proofs that all processes have the weights are in it
    assert "worker_lost" in rows[-1]["discarded_by_reason"]


def test_the_number_of_workers_belongs_to_the_run(tmp_path: Path) -> None:
    """A directory made with one worker is not silently continued with two, and the scripted engine has none."""
    from gfcr.build import check_recipe

    recipe = load("quickstart", ["engine.workers=2", "engine.name=scripted"])
    (found,) = [f for f in check_recipe(recipe) if f.rule == "workers"]
    assert "only the embedded engine on the CPU has workers" in found.why
    assert not [f for f in check_recipe(load("quickstart", ["engine.workers=2"])) if f.rule == "workers"]
    session = real_runs.create(tmp_path / "run", "budget.steps=1")
    session.close()
    directory = RunDirectory.open(tmp_path / "run")
    try:
        facts = {**real_environment(session), "workers": 2}
        with pytest.raises(RunDirectoryError, match="workers: 1 at creation, 2 now"):
            directory.check_environment(facts, allow=False)
    finally:
        directory.close()


def real_environment(session: Session) -> dict[str, Any]:
    from gfcr.run.session import environment

    return environment(session.parts)
