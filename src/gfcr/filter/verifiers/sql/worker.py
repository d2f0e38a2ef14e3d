"""The child process of the SQL verifier: runs queries and compares results; only words and numbers leave it.

Invariants: it can write no file and has bounded memory; it says before each part of the work what it begins, so that whoever kills
it knows whose query ran; databases and reference results are kept for the next answers of the same task.
"""

from __future__ import annotations

import contextlib
import json
import resource
from collections import OrderedDict
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from gfcr.filter.verifiers.sql.compare import Comparison, Mode, TooMany, canonical
from gfcr.filter.verifiers.sql.database import Database, Hints, Limits, QueryError, Spec, Table, Unusable, open_database
from gfcr.filter.verifiers.sql.metrics import soft_f1, time_ratio
from gfcr.filter.verifiers.sql.text import literals
from gfcr.filter.verifiers.sql.ties import runs, with_keys

MOST_DATABASES, MOST_TABLES = 8, 32
"""Databases and reference results kept."""
MOST_KEPT_CELLS = 200_000
"""Larger reference results are computed again."""
LONGEST_CELL = 200
"""Characters shown of a value."""
Said = dict[str, Any]
Tell = Callable[[str], None]


class Bench:
    """Judges one job after another."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._databases: OrderedDict[tuple[str, str], Database] = OrderedDict()
        self._tables: OrderedDict[tuple[str, str], Table] = OrderedDict()

    def judge(self, job: Mapping[str, Any]) -> Said:
        """`job`: `dialect`, `databases` (specs, the first one decides the score), `gold` (queries, any of which may be met), `pred`,
        `mode`, `tolerance`, `permute`, `ties`, `empty`, `limits`, `generated` (copies), `seed`, `runs` (of R-VES; 0 = none), `every` (steps between two counts; 0: time them by seconds), `f1`."""
        self._limits = Limits(**job["limits"])
        self._comparison = Comparison(Mode(job["mode"]), job["tolerance"], job["permute"])
        said: Said = {"executes": False, "correct": False, "luck": ""}
        alive = list(job["gold"])
        try:
            for number, spec in enumerate(job["databases"]):
                self._tell("gold")
                database = self._database(job["dialect"], spec)
                alive = self._against(database, job, alive, said, "" if number == 0 else f"on variant {number}: ", number == 0)
                if not alive:
                    return said
            for number in range(job["generated"]):
                self._tell("gold")
                copy = self._copy(self._base(job), f"{job['seed']}:{number}", alive[0])
                if copy is None:
                    continue
                before = dict(said)
                left = self._against(copy, job, alive, said, f"on generated data {number + 1}: ", False, generated=True)
                if not left:
                    return {**before, "luck": said["evidence"]}
                alive = left
            if job["runs"]:
                said["ratio"] = self._timed(self._base(job), alive[0], job)
            return {**said, "correct": True}
        except (_Unscorable, Unusable, TooMany) as error:
            return {"unscorable": str(error)}

    def show(self, job: Mapping[str, Any]) -> Said:
        """`job`: `dialect`, `database` (spec), `query`, `limits`, `rows`, `chars`. The query's result as text, or why there is none."""
        self._limits = Limits(**job["limits"])
        self._tell("open")
        try:
            database = self._database(job["dialect"], job["database"])
        except Unusable as error:
            return {"unusable": str(error)}
        self._tell("pred")
        try:
            table = database.query(job["query"], self._limits)
        except QueryError as error:
            return {"failed": str(error), "kind": type(error).__name__.lower()}
        return {"text": as_text(table, job["rows"], job["chars"])}

    def _against(
        self,
        database: Database,
        job: Mapping[str, Any],
        alive: list[str],
        said: Said,
        where: str,
        base: bool,
        generated: bool = False,
    ) -> list[str]:
        """The reference queries that the answer still meets on this database; `said` tells why where there is none."""
        wanted: dict[str, Table] = {}
        failure = ""
        for gold in alive:
            try:
                wanted[gold] = self._reference(database, gold)
            except QueryError as error:
                failure = str(error)
        if not wanted:
            if generated:
                return alive  # the copy says nothing
            raise _Unscorable(f"{where}the reference query gives no result: {failure}")
        if base and job["empty"] == "unscorable" and not any(table.rows for table in wanted.values()):
            raise _Unscorable("the reference's result is empty: any query without a result would be right")
        self._tell("pred")
        try:
            got = database.query(job["pred"], self._limits)
        except QueryError as error:
            said["evidence"] = f"{where}the query gives no result: {error}"
            return []
        self._tell("compare")
        if base:
            said |= {"executes": True, "answer": canonical(got, self._comparison.mode)}
            if job["f1"]:
                ordered = self._comparison.mode is Mode.ORDERED
                said["f1"] = max(soft_f1(table.rows, got.rows, ordered) for table in wanted.values())
        equal = [
            gold
            for gold, table in wanted.items()
            if self._comparison.same(table, got) or self._tied(database, job, gold, table, got)
        ]
        if not equal:
            said["evidence"] = where + self._comparison.difference(next(iter(wanted.values())), got)
        elif base:
            rows = f"{len(got.rows)} row{'' if len(got.rows) == 1 else 's'}"
            said["evidence"] = f"the same {rows}" if got.rows else "both results are empty, which proves little"
        return equal

    def _tied(self, database: Database, job: Mapping[str, Any], gold: str, wanted: Table, got: Table) -> bool:
        """Whether the results differ only in the order of rows that tie under the reference's ORDER BY."""
        if self._comparison.mode is not Mode.ORDERED or not job["ties"] or len(wanted.rows) != len(got.rows):
            return False
        asked = with_keys(gold, wanted.names)
        if asked is None or wanted.columns != got.columns:
            return False
        self._tell("gold")
        try:
            keyed = self._reference(database, asked[0])
        except QueryError:  # the keys cannot be had: the order counts as it is
            return False
        finally:
            self._tell("compare")
        found = runs(wanted, keyed, asked[1])
        return found is not None and self._comparison.same_in_runs(wanted, got, found)

    def _reference(self, database: Database, sql: str) -> Table:
        key = database.key, sql
        table = self._tables.get(key)
        if table is None:
            table = database.query(sql, self._limits)
            if len(table.rows) * table.columns <= MOST_KEPT_CELLS:
                self._tables[key] = table
                while len(self._tables) > MOST_TABLES:
                    self._tables.popitem(last=False)
        return table

    def _database(self, dialect: str, spec: Spec) -> Database:
        key = json.dumps([dialect, dict(spec)], sort_keys=True), ""
        return self._kept(key, lambda: open_database(dialect, spec, self._limits))

    def _copy(self, base: Database, seed: str, gold: str) -> Database | None:
        hints = Hints(seed, literals(gold))
        return self._kept((base.key, f"{seed} {gold}"), lambda: base.perturbed(hints))

    def _base(self, job: Mapping[str, Any]) -> Database:
        """The first database, looked up again: what is in use is never the one that has to go."""
        return self._database(job["dialect"], job["databases"][0])

    def _kept(self, key: tuple[str, str], make: Callable[[], Any]) -> Any:
        found = self._databases.get(key)
        if found is None:
            found = make()
            if found is None:
                return None
            self._databases[key] = found
            room = self._limits.memory_mb * 1_000_000 // 4  # the rest is for queries
            while len(self._databases) > 2 and (
                len(self._databases) > MOST_DATABASES or sum(d.size for d in self._databases.values()) > room
            ):
                self._databases.popitem(last=False)[1].close()
        else:
            self._databases.move_to_end(key)
        return found

    def _timed(self, database: Database, gold: str, job: Mapping[str, Any]) -> float:
        """How many times faster than the reference: by steps of the database's machine, or by processor seconds. 0 for a query that is
        not in time this time."""
        every = job["every"]
        wanted: list[float] = []
        got: list[float] = []
        for _ in range(job["runs"]):
            for who, sql, costs in (("gold", gold, wanted), ("pred", job["pred"], got)):
                self._tell(who)
                try:
                    table = database.query(sql, self._limits, every or 1000)
                except QueryError as error:
                    if who == "pred":
                        return 0.0
                    raise _Unscorable(f"the reference cannot be timed: {error}") from error
                costs.append(float(table.steps + every) if every else table.seconds or 1e-9)
        return time_ratio(wanted, got)


