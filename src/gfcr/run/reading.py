"""Reading a run directory: groups, single rollouts, batches, metrics, decisions.

Invariants: a reader takes no lock and sees whole steps only, also while another process commits; whatever is read is
compared with its digest first; memory is bounded by one step's data, whatever the run's length.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gfcr.run import decode, schema
from gfcr.run.bodies import Row
from gfcr.run.chain import LINKED
from gfcr.run.encode import group_sum, rows_hash
from gfcr.run.exact_json import loads
from gfcr.run.failures import RunDirectoryError, Tampered, storage_errors
from gfcr.run.payload import digest
from gfcr.run.state import decode_state
from gfcr.types import Batch, Decision, Group, Node, Rollout, StopReason, Task

DATABASE = "run.sqlite"
_RESTORE = "restore the run directory from a copy, or start again in another one"


def connect(path: Path, write: bool) -> sqlite3.Connection:
    """A connection to the directory's database, in autocommit mode."""
    with storage_errors("opening the database", path):
        if write:
            return _connect(path, "rwc")
        if not os.access(path, os.W_OK) and not (path / f"{DATABASE}-wal").exists():
            return _connect(path, "ro&immutable=1")  # a finished run on a read-only disk: nobody can be writing
        try:
            return _connect(path, "ro")
        except sqlite3.OperationalError:
            if not os.access(path, os.W_OK) or not (path / f"{DATABASE}-journal").exists():
                raise
        _connect(path, "rw").close()  # rolls back what a killed process left half done; SQLite's locks see to a live one
        return _connect(path, "ro")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"file:{quote(str((path / DATABASE).resolve()))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=30,
    )
    try:
        db.execute("PRAGMA user_version").fetchone()
    except BaseException:
        db.close()
        raise
    return db


