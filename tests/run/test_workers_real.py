"""The real loop with a second worker process: bit-equal across a crash, and an infrastructure failure costs tokens, not truth."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
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

TWO = ("engine.workers=2", "budget.steps=3", "run.checkpoint_every=2", "control.retries=10")


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, Any]]:
    """(overrides, content) of the run that nothing disturbs."""
    place = tmp_path_factory.mktemp("uncut")
    overrides = [*resume.small(place), *TWO]
    assert resume.finish(place / "run", overrides) == 0
    return overrides, resume.content(place / "run")


def test_a_crash_in_the_middle_leaves_no_trace(uncut: tuple[list[str], dict[str, Any]], tmp_path: Path) -> None:
    overrides, expected = uncut
    assert resume.crash_and_resume("rows.before_commit:exit:3", overrides, expected, tmp_path / "cut") == ""


def workers_of(pid: int) -> list[int]:
    """Worker processes of a run."""
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if b"gfcr.engine.workers.serve" in (place / "cmdline").read_bytes():
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                found += [int(place.name)] * (parent == pid)
    return found


def test_a_worker_that_is_killed_again_and_again_ends_the_run_with_the_reason(
    uncut: tuple[list[str], dict[str, Any]], tmp_path: Path
) -> None:
    """From outside, with kill -9, from the first committed step on: the run neither hangs nor goes on with half its engine."""
    overrides, expected = uncut
    path = tmp_path / "run"
    sets = [part for one in overrides for part in ("--set", one)]
    command = [sys.executable, "-m", "gfcr", "run", "four_modules", "--out", str(path), "--seed", str(resume.SEED), *sets]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    killed: set[int] = set()
    end = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < end:
        if resume.committed(path) >= 1:
            for pid in workers_of(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
        time.sleep(0.05)
    over = process.poll()
    process.kill()
    said = process.communicate()[1]
    assert over == 1 and len(killed) >= 4
    assert "worker 1 was killed by signal 9" in said and "remedy: look at the memory" in said and "Traceback" not in said
    assert 1 <= resume.committed(path) < 3
    assert resume.finish(path, overrides) == 0
    assert resume.differences(path, expected) == []


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

    recipe = load("four_modules", ["engine.workers=2", "engine.name=scripted"])
    (found,) = [f for f in check_recipe(recipe) if f.rule == "workers"]
    assert "only the embedded engine on the CPU has workers" in found.why
    assert not [f for f in check_recipe(load("four_modules", ["engine.workers=2"])) if f.rule == "workers"]
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
