"""The durable run directory.

    with RunDirectory.create(path, recipe, environment) as run:          # or RunDirectory.open(path, recipe)
        point = run.resume_point()                                       # None, or checkpoint, batches to repeat, state
        run.commit(StepRecord(step=0, round=0, version=1, groups=..., batch=..., state=..., checkpoint=write))
    with RunDirectory.read(path) as run:                                 # no lock, also while a writer works
        run.metrics(), run.groups(0), run.rollout(rollout_id), run.decisions(task=...), run.verify()

On disk: `run.sqlite` (rows), `segments/STEP.bin` (a step's arrays), `checkpoints/STEP/`
(safetensors), `recipe.json` (frozen);
derived from these, and repaired at open: `metrics.jsonl`, `card.json` (holds the head of the hash chain); `lock`.

Invariants: a commit writes its files under temporary names, syncs, renames, syncs the directory, and then one SQLite
transaction names their lengths and hashes: that transaction is the only commit point. Before it a crash leaves the run at
the step before, after it at this step; either way open() finds one state, removes what belongs to none, and refuses data
that differ from their digests. One writer. Nothing of the run's history is kept in memory.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from gfcr import __version__
from gfcr.run import commit, derived, files, schema
from gfcr.run.chain import genesis
from gfcr.run.exact_json import dumps_exact
from gfcr.run.failpoints import hit
from gfcr.run.failures import RunDirectoryError, Tampered, storage_errors
from gfcr.run.payload import digest
from gfcr.run.reading import DATABASE, Reader, connect
from gfcr.run.record import Batches, ResumePoint, StepRecord
from gfcr.run.verify import Difference, check_chain, checkpoint_differences, verify
from gfcr.types import Batch, Rollout

__all__ = ["Batches", "Difference", "ResumePoint", "RunDirectory", "RunDirectoryError", "StepRecord", "Tampered"]

_DATABASE_FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal")
_FOLDERS = ("segments", "checkpoints")


class RunDirectory(Reader):
    """One run on disk; made by `create`, `open` or `read`."""

    def __init__(self, path: Path, db: sqlite3.Connection, lock: files.WriterLock | None) -> None:
        super().__init__(path, db)
        self._lock = lock
        self._pid = os.getpid()
        self._busy = threading.Lock()
        self.metrics_bytes = -1
        """Length metrics.jsonl has; -1 while that is not certain, so that it is repaired."""
        self.card_facts: dict[str, Any] = {}
        """The card as last written."""
        self.held: dict[int, tuple[Rollout, tuple[int, int]]] = {}
        """Rollouts of the last committed state, by identity, with where they are stored."""

    # ---- creating and opening ----------------------------------------------------------------------------------

    @classmethod
    def exists(cls, path: str | Path) -> bool:
        """Whether a run was created here (a creation that was cut short does not count)."""
        path = Path(path)
        if not (path / DATABASE).is_file():
            return False
        try:
            db = connect(path, write=False)
        except RunDirectoryError as error:
            if isinstance(error.__cause__, sqlite3.OperationalError):  # it cannot be looked at: that is not "no run"
                raise
            return False
        try:
            return bool(db.execute("SELECT 1 FROM meta WHERE name = 'genesis'").fetchone())
        except sqlite3.DatabaseError:
            return False
        finally:
            db.close()

    @classmethod
    def create(
        cls, path: str | Path, recipe: Mapping[str, Any], environment: Mapping[str, Any] | None = None, network: str = "refuse"
    ) -> RunDirectory:
        """A new run in an absent or empty directory, open for writing.

        `recipe`: the frozen recipe as JSON data. `environment`: the facts deterministic mode needs equal at resume (device,
        CPU type, dtype, torch build, thread and worker counts). `network`: `refuse`, `warn` or `allow` a network file system.
        Raises RunDirectoryError when the directory holds a run or foreign files, or cannot be written.
        """
        path = Path(path)
        try:
            recipe_text = json.dumps(recipe, indent=2, allow_nan=False) + "\n"
            facts = dumps_exact(dict(environment or {}), "environment")
        except (TypeError, ValueError) as error:
            raise RunDirectoryError(
                f"recipe or environment is not JSON data: {error}", "pass the frozen recipe, made of plain values"
            ) from None
        with storage_errors("creating the run directory", path, creating=True):
            path.mkdir(parents=True, exist_ok=True)
        _check_empty(path, cls.exists(path))
        local = _check_disk(path, network)
        with storage_errors("creating the run directory", path, creating=True):
            lock = files.WriterLock(path / "lock")
        db = None
        try:
            _check_empty(path, cls.exists(path))  # again: another process may have been creating
            with storage_errors("creating the run directory", path, creating=True):
                for leftover in _DATABASE_FILES:
                    (path / leftover).unlink(missing_ok=True)  # of a creation that was cut short
                for folder in _FOLDERS:
                    (path / folder).mkdir(exist_ok=True)
                files.write_durable(path / "recipe.json", lambda p: p.write_text(recipe_text, encoding="utf-8"), "recipe")
                db = _writer_connection(path, local)
                schema.migrate(db, str(path))
                recipe_hash = digest(recipe_text.encode())
                values = {
                    "recipe_hash": recipe_hash,
                    "environment": facts,
                    "gfcr": __version__,
                    "genesis": genesis(recipe_hash, facts),
                }
                db.execute("BEGIN IMMEDIATE")
                db.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
                hit("create.before_commit")
                db.execute("COMMIT")
                hit("create.after_commit")
                out = cls(path, db, lock)
                derived.repair(out)
            return out
        except BaseException:
            if db is not None:
                db.close()
            lock.release()
            raise

    @classmethod
    def open(cls, path: str | Path, recipe: Mapping[str, Any] | None = None, network: str = "refuse") -> RunDirectory:
        """The run in `path`, for writing: migrated, verified as far as opening reads it, orphans removed, derived files mended.

        `recipe`: when given, it must equal the run's own. Raises RunDirectoryError when there is no run, another writer has
        it, or its format is newer; Tampered when recipe, hash chain, card or file sizes differ from what was committed.
        """
        path = Path(path)
        _check_run(path, cls.exists(path))
        local = _check_disk(path, network)
        with storage_errors("opening the run directory", path):
            lock = files.WriterLock(path / "lock")
        db = None
        try:
            with storage_errors("opening the run directory", path):
                db = _writer_connection(path, local)
                schema.migrate(db, str(path / DATABASE))
                out = cls(path, db, lock)
                check_chain(out)
                if recipe is not None:
                    out._same_recipe(recipe)
                derived.remove_orphans(out)
                derived.repair(out)
                commit.collect(out)
            return out
        except BaseException:
            if db is not None:
                db.close()
            lock.release()
            raise

    @classmethod
    def read(cls, path: str | Path) -> RunDirectory:
        """The run in `path`, for reading only: no lock, nothing changed, also while a writer works."""
        path = Path(path)
        _check_run(path, cls.exists(path))
        db = connect(path, write=False)
        try:
            schema.check_version(db, str(path / DATABASE))
        except BaseException:
            db.close()
            raise
        return cls(path, db, None)

    def close(self) -> None:
        """Release database and lock; what was committed is durable already."""
        self.db.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- writing -----------------------------------------------------------------------------------------------

    def commit(self, record: StepRecord) -> None:
        """Make one step durable, whole or not at all.

        Raises RunDirectoryError: a step that is not newer than the last, data without a portable form, a full disk, refused
        access. Unless its `committed` is true nothing of the step remains, and the same record may be committed again.
        """
        self._check_writer()
        with self._busy:
            commit.commit(self, record)

    def check_environment(self, current: Mapping[str, Any], allow: Collection[str] | bool = ()) -> dict[str, tuple[Any, Any]]:
        """Facts that differ from those recorded at creation: name -> (recorded, current); None = absent.

        Differences outside `allow` (names, or True for all) raise RunDirectoryError; allowed ones are recorded, because from
        then on bit-equality is not promised.
        """
        recorded = self.environment
        found = {
            name: (recorded.get(name), current.get(name))
            for name in sorted({*recorded, *current})
            if recorded.get(name) != current.get(name)
        }
        refused = [name for name in found if allow is not True and (allow is False or name not in allow)]
        if refused:
            text = "; ".join(f"{name}: {found[name][0]!r} at creation, {found[name][1]!r} now" for name in refused)
            raise RunDirectoryError(
                f"{self.path} was started in another environment: {text}",
                "resume where these are equal, or allow the difference (bit-equality then ends)",
            )
        if found and self._lock is not None:
            with storage_errors("recording the environment", self.path):
                facts = dumps_exact(dict(current), "environment")
                self.db.execute("INSERT INTO environments VALUES (?, ?)", (self.last_step(), facts))
                derived.write_card(self)
        return found

    # ---- resuming ----------------------------------------------------------------------------------------------

    def resume_point(self, before: int | None = None) -> ResumePoint | None:
        """Where the run continues; None when nothing was committed yet. `before`: use a checkpoint older than that step (the
        newest two are kept).

        Reads and verifies the state and the checkpoint now, each batch when it is asked for. Raises Tampered.
        """
        last = self.last_step()
        if last is None:
            return None
        known = self.step_row(last)
        at: int | None = self.db.execute(
            "SELECT max(step) FROM steps WHERE checkpoint IS NOT NULL AND step < ?", (last + 1 if before is None else before,)
        ).fetchone()[0]
        for found in () if at is None else checkpoint_differences(self, at):
            raise Tampered(
                f"{self.path}: {found}",
                f"restore it from a copy, or resume from an older checkpoint: resume_point(before={at})",
            )
        steps = tuple(
            step
            for (step,) in self.db.execute(
                "SELECT step FROM steps JOIN batches USING (step) WHERE step > ? ORDER BY step", (-1 if at is None else at,)
            )
        )
        return ResumePoint(
            last,
            known["round"],
            known["version"],
            self.state(last),
            None if at is None else self.checkpoint_path(at),
            at,
            Batches(steps, self._replay),
        )

    def _replay(self, step: int) -> tuple[Batch, float]:
        batch = self.batch(step)
        assert batch is not None
        return batch, float(self.step_row(step)["progress"])

    # ---- checking ----------------------------------------------------------------------------------------------

    def verify(self) -> list[Difference]:
        """Walk everything; what differs from what was committed, empty when nothing does."""
        return list(self.differences())

    def differences(self) -> Iterator[Difference]:
        return verify(self)

    def _check_writer(self) -> None:
        if self._lock is None:
            raise RunDirectoryError(f"{self.path} is open for reading only", "open it with RunDirectory.open")
        if os.getpid() != self._pid:
            raise RunDirectoryError(
                f"{self.path} was opened by process {self._pid}, this is its child {os.getpid()}",
                "commit in the process that opened the run directory",
            )

    def _same_recipe(self, recipe: Mapping[str, Any]) -> None:
        own, other = self.recipe, json.loads(json.dumps(recipe))
        if own != other:
            keys = sorted(k for k in {*own, *other} if own.get(k) != other.get(k))
            text = "; ".join(f"{k}: {own.get(k)!r} in the run, {other.get(k)!r} given" for k in keys[:5])
            raise RunDirectoryError(
                f"{self.path} was started with another recipe: {text}",
                "resume with the run's own recipe.json, or start a new run in another directory",
            )


def _writer_connection(path: Path, local: bool) -> sqlite3.Connection:
    db = connect(path, write=True)
    try:
        # readers do not block a WAL writer; its shared memory does not work across machines
        db.execute(f"PRAGMA journal_mode = {'WAL' if local else 'DELETE'}")
        db.execute("PRAGMA synchronous = FULL")
        if schema.version(db) == 0:
            db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    except BaseException:
        db.close()
        raise
    return db


def refuse_taken(path: Path) -> None:
    """Raise RunDirectoryError for a directory in which `create` would not begin."""
    _check_empty(path, RunDirectory.exists(path))


def _check_empty(path: Path, exists: bool) -> None:
    """Refuse to create over a run or over files that are not what a creation cut short leaves."""
    if exists:
        raise RunDirectoryError(f"{path} holds a run already", f"continue it (gfcr resume {path}), or choose another directory")
    lock, own = path / "lock", set[str]()
    if lock.is_file() and lock.read_bytes()[:8] in (b"process ", b""):  # made first, so the other names are a creation's too
        own = {"lock", "recipe.json", *_DATABASE_FILES, *(f for f in _FOLDERS if not any((path / f).glob("*")))}
    foreign = sorted(p.name for p in path.iterdir() if p.name not in own and not (own and p.name.startswith(files.TEMPORARY)))
    if foreign:
        raise RunDirectoryError(
            f"{path} is not empty: {', '.join(foreign[:5])}" + (" ..." if len(foreign) > 5 else ""),
            "choose another directory, or move these files away",
        )


def _check_run(path: Path, exists: bool) -> None:
    if exists:
        return
    if not path.is_dir():
        raise RunDirectoryError(f"{path} is no directory", "check the path; gfcr run (RunDirectory.create) makes a new run")
    present = sorted(p.name for p in path.iterdir())
    if DATABASE in present:
        what = "run.sqlite in it is no database of a gfcr run, or the run's creation was cut short"
    else:
        what = f"it has no {DATABASE}" + (f", but {', '.join(present[:5])}" if present else ", it is empty")
    raise RunDirectoryError(f"{path} holds no run: {what}", "check the path, or start the run (gfcr run)")


def _check_disk(path: Path, network: str) -> bool:
    """Whether the disk is local; refuse or warn about a network file system."""
    if network not in ("refuse", "warn", "allow"):
        raise RunDirectoryError(f"network = {network!r}", "use refuse, warn or allow")
    kind = files.filesystem(path)
    if not files.is_network(kind):
        return True
    what = f"{path} lies on a network file system ({kind}), where locks and fsync may not hold"
    if network == "refuse":
        raise RunDirectoryError(what, 'put the run directory on a local disk, or accept the risk with network="warn"')
    if network == "warn":
        warnings.warn(what, RuntimeWarning, stacklevel=3)
    return False