class Reader:
    """The reading half of `RunDirectory`."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path, self.db = path, db
        self._whole: set[int] = set()
        """Steps whose rows were compared with their digest."""

    # ---- facts of the run --------------------------------------------------------------------------------------

    def meta(self, name: str) -> str:
        row = self.db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise Tampered(f"{self.path / DATABASE} has no entry {name!r} in table meta", _RESTORE)
        return str(row[0])

    @property
    def recipe(self) -> dict[str, Any]:
        """The frozen recipe."""
        out: dict[str, Any] = json.loads((self.path / "recipe.json").read_text(encoding="utf-8"))
        return out

    @property
    def environment(self) -> dict[str, Any]:
        """The facts deterministic mode needs equal, as recorded at creation."""
        out: dict[str, Any] = loads(self.meta("environment"))
        return out

    def last_step(self) -> int | None:
        """The last committed step; None before the first commit."""
        found = self.db.execute("SELECT max(step) FROM steps").fetchone()[0]
        return None if found is None else int(found)

    def steps(self) -> list[int]:
        """All committed steps."""
        return [row[0] for row in self.db.execute("SELECT step FROM steps ORDER BY step")]

    @property
    def head(self) -> str:
        """Head of the hash chain."""
        row = self.db.execute("SELECT head FROM steps ORDER BY step DESC LIMIT 1").fetchone()
        return str(row[0]) if row else self.meta("genesis")

    # ---- what was committed ------------------------------------------------------------------------------------

    def metrics(self) -> list[dict[str, Any]]:
        """One dict per step, in order, as committed (with `step`, `round`, `version`)."""
        return [loads(row[0]) for row in self.db.execute("SELECT metrics FROM steps ORDER BY step")]

    def groups(self, step: int) -> list[Group]:
        """The groups committed with `step`. Raises RunDirectoryError for an unknown step, Tampered for damaged data."""
        rows, raw = self._verified(step)
        payload = memoryview(raw)  # slices of bytes would be copies, one for each node, of all that follows it
        forms = {row[0]: decode.form(row[1:]) for row in rows["forms"]}
        bodies = {row[0]: self._trusted(step, row, payload[row[9] : row[9] + row[10]]) for row in rows["groups"]}
        nodes = {
            (group, stored.key): decode.node(stored, forms[stored.form], payload[stored.offset :])
            for group, parts in bodies.items()
            for stored in parts.nodes
        }
        known = {
            (step, stored.key): _made(stored, group, nodes) for group, parts in bodies.items() for stored in parts.rollouts
        }
        tasks: dict[bytes, Task] = {}
        out = []
        for row in rows["groups"]:
            if row[2] not in tasks:
                tasks[row[2]] = self._task(row[2])
            group = decode.group(row, tasks[row[2]], bodies[row[0]])
            for part in bodies[row[0]].members:
                at = decode.member_at(part, step)
                if at not in known:
                    known[at] = self.rollout_at(*at)
                name, member = decode.member(part, known[at], payload)
                group.members[name] = member
            out.append(group)
        return out

    def rollout(self, rollout_id: str, step: int | None = None) -> Rollout:
        """A rollout by id, without reading the rest of its step.

        A rollout committed again with other content (scored again under newer weights, say) has several versions: `step`
        None gives the first that is whole (a parked one only where there is no other), a step the newest not after it. Raises
        RunDirectoryError for an unknown id.
        """
        found = self.stored(rollout_id)
        if step is not None:
            found = [at for at in found if at[0] <= step][-1:]
        if not found:
            until = "" if step is None else f" up to step {step}"
            raise RunDirectoryError(
                f"{self.path} has no rollout {rollout_id!r}{until}",
                "check the id, or open the run directory it was committed in",
            )
        versions = (self.rollout_at(*at) for at in found)
        first = next(versions)
        return first if first.stop is not StopReason.PARKED else next((r for r in versions if r.stop is not first.stop), first)

    def batch(self, step: int) -> Batch | None:
        """The batch committed with `step`; None for a round without one. Raises Tampered for damaged data."""
        rows, payload = self._verified(step)
        return decode.batch(rows["batches"][0][0], payload) if rows["batches"] else None

    def decisions(self, task: str | None = None, step: int | None = None) -> Iterator[Decision]:
        """Decisions in order, all or those of one task (id), one step, or both."""
        wanted = [("task = ?", task), ("step = ?", step)]
        given = [(text, value) for text, value in wanted if value is not None]
        where = f" WHERE {' AND '.join(text for text, _ in given)}" if given else ""
        columns = ", ".join(schema.ROWS["decisions"])
        query = f"SELECT {columns} FROM decisions{where} ORDER BY step, key"
        return (decode.decision(row) for row in self.db.execute(query, [value for _, value in given]))

    def decided(self, task: str) -> Iterator[tuple[int, Decision]]:
        """(step, decision) of every decision about a task (id), in order."""
        query = f"SELECT step, {', '.join(schema.ROWS['decisions'])} FROM decisions WHERE task = ? ORDER BY step, key"
        return ((row[0], decode.decision(row[1:])) for row in self.db.execute(query, (task,)))

    def tasks(self) -> Iterator[Task]:
        """Every task met so far, in the order first met; one whose reference was corrected appears once per version."""
        return (decode.task(row[0]) for row in self.db.execute("SELECT body FROM tasks ORDER BY rowid"))

    def state(self, step: int) -> dict[str, Any]:
        """The state committed with `step`; only the newest two are kept."""
        row = self.db.execute("SELECT state_hash FROM steps WHERE step = ?", (step,)).fetchone()
        body = b"".join(part[0] for part in self.db.execute("SELECT body FROM states WHERE step = ? ORDER BY part", (step,)))
        if row is None or not body:
            raise RunDirectoryError(f"{self.path} keeps no state of step {step}", "ask for the last committed step")
        if (found := digest(body)) != row[0]:
            raise Tampered(f"run.sqlite, step {step}, table states: hash {found}, the step's row says {row[0]}", _RESTORE)
        return decode_state(body, self.rollout_at)

    # ---- parts -------------------------------------------------------------------------------------------------

    def payload_file(self, step: int) -> Path:
        return self.path / "segments" / f"{step}.bin"

    def checkpoint_path(self, step: int) -> Path:
        return self.path / "checkpoints" / str(step)

    def rows(self, step: int) -> dict[str, list[Row]]:
        """A step's rows as stored, by table."""
        return {table: self.db.execute(query, (step,)).fetchall() for table, query in schema.SELECTS_ORDERED.items()}

    def step_row(self, step: int) -> dict[str, Any]:
        """The row of table steps. Raises RunDirectoryError for an unknown step."""
        row = self.db.execute(f"SELECT {', '.join(LINKED)}, head FROM steps WHERE step = ?", (step,)).fetchone()
        if row is None:
            raise RunDirectoryError(
                f"{self.path} has no step {step}; the last committed one is {self.last_step()}",
                "ask for a committed step (`steps()` lists them)",
            )
        return dict(zip((*LINKED, "head"), row, strict=True))

    def _verified(self, step: int) -> tuple[dict[str, list[Row]], bytes]:
        """A step's rows and payload, after comparing both with their digests."""
        known = self.step_row(step)
        file = self.payload_file(step)
        try:
            payload = file.read_bytes()
        except FileNotFoundError:
            raise Tampered(f"segments/{step}.bin is missing; it has {known['payload_length']} bytes", _RESTORE) from None
        if (found := digest(payload)) != known["payload_hash"]:
            raise Tampered(
                f"segments/{step}.bin: {len(payload)} bytes with hash {found}, committed were "
                f"{known['payload_length']} bytes with hash {known['payload_hash']}",
                _RESTORE,
            )
        rows = self.rows(step)
        self._compare(step, rows, known["rows_hash"])
        return rows, payload

    def _compare(self, step: int, rows: dict[str, list[Row]], known: str) -> None:
        if (found := rows_hash({table: [(step, *row) for row in part] for table, part in rows.items()})) != known:
            raise Tampered(f"run.sqlite, step {step}: its rows have hash {found}, committed was {known}", _RESTORE)
        self._whole.add(step)

    def _rows_hold(self, step: int) -> None:
        """Compare a step's rows with their digest, once; the groups' bodies, which their own checksums cover, are not read for it."""
        if step not in self._whole:
            heads = {**schema.SELECTS_ORDERED, "groups": schema.GROUP_HEADS}
            rows = {table: self.db.execute(query, (step,)).fetchall() for table, query in heads.items()}
            self._compare(step, rows, self.step_row(step)["rows_hash"])

    def _task(self, key: bytes) -> Task:
        row = self.db.execute("SELECT body FROM tasks WHERE digest = ?", (key,)).fetchone()
        if row is None or bytes.fromhex(digest(row[0].encode(), 16)) != key:
            state = "missing" if row is None else "changed"
            raise Tampered(f"run.sqlite, table tasks: the task with digest {key.hex()} is {state}", _RESTORE)
        return decode.task(row[0])

    def stored(self, rollout_id: str) -> list[tuple[int, int]]:
        """(step, key) of every version of a rollout, oldest first."""
        query = "SELECT step, key FROM rollouts WHERE id = ? ORDER BY step, key"
        return self.db.execute(query, (rollout_id,)).fetchall()

    def rollout_at(self, step: int, key: int) -> Rollout:
        """The rollout stored under (step, key), without reading the rest of its step. Raises Tampered for damaged data."""
        self._rows_hold(step)
        group = self._one("rollouts", step, key)[2]
        bodies: dict[int, tuple[decode.Body, int, memoryview]] = {}
        forms: dict[int, decode.Form] = {}
        nodes: dict[tuple[int, int], Node] = {}

        def body(number: int) -> tuple[decode.Body, int, memoryview]:
            if number not in bodies:
                row = self._one("groups", step, number)
                arrays = memoryview(self._region(step, row[9], row[10]))
                bodies[number] = self._trusted(step, row, arrays), row[9], arrays
            return bodies[number]

        stored = next(r for r in body(group)[0].rollouts if r.key == key)
        for at in decode.places([*stored.path, *(stored.train_path or ())], group):
            if at in nodes:
                continue
            parts, start, arrays = body(at[0])
            found = next(n for n in parts.nodes if n.key == at[1])
            if found.form not in forms:
                forms[found.form] = decode.form(self._one("forms", step, found.form)[1:])
            nodes[at] = decode.node(found, forms[found.form], arrays[found.offset - start :])
        return _made(stored, group, nodes)

    def _one(self, table: str, step: int, key: int) -> Row:
        row = self.db.execute(f"{schema.SELECTS[table]} AND key = ?", (step, key)).fetchone()
        if row is None:
            raise Tampered(f"run.sqlite, table {table}: step {step} has no row {key}, though others name it", _RESTORE)
        return tuple(row)

    def _region(self, step: int, start: int, length: int) -> bytes:
        try:
            with self.payload_file(step).open("rb") as file:
                file.seek(start)
                return file.read(length)
        except FileNotFoundError:
            raise Tampered(f"segments/{step}.bin is missing, though rollouts lie in it", _RESTORE) from None

    def _trusted(self, step: int, row: Row, arrays: bytes | memoryview) -> decode.Body:
        """The body of a row of table groups, after comparing it and its arrays with their checksum."""
        if difference := group_difference(step, row, arrays):
            raise Tampered(difference, _RESTORE)
        return decode.body(row[12])


def group_difference(step: int, row: Row, arrays: bytes | memoryview) -> str:
    """How a row of table groups or its arrays differ from their checksum, in words; empty when they do not."""
    start, length, known, body = row[9:13]
    if (found := group_sum(body, arrays)) == known:
        return ""
    return (
        f"run.sqlite, step {step}, group {row[1]}, with segments/{step}.bin, bytes {start} to {start + length}: "
        f"checksum {found.hex()}, its row says {known.hex()}"
    )


def _made(stored: decode.StoredRollout, group: int, nodes: Mapping[tuple[int, int], Node]) -> Rollout:
    path, train = ([nodes[at] for at in decode.places(p or [], group)] for p in (stored.path, stored.train_path))
    return decode.rollout(stored, path, None if stored.train_path is None else train)
