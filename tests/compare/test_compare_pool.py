"""Children are started, skipped, resumed, reported and stopped; here they are small scripts instead of runs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

import report_cases
from gfcr.compare import pool
from gfcr.compare.plan import Cell, Variation
from gfcr.compare.pool import Child, State, run_all


def cell(tmp_path: Path, seed: int) -> Cell:
    directory = tmp_path / f"seed-{seed}"
    return Cell("case", Variation("base", report_cases.recipe(), tmp_path / "recipe.json"), seed, directory)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """Let every child be this Python text; it gets the run directory, whether it goes on, and a file to count starts in."""

    def use(text: str) -> None:
        monkeypatch.setattr(
            pool, "command_of", lambda one, going_on: [sys.executable, "-c", text, str(one.directory), str(going_on)]
        )

    return use


def quiet(children: object) -> None:
    pass


def test_finished_runs_are_not_started(tmp_path: Path, script) -> None:
    report_cases.write_run(tmp_path / "seed-0", report_cases.finished_rows())
    script("raise SystemExit('started')")
    (child,) = run_all([cell(tmp_path, 0)], 1, quiet)
    assert child.state is State.DONE and child.skipped and len(child.rows) == 3


def test_a_failed_child_is_reported_and_stops_no_other(tmp_path: Path, script) -> None:
    script("import sys\nif sys.argv[1].endswith('0'): sys.exit('error: no such pool\\n  remedy: choose one')")
    bad, good = run_all([cell(tmp_path, 0), cell(tmp_path, 1)], 1, quiet)
    assert (bad.state, good.state) == (State.FAILED, State.DONE)
    assert bad.note == "error: no such pool\n  remedy: choose one"


def test_a_killed_child_is_resumed(tmp_path: Path, script) -> None:
    script(
        "import os, sys, pathlib\nn = pathlib.Path(sys.argv[1] + '.n')\n"
        "n.write_text(n.read_text() + 'x' if n.exists() else 'x')\n"
        "if len(n.read_text()) < 3: os.kill(os.getpid(), 9)"
    )
    (child,) = run_all([cell(tmp_path, 0)], 1, quiet)
    assert child.state is State.DONE and child.resumes == 2


def test_a_child_that_is_always_killed_fails(tmp_path: Path, script) -> None:
    script("import os; os.kill(os.getpid(), 9)")
    (child,) = run_all([cell(tmp_path, 0)], 1, quiet)
    assert child.state is State.FAILED and child.note.startswith(f"killed by SIGKILL {pool.RESUMES + 1} times")


def test_an_interrupt_stops_the_children(tmp_path: Path, script) -> None:
    script("import os, sys, time; open(sys.argv[1] + '.pid', 'w').write(str(os.getpid())); time.sleep(60)")
    seen: list[Child] = []

    def interrupt(children) -> None:
        seen[:] = children
        if all(Path(f"{c.cell.directory}.pid").exists() and Path(f"{c.cell.directory}.pid").read_text() for c in children):
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_all([cell(tmp_path, 0), cell(tmp_path, 1)], 2, interrupt)
    assert time.monotonic() - began < 20
    assert [c.state for c in seen] == [State.STOPPED] * 2
    for child in seen:
        with pytest.raises(ProcessLookupError):
            os.kill(int(Path(f"{child.cell.directory}.pid").read_text()), 0)


def test_no_more_than_jobs_at_a_time(tmp_path: Path, script) -> None:
    script("import time; time.sleep(.1)")
    most = 0

    def watch(children) -> None:
        nonlocal most
        most = max(most, sum(c.state is State.RUNNING for c in children))

    run_all([cell(tmp_path, i) for i in range(4)], 2, watch)
    assert most == 2


def test_a_half_written_row_waits(tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    file = tmp_path / "seed-0" / "metrics.jsonl"
    child = Child(cell(tmp_path, 0))
    file.write_text('{"step":0}\n{"st')
    child.read_rows()
    assert child.rows == [{"step": 0}]
    file.write_text('{"step":0}\n{"step":1}\n')
    child.read_rows()
    assert child.rows == [{"step": 0}, {"step": 1}]


def test_a_damaged_run_fails_alone(tmp_path: Path, script) -> None:
    report_cases.write_run(tmp_path / "seed-0", report_cases.finished_rows())
    with (tmp_path / "seed-0" / "run.sqlite").open("r+b") as file:
        file.seek(96)
        file.write(b"\xff" * 4000)
    script("raise SystemExit('cannot be read')")
    (child,) = run_all([cell(tmp_path, 0)], 1, quiet)
    assert child.state is State.FAILED and child.note
