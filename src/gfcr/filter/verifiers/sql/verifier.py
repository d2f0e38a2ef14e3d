"""SQL judged by execution: right iff the query returns what the reference query returns.

Invariants: a query can change nothing, and runs in a child process with limits; what a query of the judged answer does wrong (it is
none, it writes, it never ends, it kills its process) is a wrong answer; what the reference or the database does wrong is
UNSCORABLE; `judge` returns within its limits (`bounded`): the child is killed where a query cannot be stopped.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from gfcr.child import Child
from gfcr.context import Build
from gfcr.errors import ConfigError, DataError
from gfcr.filter.verifiers.sql.compare import Mode
from gfcr.filter.verifiers.sql.database import DIALECTS, Limits, Unusable
from gfcr.filter.verifiers.sql.metrics import arctic, r_ves
from gfcr.filter.verifiers.sql.text import find_query, is_ordered
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Span, Status, StopReason, Task, Verdict

START_SECONDS = 60.0
"""Longest a child may take to start, or to take up or compare what it has."""
GRACE = 1.0
"""Seconds beyond a query's wall limit after which its process is killed."""
MOST_MESSAGES = 10_000
"""Of one job: it says before each query what it begins."""
HEADROOM_MB = 768
"""Address space of the child beyond what the database may use: the interpreter and the results it compares."""
STEPS = 20
"""Of the database's machine, between two counts, where `r-ves` goes by steps."""
LONGEST_EVIDENCE = 600
"""Characters of a reason that are kept: a database repeats a long word of the query."""
_OURS = (StopReason.CANCELLED, StopReason.PARKED, StopReason.FAILED)


class _Lost(Exception):
    """The child did not answer."""

    def __init__(self, phase: str, why: str) -> None:
        """`phase`: what it had begun."""
        super().__init__(phase, why)
        self.phase, self.why = phase, why


class _Runner(Child):
    """One child process."""

    def __init__(self, memory_mb: int) -> None:
        super().__init__("gfcr.filter.verifiers.sql.worker", (memory_mb,))
        self.bound_sending(START_SECONDS)
        self._receive("start", START_SECONDS)

    def ask(self, job: Mapping[str, Any], wall: float) -> dict[str, Any]:
        """The child's answer. Raises _Lost; the child is dead then."""
        phase = "start"
        try:
            self.pipe.send_bytes(json.dumps(job).encode())
        except OSError as error:
            self.kill()
            raise _Lost(phase, f"its process does not take the work ({error})") from error
        for _ in range(MOST_MESSAGES):
            message = self._receive(phase, wall + GRACE if phase in ("gold", "pred") else START_SECONDS)
            if "answer" in message:
                answer: dict[str, Any] = message["answer"]
                return answer
            phase = message["phase"]
        self.kill()
        raise _Lost("start", "it does not come to an end")

    def _receive(self, phase: str, seconds: float) -> dict[str, Any]:
        try:
            if not self.pipe.poll(seconds):
                self.kill()
                raise _Lost(phase, f"it did not end within {seconds:g} s and could not be stopped; its process was killed")
            message: dict[str, Any] = json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise _Lost(phase, f"its process {self.fate()}") from error
        return message


