"""The commit of a step, and what is collected after it.

Invariants: the SQLite transaction comes after every file it names is durable; an exception before it takes the files away
again; nothing that a resume from the step before would need is removed until one commit later.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfcr.run import derived, files, schema
from gfcr.run.chain import LINKED, link
from gfcr.run.encode import StepEncoder, rows_hash
from gfcr.run.exact_json import dumps, dumps_exact
from gfcr.run.failpoints import hit
from gfcr.run.failures import RunDirectoryError, storage_errors
from gfcr.run.payload import digest
from gfcr.run.record import StepRecord
from gfcr.run.state import Find, encode_state
from gfcr.types import Rollout

if TYPE_CHECKING:
    from gfcr.run.directory import RunDirectory

_STATE_CHUNK = 1 << 26
"""Bytes of one row of table states; SQLite refuses rows of 1 GB."""
KEPT_CHECKPOINTS = 2
KEPT_STATES = 2


def commit(run: RunDirectory, record: StepRecord) -> None:
    """See `RunDirectory.commit`."""
    step, last = record.step, run.last_step()
    if step < 0 or (last is not None and step <= last):
        raise RunDirectoryError(
            f"step {step} cannot be committed to {run.path}: its last committed step is {last}",
            "continue from resume_point(); a committed step is never written again",
        )
    encoded = _encode(run, record)
    body = encoded.payload.bytes()
    found: dict[int, tuple[Rollout, tuple[int, int]]] = {}
    state = encode_state(record.state, _finder(encoded, run, found))
    values: dict[str, Any] = {
        "step": step,
        "round": int(record.round),
        "version": int(record.version),
        "progress": float(record.progress) + 0.0,
        "payload_length": len(body),
        "payload_hash": digest(body),
        "checkpoint": None,
        "metrics": _metrics(record),
        "state_hash": digest(state),
        "rows_hash": rows_hash(encoded.rows),
    }
    metrics_bytes, run.metrics_bytes = run.metrics_bytes, -1  # until its line is in
    payload, checkpoint = run.payload_file(step), run.checkpoint_path(step)
    try:
        with storage_errors(f"committing step {step}", run.path):
            files.write_durable(payload, lambda path: path.write_bytes(body), "payload")
            if record.checkpoint is not None:
                files.write_durable(checkpoint, _into_directory(record.checkpoint), "checkpoint")
                values["checkpoint"] = _manifest(checkpoint)
            with _portable(step):
                _write_rows(run.db, encoded, state, values, run.head)
    except BaseException:
        with suppress(OSError, sqlite3.Error):
            if run.last_step() != step:  # an interrupt may arrive just after the transaction: then the files are needed
                for path in (payload, checkpoint):
                    files.remove(path)
        raise
    run.held = found
    with storage_errors(f"updating files derived from step {step}", run.path, committed=True):
        hit("rows.after_commit")
        derived.append_metrics(run, values["metrics"], metrics_bytes)
        derived.renew_card(run, values)
        collect(run)


def _into_directory(write: Callable[[Path], object]) -> Callable[[Path], object]:
    def fill(folder: Path) -> None:
        files.remove(folder)  # of a commit that was cut short
        folder.mkdir()
        write(folder)

    return fill


def _manifest(checkpoint: Path) -> str:
    found = files.manifest(checkpoint)
    if not found:
        raise RunDirectoryError(
            f"the checkpoint writer left no file in {checkpoint}",
            "StepRecord.checkpoint writes its safetensors files into the directory it is given",
        )
    return dumps(found)


def _encode(run: RunDirectory, record: StepRecord) -> StepEncoder:
    if not math.isfinite(record.progress):
        raise RunDirectoryError(
            f"step {record.step}: progress is {record.progress}", "pass the share of the budget spent, 0 to 1"
        )
    encoded = StepEncoder(record.step, run)
    with _portable(record.step):
        for group in record.groups:
            encoded.group(group)
        if record.batch is not None:
            encoded.batch(record.batch)
        encoded.decisions(record.decisions)
    return encoded


@contextmanager
def _portable(step: int) -> Iterator[None]:
    """Values that JSON or SQLite has no form for, named as the caller's fault and not the disk's."""
    try:
        yield
    except (
        TypeError,
        UnicodeEncodeError,
        OverflowError,
        sqlite3.IntegrityError,
        sqlite3.ProgrammingError,
        sqlite3.InterfaceError,
    ) as error:
        raise RunDirectoryError(
            f"step {step} holds a value without a portable form: {error}",
            "ids and labels must be valid Unicode text, counts 64-bit integers, metadata JSON data",
        ) from error


def _metrics(record: StepRecord) -> str:
    head = {"step": int(record.step), "round": int(record.round), "version": int(record.version)}
    for name, value in head.items():
        if record.metrics.get(name, value) != value:
            found = record.metrics[name]
            raise RunDirectoryError(
                f"metrics of step {record.step}: {name} is {found!r}, the record says {value}",
                f"leave {name} out of the metrics, or rename it",
            )
    try:
        return dumps_exact({**head, **record.metrics}, "metrics")
    except TypeError as error:
        raise RunDirectoryError(f"step {record.step}: {error}", "metrics are JSON data: numbers, text, lists, dicts") from None


def _finder(encoded: StepEncoder, run: RunDirectory, out: dict[int, tuple[Rollout, tuple[int, int]]]) -> Find:
    """Where a rollout of the state is stored; what is found goes to `out`, so that the next commit need not search."""

    def find(rollout: Rollout) -> tuple[int, int] | None:
        held = run.held.get(id(rollout))
        at = encoded.known(rollout) or (held[1] if held else encoded.find(rollout))
        if at is not None:
            out[id(rollout)] = rollout, at
        return at

    return find


def _write_rows(db: sqlite3.Connection, encoded: StepEncoder, state: bytes, values: dict[str, Any], before: str) -> None:
    values["head"] = head = link(before, [values[name] for name in LINKED])
    db.execute("BEGIN IMMEDIATE")
    try:
        db.executemany("INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?)", ((key, *row) for key, row in encoded.tasks.items()))
        for table, rows in encoded.rows.items():
            if rows:
                db.executemany(schema.INSERTS[table], rows)
        for part, start in enumerate(range(0, len(state), _STATE_CHUNK)):
            db.execute("INSERT INTO states VALUES (?, ?, ?)", (encoded.step, part, state[start : start + _STATE_CHUNK]))
        db.execute(
            f"INSERT INTO steps ({', '.join(LINKED)}, head) VALUES (?{', ?' * len(LINKED)})",
            (*(values[name] for name in LINKED), head),
        )
        db.execute("DELETE FROM states WHERE step NOT IN (SELECT step FROM steps ORDER BY step DESC LIMIT ?)", (KEPT_STATES,))
        hit("rows.before_commit")
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def kept_checkpoints(run: RunDirectory) -> list[int]:
    """Steps whose checkpoint must be there: the last step's own, and the newest two before it."""
    last = run.last_step()
    query = "SELECT step FROM steps WHERE checkpoint IS NOT NULL ORDER BY step DESC LIMIT ?"
    found = [step for (step,) in run.db.execute(query, (KEPT_CHECKPOINTS + 1,))]
    return found if found and found[0] == last else found[:KEPT_CHECKPOINTS]


def collect(run: RunDirectory) -> None:
    """Remove checkpoints that no resume needs any more."""
    kept = set(kept_checkpoints(run))
    for path in derived.numbered(run.path / "checkpoints", "", kept):
        hit("collect.before_unlink")
        files.remove(path)
        hit("collect.after_unlink")
