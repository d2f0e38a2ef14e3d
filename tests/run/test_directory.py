"""Creating, opening, reading, refusing: what a run directory says about itself and about what is not one."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import store_writer

from gfcr.run import files, schema
from gfcr.run.directory import RunDirectory, RunDirectoryError, StepRecord
from gfcr.types import Group, Task

STEPS = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return store_writer.run_of(STEPS, tmp_path / "run")


# ---- creating and opening ------------------------------------------------------------------------------------------


def test_create_refuses_a_run_and_foreign_files(path: Path, tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"holds a run already\n.*gfcr resume"):
        RunDirectory.create(path, {})
    for name in ("thesis.tex", "recipe.json", "run.sqlite"):
        other = tmp_path / f"other-{name}"
        other.mkdir()
        (other / name).write_text("mine")
        with pytest.raises(RunDirectoryError, match=f"not empty: {name}"):
            RunDirectory.create(other, {})
        assert (other / name).read_text() == "mine"


def test_create_accepts_an_empty_directory_and_refuses_data_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    RunDirectory.create(tmp_path / "run", {}).close()
    with pytest.raises(RunDirectoryError, match="not JSON data"):
        RunDirectory.create(tmp_path / "b", {"x": object()})
    with pytest.raises(RunDirectoryError, match="not JSON data"):
        RunDirectory.create(tmp_path / "b", {"x": float("nan")})


def test_open_says_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="is no directory"):
        RunDirectory.open(tmp_path / "nowhere")
    with pytest.raises(RunDirectoryError, match="it is empty"):
        RunDirectory.read(tmp_path)
    (tmp_path / "run.sqlite").write_bytes(b"no database at all, but long enough to be looked at" * 20)
    with pytest.raises(RunDirectoryError, match="no database of a gfcr run"):
        RunDirectory.open(tmp_path)


def test_second_writer_is_refused_and_a_reader_is_not(path: Path) -> None:
    with RunDirectory.open(path) as run:
        with pytest.raises(RunDirectoryError, match="being written by this process"):
            RunDirectory.open(path)
        script = f"from gfcr.run.directory import RunDirectory; RunDirectory.open({str(path)!r})"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        other = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
        assert f"being written by process {os.getpid()} on" in other.stderr
        with RunDirectory.read(path) as reader:
            run.commit(StepRecord(STEPS, 9, 9))
            assert reader.last_step() == STEPS and len(reader.groups(0)) == 2
            with pytest.raises(RunDirectoryError, match="reading only"):
                reader.commit(StepRecord(99, 9, 9))
    RunDirectory.open(path).close()


def test_a_forked_child_neither_commits_nor_holds_the_lock(path: Path) -> None:
    run = RunDirectory.open(path)
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            run.commit(StepRecord(STEPS, 0, 0))
        except RunDirectoryError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert b"this is its child" in os.read(read, 400)
    run.close()
    RunDirectory.open(path).close()


def test_a_step_is_never_written_twice(path: Path) -> None:
    with RunDirectory.open(path) as run, pytest.raises(RunDirectoryError, match=r"step 5 cannot be committed.*last .* is 5"):
        run.commit(StepRecord(5, 5, 5))


def test_a_read_only_disk_can_be_read(path: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a tmpfs")
    try:
        shutil.copytree(path, disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with RunDirectory.read(disk / "run") as run:
            assert run.last_step() == STEPS - 1 and run.verify() == []
        with pytest.raises(RunDirectoryError, match="access refused while opening"):
            RunDirectory.open(disk / "run")
        with pytest.raises(RunDirectoryError, match="access refused while creating"):
            RunDirectory.create(disk / "other", {})
    finally:
        subprocess.run(["umount", disk], check=True)


def test_nothing_committed_yet(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", {"a": 1}, {"device": "cpu"}) as run:
        assert run.resume_point() is None and run.metrics() == [] and run.verify() == [] and run.last_step() is None
        assert run.recipe == {"a": 1} and run.environment == {"device": "cpu"}
        with pytest.raises(RunDirectoryError, match="no step 0"):
            run.groups(0)


# ---- resuming ------------------------------------------------------------------------------------------------------


def test_resume_point_names_checkpoint_and_batches(path: Path) -> None:
    with RunDirectory.open(path) as run:
        point = run.resume_point()
        assert point is not None and (point.step, point.checkpoint_step, point.batches.steps) == (5, 4, (5,))
        assert [progress for _, progress in point.batches] == [5 / STEPS]
        older = run.resume_point(before=4)
        assert older is not None and (older.checkpoint_step, older.batches.steps) == (2, (4, 5))  # step 3 had no batch
        assert sorted(p.name for p in (path / "checkpoints").iterdir()) == ["2", "4"]


def test_recipe_and_environment_must_be_the_runs_own(path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="another recipe: name: 'writer' in the run, 'x' given"):
        RunDirectory.open(path, {**store_writer.RECIPE, "name": "x"})
    with RunDirectory.open(path) as run:
        other = {**store_writer.ENVIRONMENT, "threads": 2}
        with pytest.raises(RunDirectoryError, match="threads: 1 at creation, 2 now"):
            run.check_environment(other)
        assert run.check_environment(other, allow=["threads"]) == {"threads": (1, 2)}
        assert run.check_environment(store_writer.ENVIRONMENT) == {}
        assert json.loads((path / "card.json").read_text())["resumed_in"] == [{"after_step": 5, "environment": other}]


def test_states_are_bounded_and_refuse_what_has_no_portable_form(path: Path) -> None:
    with RunDirectory.open(path) as run:
        assert run.db.execute("SELECT step FROM states").fetchall() == [(4,), (5,)]
        with pytest.raises(RunDirectoryError, match=r"state\.slots\.a\[1\] is a builtins.object"):
            run.commit(StepRecord(6, 6, 6, state={"slots": {"a": [1, object()]}}))
        with pytest.raises(RunDirectoryError, match=r"state\.x is an array of dtype object"):
            run.commit(StepRecord(6, 6, 6, state={"x": np.array([None])}))
        with pytest.raises(RunDirectoryError, match=r"metrics.loss is a"):
            run.commit(StepRecord(6, 6, 6, metrics={"loss": object()}))
        with pytest.raises(RunDirectoryError, match="round is 7, the record says 6"):
            run.commit(StepRecord(6, 6, 6, metrics={"round": 7}))
        with pytest.raises(RunDirectoryError, match="left no file"):
            run.commit(StepRecord(6, 6, 6, checkpoint=lambda folder: None))
        with pytest.raises(RunDirectoryError, match="without a portable form"):
            run.commit(StepRecord(6, 6, 6, [Group("\ud800", Task("t", "x"), 0, 0)]))
        with pytest.raises(RunDirectoryError, match="without a portable form"):
            run.commit(StepRecord(6, 6, 6, [Group(5, Task("t", "x"), 0, 0)]))
        with pytest.raises(RunDirectoryError, match="without a portable form"):
            run.commit(StepRecord(6, 6, 6, [Group("g", Task("t", "x"), 2**63, 0)]))
        assert run.verify() == []


# ---- versions, disks -----------------------------------------------------------------------------------------------


def test_an_old_run_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    with monkeypatch.context() as old:  # a directory as the first format version wrote it
        old.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        old.setattr("gfcr.run.derived._accepted", lambda run: [])
        old.setattr(schema.migrate, "__defaults__", (schema.MIGRATIONS[:1],))
        store_writer.go(path, 3)
    db = sqlite3.connect(path / "run.sqlite")
    assert (
        schema.version(db) == schema.RETIRED + 1
        and not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'environments'").fetchone()
    )
    db.close()
    with RunDirectory.read(path) as run:  # a reader changes nothing, and reads it
        assert schema.version(run.db) == schema.RETIRED + 1 and len(run.groups(1)) == 2 and run.verify() == []
    with RunDirectory.open(path) as run:
        assert schema.version(run.db) == schema.RETIRED + len(schema.MIGRATIONS) and run.verify() == []
    store_writer.go(path, 5)
    assert store_writer.differences(path) == []


def test_a_failed_migration_changes_nothing() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(db, "x", ("CREATE TABLE a (b)", "CREATE TABLE c (d); INSERT INTO nowhere VALUES (1)"))
    assert schema.version(db) == schema.RETIRED + 1 and [n for (n,) in db.execute("SELECT name FROM sqlite_master")] == ["a"]


def test_a_run_from_the_future_is_refused(path: Path) -> None:
    store_writer.update(path, "PRAGMA user_version = 99")
    for way in (RunDirectory.open, RunDirectory.read):
        with pytest.raises(RunDirectoryError, match=r"format version 99, this gfcr reads up to 5\n.*pip install -U gfcr"):
            way(path)


def test_a_run_of_before_the_first_release_is_refused(path: Path) -> None:
    store_writer.update(path, "PRAGMA user_version = 3")
    for way in (RunDirectory.open, RunDirectory.read):
        with pytest.raises(RunDirectoryError, match=r"format version 3, of before the first release; .* reads 4 to 5\n"):
            way(path)


def test_members_can_be_queried(path: Path) -> None:
    """The view repeats what the groups say."""
    with RunDirectory.read(path) as run:
        wanted = [
            (m.rollout.id, str(m.role), m.signals.reward, m.signals.correct, None if m.credit is None else m.credit.advantage)
            for group in run.groups(2)
            for m in group.members.values()
        ]
        query = "SELECT r.id, m.role, m.reward, m.correct, m.advantage FROM members m JOIN rollouts r ON r.step = m.rollout_step AND "
        assert (
            run.db.execute(query + "r.key = m.rollout WHERE m.step = 2 ORDER BY m.grp, m.key").fetchall() == wanted
            and len(wanted) > 3
        )


def test_network_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nhost:/x {tmp_path} nfs4 rw 0 0\ntmpfs {tmp_path}/local tmpfs rw 0 0\n")
    assert files.filesystem(tmp_path / "run", str(mounts)) == "nfs4"
    assert files.filesystem(tmp_path / "local" / "run", str(mounts)) == "tmpfs"
    assert files.filesystem(Path("/"), str(mounts)) == "ext4" and files.filesystem(tmp_path, "/nowhere") == ""
    assert files.is_network("fuse.sshfs") and not files.is_network("overlay")
    monkeypatch.setattr(files, "filesystem", lambda path: "nfs4")
    with pytest.raises(RunDirectoryError, match=r"network file system \(nfs4\)"):
        RunDirectory.create(tmp_path / "run", {})
    with pytest.warns(RuntimeWarning, match="nfs4"):
        RunDirectory.create(tmp_path / "run", {}, network="warn").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with RunDirectory.open(tmp_path / "run", network="allow") as run:
            assert run.db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
            run.commit(StepRecord(0, 0, 0))


# ---- durability and bounds -----------------------------------------------------------------------------------------


def test_files_are_durable_before_the_transaction_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, step, weights, kept = store_writer.start(tmp_path / "run")
    log: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def logged_fsync(fd: int) -> None:
        log.append("sync " + os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), run.path))
        fsync(fd)

    def logged_rename(self: Path, target: Path) -> Path:
        log.append(f"rename {os.path.relpath(target, run.path)}")
        return rename(self, target)

    with run:
        assert run.db.execute("PRAGMA synchronous").fetchone() == (2,) and run.db.execute("PRAGMA journal_mode").fetchone() == (
            "wal",
        )
        monkeypatch.setattr(os, "fsync", logged_fsync)
        monkeypatch.setattr(Path, "rename", logged_rename)
        run.db.set_trace_callback(lambda text: log.append(text) if text in ("COMMIT", "BEGIN IMMEDIATE") else None)
        run.commit(store_writer.record(step, 9, [], None, weights, kept))
        monkeypatch.undo()
    assert log == [
        "sync segments/.writing-0.bin",
        "rename segments/0.bin",
        "sync segments",
        "sync checkpoints/.writing-0/model.safetensors",
        "sync checkpoints/.writing-0",
        "rename checkpoints/0",
        "sync checkpoints",
        "BEGIN IMMEDIATE",
        "COMMIT",
        "rename card.json",
    ]


def test_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    run, _, weights, kept = store_writer.start(tmp_path / "run")
    sizes = []
    with run:
        tracemalloc.start()
        for step in range(60):
            found = store_writer.groups(step, weights, None)
            run.commit(store_writer.record(step, 60, found, store_writer.batch(step, found), weights, kept))
            if step in (20, 59):
                del found
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 40_000, sizes


def test_commits_from_several_threads_are_one_after_the_other(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", {}) as run:
        done = []

        def work() -> None:
            for _ in range(5):
                with turn:
                    step = len(done)
                    done.append(step)
                    run.commit(StepRecord(step, step, step))

        turn = threading.Lock()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run.steps() == list(range(15)) and run.verify() == []