class _Unscorable(Exception):
    """Nothing that is judged is to blame."""


def as_text(table: Table, rows: int, chars: int) -> str:
    """A result to read: names of the columns, the first `rows` rows, as far as `chars` characters reach, and how many there are."""
    lines = [" | ".join(table.names)] if table.names else []
    room = chars
    for row in table.rows[:rows]:
        line = " | ".join(map(_cell, row))
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    left = len(table.rows) - len(lines) + bool(table.names)
    count = f"({len(table.rows)} row{'' if len(table.rows) == 1 else 's'}{f', {left} of them not shown' if left else ''})"
    return "\n".join([*lines, count])


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    text = f"x'{value[:LONGEST_CELL].hex()}'" if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 3] + "..."


def _confine(memory_mb: int) -> None:
    """No file of this process grows, no core is dumped, memory is bounded."""
    for what, most in (
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_AS, memory_mb * 1_000_000),
    ):
        hard = resource.getrlimit(what)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # a system without this limit; the others still hold
            resource.setrlimit(what, (limit, limit))


def serve(handle: int, memory_mb: int) -> None:
    """Answer jobs until the pipe closes."""
    pipe = Connection(handle)
    _confine(memory_mb)

    def send(message: Said) -> None:
        pipe.send_bytes(json.dumps(message).encode())

    bench = Bench(lambda phase: send({"phase": phase}))
    send({"phase": "ready"})
    while True:
        try:
            job = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            answer = bench.show(job) if "query" in job else bench.judge(job)
        except Exception as error:  # the judge's own fault
            answer = {"unscorable": f"{type(error).__name__}: {error}"}
        send({"answer": answer})