@method(
    "sql",
    Slot.VERIFIER,
    title="SQL by execution (BIRD EX, test-suite accuracy)",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    arxiv="2305.03111",
)
class Sql:
    """Right iff the query in the reply returns the rows of the reference query, on every database of the task."""

    class Settings(FrozenModel):
        compare: Literal["auto", "bag", "set", "ordered"] = "auto"
        """`bag`: rows with their multiplicity, in any order; `ordered`: in the reference's order; `set`: distinct rows (BIRD's EX,
        which takes a missing DISTINCT for right); `auto`: ordered where the task says so (`ordered`), or, where it says nothing,
        where the reference's outer query has an ORDER BY; else bag."""
        columns: Literal["as-written", "any-order"] = "as-written"
        """Whether columns may come in another order (test-suite accuracy allows it, BIRD does not)."""
        ties: Literal["any-order", "as-written"] = "any-order"
        """Whether rows that tie under the reference's ORDER BY may come in another order. Where its sort keys cannot be had for certain
        (DISTINCT, UNION, a name that may be an alias), the order counts as it is."""
        tolerance: float = Field(1e-9, ge=0, le=1e-3)
        """Relative difference up to which a float equals a number; integers are compared exactly. 0: exact, as BIRD has it."""
        empty: Literal["compare", "unscorable"] = "compare"
        """What an empty reference result is worth: compared like any other, or no evidence at all."""
        reward: Literal["binary", "arctic", "soft-f1", "r-ves"] = "binary"
        """`binary`: 1 or 0. `arctic`: 1, `executes` for a query that runs and gives something else, 0. `soft-f1`: the share of cells
        that agree. `r-ves`: a right answer's reward by how fast it is, from .25 to 1.25."""
        executes: float = Field(0.1, ge=0, lt=1)
        """Reward of a query that runs and is wrong, with `arctic`. UNCONFIRMED: .1 is remembered, not read in the paper."""
        ves_by: Literal["steps", "seconds"] = "steps"
        """What `r-ves` measures: steps of the database's machine, which repeat exactly (ours), or processor seconds, as BIRD does."""
        ves_runs: int = Field(10, ge=1, le=100)
        """Runs that `r-ves` times, when by seconds (BIRD: 100)."""
        generated: int = Field(0, ge=0, le=16)
        """Copies of the first database with altered data on which the answer is judged too; a right answer that differs on one was
        right by luck. A copy on which the reference gives nothing is skipped."""
        on_generated: Literal["wrong", "evidence"] = "wrong"
        """What a difference on generated data does: makes the answer wrong, or is only told."""
        seconds: float = Field(3.0, gt=0, le=600)
        """Processor seconds of one query; on the clock it may take four times as long. A task's `time_limit_s` bounds the clock."""
        rows: int = Field(200_000, ge=1)
        """Most rows of a result."""
        value_bytes: int = Field(1_000_000, ge=1_000)
        """Longest text or blob."""
        memory_mb: int = Field(256, ge=16)
        """Of the database's own."""
        workers: int = Field(2, ge=1, le=64)
        """Child processes; each judges one answer at a time."""
        databases: str = ""
        """Where a task's database lies when the task names it by `db_id`: a path with `{db_id}` in it, for instance
        `dev_databases/{db_id}/{db_id}.sqlite`."""
        dialect: str = "sqlite"
        """`sqlite`, or the place of another database's class: `module:Class` (gfcr.filter.verifiers.sql.database.Database)."""

        def traits(self) -> frozenset[str]:
            return frozenset({"binary correctness"} if self.reward == "binary" else ())

    name, version, bounded, parallel, cost = "sql", "1", True, True, 0.01

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings
        if settings.dialect not in DIALECTS and ":" not in settings.dialect:
            raise ConfigError(
                f"filter.verifiers 'sql': dialect = {settings.dialect!r}",
                f"choose {', '.join(DIALECTS)} or a place, module:Class",
            )
        self._fill()
        for task in build.tasks if build is not None else ():
            try:
                specs = self._specs(task)
            except ValueError as error:
                raise ConfigError(
                    f"task {task.id}: {error}", "give it schema_sql, db_path, or db_id with `databases` set"
                ) from None
            if missing := [spec["path"] for spec in specs if "path" in spec and not Path(spec["path"]).is_file()]:
                raise ConfigError(f"task {task.id}: there is no database file {missing[0]!r}", "correct the path")

    def _fill(self) -> None:
        self._free: queue.LifoQueue[_Runner | None] = queue.LifoQueue()
        for _ in range(self.settings.workers):
            self._free.put(None)

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if task.reference is None:
            return self._unscorable("the task has no reference query")
        if stop in _OURS:
            return self._unscorable(f"ended by us ({stop}): nobody knows what would have come")
        gold = [task.reference] if isinstance(task.reference, str) else task.reference
        if not (isinstance(gold, (list, tuple)) and gold and all(isinstance(query, str) for query in gold)):
            return self._unscorable(f"the reference is no query: {str(task.reference)[:60]!r}")
        if not stop.finished:
            return self._scored(False, f"cut off ({stop})")
        start, end = find_query(text)
        if start == end:
            return self._scored(False, "there is no query")
        try:
            specs = self._specs(task)
            job = self._job(task, specs, list(gold), text[start:end])
        except ValueError as error:
            return self._unscorable(str(error))
        spans = (Span(start, end, "answer"),)
        try:
            return self._verdict(self._ask(job), spans)
        except _Lost as lost:
            if lost.phase == "pred":
                return self._scored(False, f"the query gives no result: {lost.why}", spans=spans)
            what = {"gold": "the reference query", "compare": "the comparison"}.get(lost.phase, "the judge")
            return self._unscorable(f"{what}: {lost.why}")

    def database(self, task: Task) -> dict[str, Any]:
        """Where the task's first database is. Raises DataError."""
        try:
            return self._specs(task)[0]
        except ValueError as error:
            raise DataError(f"task {task.id}: {error}", "give it schema_sql, db_path, or db_id with `databases` set") from None

    def show(self, task: Task, query: str, rows: int, chars: int) -> tuple[str, str]:
        """(text, kind of error or ""): what a query gives on the task's first database, to be read; an error in words is of the kind
        `refused`, `runaway`, `failed` or `killed`. Raises Unusable where the database or its process is to blame, DataError."""
        own, wall = self.settings, 4 * self.settings.seconds
        limits = Limits(own.seconds, wall, own.rows, value_bytes=own.value_bytes, memory_mb=own.memory_mb)
        spec = self.database(task)
        job = {"dialect": own.dialect, "database": spec, "query": query, "limits": asdict(limits), "rows": rows, "chars": chars}
        try:
            said = self._ask(job)
        except _Lost as lost:
            if lost.phase == "pred":
                return _short(f"the query gives no result: {lost.why}"), "killed"
            raise Unusable(lost.why) from None
        if fault := said.get("unusable") or said.get("unscorable"):
            raise Unusable(str(fault))
        return (said["text"], "") if "text" in said else (_short(said["failed"]), said["kind"])

    def _job(self, task: Task, specs: list[dict[str, Any]], gold: list[str], pred: str) -> dict[str, Any]:
        own, wall = self.settings, 4 * self.settings.seconds
        if (limit := _of(task, "time_limit_s")) is not None:
            if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0:
                raise ValueError(f"time_limit_s is {limit!r}, not a number of seconds")
            wall = min(wall, max(0.5, 0.8 * limit - GRACE))
        ordered = _of(task, "ordered")
        if own.compare != "auto":
            mode = Mode(own.compare)
        else:
            mode = Mode.ORDERED if (is_ordered(gold[0]) if ordered is None else ordered) else Mode.BAG
        limits = Limits(min(own.seconds, wall), wall, own.rows, value_bytes=own.value_bytes, memory_mb=own.memory_mb)
        return {
            "dialect": own.dialect,
            "databases": specs,
            "gold": gold,
            "pred": pred,
            "mode": mode,
            "tolerance": own.tolerance,
            "permute": own.columns == "any-order",
            "ties": own.ties == "any-order",
            "empty": own.empty,
            "limits": asdict(limits),
            "generated": own.generated,
            "seed": task.id,
            "runs": 0 if own.reward != "r-ves" else 1 if own.ves_by == "steps" else own.ves_runs,
            "every": STEPS if own.ves_by == "steps" else 0,
            "f1": own.reward == "soft-f1",
        }

    def _specs(self, task: Task) -> list[dict[str, Any]]:
        """The task's databases, the main one first. Raises ValueError where it names none."""
        first: Any = None
        if (schema := _of(task, "schema_sql")) is not None:
            first = {"schema_sql": schema}
        elif (path := _of(task, "db_path")) is not None:
            first = {"path": path}
        elif (name := _of(task, "db_id")) is not None and self.settings.databases:
            if not isinstance(name, str) or not name or {"/", "\\", "\0"} & set(name) or ".." in name:
                raise ValueError(f"db_id {name!r} is no name of a database")
            first = {"path": self.settings.databases.replace("{db_id}", name)}
        if first is None:
            raise ValueError("it names no database (schema_sql, db_path or db_id)")
        variants = _of(task, "variants") or []
        if not isinstance(variants, (list, tuple)):
            raise ValueError(f"its variants are {type(variants).__name__}, not a list of databases")
        return [_spec(spec) for spec in (first, *variants)]

    def _ask(self, job: Mapping[str, Any]) -> dict[str, Any]:
        runner = self._free.get()
        try:
            if runner is None or not runner.alive:
                runner = None
                runner = _Runner(self.settings.memory_mb + HEADROOM_MB)
            return runner.ask(job, job["limits"]["wall"])
        finally:
            self._free.put(runner if runner is not None and runner.alive else None)

    def _verdict(self, said: Mapping[str, Any], spans: tuple[Span, ...]) -> Verdict:
        if "unscorable" in said:
            return self._unscorable(said["unscorable"])
        correct, evidence, own = bool(said["correct"]), str(said["evidence"]), self.settings
        if said["luck"]:
            correct = own.on_generated == "evidence"
            evidence = f"right on the given data, but {said['luck']}"
        score = float(correct)
        if own.reward == "arctic":
            score = arctic(correct, said["executes"], own.executes)
        elif own.reward == "soft-f1":
            score = 1.0 if correct else min(float(said.get("f1", 0.0)), 0.99)
        elif own.reward == "r-ves" and correct and "ratio" in said:
            score = r_ves(said["ratio"])
            evidence += f"; {said['ratio']:.3g} times as fast as the reference"
        return self._scored(correct, evidence, score, said.get("answer"), spans)

    def _scored(
        self, right: bool, why: str, score: float | None = None, answer: str | None = None, spans: tuple[Span, ...] = ()
    ) -> Verdict:
        value = float(right) if score is None else score
        return Verdict(self.name, self.version, Status.SCORED, value, right, _short(why), answer=answer, spans=spans)

    def _unscorable(self, why: str) -> Verdict:
        return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=_short(why))

    def close(self) -> None:
        """End the child processes; a later answer starts new ones."""
        for _ in range(self.settings.workers):
            runner = self._free.get()
            if runner is not None:
                runner.kill()
        for _ in range(self.settings.workers):
            self._free.put(None)

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.settings = state["settings"]
        self._fill()


def _short(why: str) -> str:
    return why if len(why) <= LONGEST_EVIDENCE else why[: LONGEST_EVIDENCE - 3] + "..."


def _of(task: Task, name: str) -> Any:
    """A fact of the task, from its environment or else from its other columns; None where it has none."""
    found = task.environment.get(name)
    return task.meta.get(name) if found is None else found


def _spec(found: Any) -> dict[str, Any]:
    """A database's spec with what tells that a file has changed. Raises ValueError."""
    if isinstance(found, str):
        found = {"path": found} if found.endswith((".sqlite", ".sqlite3", ".db")) else {"schema_sql": found}
    if not (isinstance(found, Mapping) and (isinstance(found.get("schema_sql"), str) or isinstance(found.get("path"), str))):
        raise ValueError(f"a database is named as {str(found)[:60]!r}, not by schema_sql or path")
    spec = dict(found)
    if "path" in spec and Path(spec["path"]).is_file():
        stat = Path(spec["path"]).stat()
        spec |= {"size": stat.st_size, "changed": stat.st_mtime_ns}
    return spec
