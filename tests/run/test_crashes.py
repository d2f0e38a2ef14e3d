"""A run cut anywhere and resumed is the run that was never cut: every row, payload, checkpoint and the chain's head."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import store_writer

from gfcr.run import failpoints, files
from gfcr.run.directory import RunDirectory, RunDirectoryError, StepRecord

STEPS = 8
FULL = 3
"""Exit code of a child whose commit met a full disk."""


def content(path: Path) -> dict[str, Any]:
    """Everything in a run directory but the lock, in comparable form."""
    with RunDirectory.read(path) as run:
        assert run.verify() == []
        tables = [name for (name,) in run.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        out: dict[str, Any] = {name: sorted(map(repr, run.db.execute(f"SELECT * FROM {name}").fetchall())) for name in tables}
        out["head"] = run.head
    skipped = ("lock", "run.sqlite", "run.sqlite-wal", "run.sqlite-shm")
    out["files"] = [entry for entry in files.manifest(path) if entry[0] not in skipped]
    return out


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("uncut") / "run"
    store_writer.go(path, STEPS)
    return content(path)


@pytest.fixture
def memory_path():
    """A directory in memory where there is one: a killed process loses nothing there either, and fsync takes no time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        yield Path(folder)


def child(work: Callable[[], None]) -> int:
    """Pid of a forked child that runs `work`."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except RunDirectoryError as error:
        code = FULL if "no space left" in str(error) else 1
    finally:
        os._exit(code)


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


CASES = [
    f"{name}:{mode}:{nth}"
    for name, modes in failpoints.names().items()
    for mode in modes
    for nth in (1, 2)
    if nth == 1 or not name.startswith(("recipe", "create"))
]


@pytest.mark.parametrize("spec", CASES)
def test_every_failpoint_in_every_mode(spec: str, memory_path: Path, uncut: dict[str, Any]) -> None:
    path = memory_path / "run"

    def work() -> None:
        failpoints.arm(spec)
        store_writer.go(path, STEPS)

    assert exit_code(child(work)) == (FULL if ":enospc" in spec else 137)
    store_writer.go(path, STEPS)
    assert content(path) == uncut


def test_thirty_kills(tmp_path: Path, uncut: dict[str, Any]) -> None:
    began = time.perf_counter()
    store_writer.go(tmp_path / "timed", STEPS)
    whole = time.perf_counter() - began
    draw = random.Random(1)
    path, kills, runs = tmp_path / "run0", 0, 0
    while kills < 30:
        pid = child(lambda path=path: store_writer.go(path, STEPS))
        time.sleep(draw.random() * whole * 0.5)
        os.kill(pid, signal.SIGKILL)
        if (code := exit_code(pid)) == -signal.SIGKILL:
            kills += 1
        else:  # it had finished: compare, and go on with another
            assert code == 0
            assert content(path) == uncut
            runs += 1
            path = tmp_path / f"run{runs}"
    store_writer.go(path, STEPS)
    assert content(path) == uncut


def test_environment_variable_arms_a_failpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    script = [sys.executable, store_writer.__file__, str(path), "3"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GFCR_FAILPOINT": "rows.after_commit:exit:2"}
    assert subprocess.run(script, env=env, check=False).returncode == 137
    with RunDirectory.read(path) as run:
        assert run.steps() == [0, 1]


@pytest.mark.parametrize("spec", ["payload.after_write:enospc", "checkpoint.before_write:enospc", "rows.before_commit:enospc"])
def test_full_disk_leaves_nothing_and_the_same_record_may_be_committed_again(spec: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    store_writer.go(path, 4)
    run, step, weights, kept = store_writer.start(path)
    with run:
        found = store_writer.groups(step, weights, None)
        record = store_writer.record(step, 9, found, store_writer.batch(step, found), weights, kept)
        failpoints.arm(spec)
        with pytest.raises(RunDirectoryError, match=r"no space left while committing step 4.*nothing of this step") as caught:
            run.commit(record)
        failpoints.arm(None)
        assert not caught.value.committed and run.last_step() == 3 and run.verify() == []
        run.commit(record)
        assert run.last_step() == 4 and run.verify() == []


def test_full_disk_after_the_commit_point_says_that_the_step_is_committed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    store_writer.go(path, 2)
    run, step, weights, kept = store_writer.start(path)
    with run:
        failpoints.arm("metrics.before_write:enospc")
        with pytest.raises(RunDirectoryError, match="the step is committed") as caught:
            run.commit(store_writer.record(step, 9, [], None, weights, kept))
        failpoints.arm(None)
        assert caught.value.committed and run.last_step() == 2
        run.commit(store_writer.record(3, 9, [], None, weights, kept))  # mends the derived files on the way
        assert run.verify() == []


@pytest.fixture
def tiny_disk(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_disk_that_is_really_full(tiny_disk: Path, tmp_path: Path) -> None:
    path = tiny_disk / "run"
    with pytest.raises(RunDirectoryError, match="no space left"):
        store_writer.go(path, 2000)
    with RunDirectory.read(path) as run:
        committed = run.last_step()
        assert committed is not None and committed > 3
        assert [d for d in run.verify() if not str(d).startswith(("metrics.jsonl", "card.json"))] == []
    subprocess.run(["mount", "-o", "remount,size=20m", tiny_disk], check=True)
    store_writer.go(path, committed + 4)
    with RunDirectory.read(path) as run:
        assert run.verify() == [] and run.last_step() == committed + 3


def test_interrupt_just_after_the_commit_keeps_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gfcr.run import commit

    path = tmp_path / "run"
    run, step, weights, kept = store_writer.start(path)
    whole = commit._write_rows

    def interrupted(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(commit, "_write_rows", interrupted)
    with run, pytest.raises(KeyboardInterrupt):
        run.commit(store_writer.record(step, 9, [], None, weights, kept))
    monkeypatch.undo()
    with RunDirectory.open(path) as run:
        assert run.last_step() == 0 and run.verify() == []


def test_a_journal_left_half_way_is_rolled_back_for_readers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Creation switches to WAL through a rollback journal, and on network disks every commit has one."""
    path, copy = tmp_path / "run", tmp_path / "copy"
    monkeypatch.setattr(files, "filesystem", lambda where: "nfs4")
    with RunDirectory.create(path, {}, network="allow") as run:
        run.commit(StepRecord(0, 0, 0))
        run.db.execute("PRAGMA cache_size = 2")
        run.db.execute("BEGIN IMMEDIATE")
        run.db.executemany("INSERT INTO meta VALUES (?, ?)", ((str(i), "x" * 500) for i in range(200)))
        shutil.copytree(path, copy)  # what a kill here would leave
        run.db.execute("ROLLBACK")
    assert (copy / "run.sqlite-journal").stat().st_size > 0
    with RunDirectory.read(copy) as run:
        assert run.verify() == [] and run.db.execute("SELECT count(*) FROM meta").fetchone()[0] < 10


def test_a_locked_database_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run, step, weights, kept = store_writer.start(path)
    with run:
        run.db.execute("PRAGMA busy_timeout = 50")
        other = sqlite3.connect(path / "run.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RunDirectoryError, match=r"locked.*\n.*close it"):
            run.commit(store_writer.record(step, 9, [], None, weights, kept))
        other.close()
        assert run.verify() == []
        run.commit(store_writer.record(step, 9, [], None, weights, kept))
