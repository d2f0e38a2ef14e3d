"""A SQLite database to ask, read only; the final answer is a query.

Invariants: queries run in the SQL verifier's child processes, under its limits, and can change nothing; the reference query is never run
by the tool; equal queries on equal data give equal results, which are kept and not computed again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from pydantic import Field

from gfcr.context import Build
from gfcr.environments.calculator import owned
from gfcr.environments.contract import EnvironmentFault
from gfcr.environments.tool import Result, Tool, ToolEnvironment, ToolSettings
from gfcr.filter.verifiers.sql.database import Unusable
from gfcr.filter.verifiers.sql.verifier import Sql
from gfcr.registry import Faithfulness, Slot, method
from gfcr.types import StopReason, Task, Verdict

MOST_KEPT = 1024
"""Results kept."""


@method(
    "sqlite",
    Slot.ENVIRONMENT,
    title="SQLite database",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("binary correctness", "tool calls"),
)
class SQLite(ToolEnvironment):
    """The tool `sql(query)` gives a query's rows on the task's database, read only. A turn without a call is the final answer, whose query
    is judged by execution as by the verifier `sql`."""

    class Settings(ToolSettings):
        rows: int = Field(30, ge=1, le=10_000)
        """Rows shown of a result."""
        judge: Sql.Settings = Sql.Settings()
        """How the final query is judged, where databases lie, and what a query may take: the settings of the verifier `sql`."""

    name, version, quick = "sqlite", "1", False
    tool = Tool(
        "sql",
        "query",
        "Runs one SQL query on the database, read only, and returns its rows.",
        "One SELECT statement for SQLite",
    )

    def __init__(self, settings: Settings, sql: Sql, kept: Kept) -> None:
        super().__init__(settings)
        self.settings, self._sql, self._kept = settings, sql, kept

    @classmethod
    def maker(cls, settings: Settings, build: Build | None = None) -> Maker:
        return Maker(settings, Sql(settings.judge, build))

    def _begin(self, task: Task, seed: int) -> None:
        self._sql.database(task)

    def _do(self, argument: str) -> Result:
        assert self._task is not None
        if (known := self._kept.get(self._task.id, argument)) is not None:
            return known
        try:
            text, kind = self._sql.show(self._task, argument, self.settings.rows, 4 * self.settings.output_chars)
        except Unusable as error:
            raise EnvironmentFault("database", str(error)) from None
        result = Result(f"Error: {text}" if kind else text, kind)
        if kind != "killed":
            self._kept.put(self._task.id, argument, result)
        return result

    def _judge(self, task: Task, answer: str) -> Verdict:
        return owned(self, self._sql.judge(task, answer, StopReason.EOS))


class Kept:
    """Results by task and query, the last ones asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[str, str], Result] = OrderedDict()

    def get(self, task_id: str, query: str) -> Result | None:
        with self._lock:
            found = self._found.get((task_id, query))
            if found is not None:
                self._found.move_to_end((task_id, query))
            return found

    def put(self, task_id: str, query: str, result: Result) -> None:
        with self._lock:
            self._found[task_id, query] = result
            while len(self._found) > MOST_KEPT:
                self._found.popitem(last=False)


class Maker:
    """Makes environments that share child processes and results."""

    def __init__(self, settings: SQLite.Settings, sql: Sql) -> None:
        self.settings, self._sql, self._kept = settings, sql, Kept()

    def __call__(self) -> SQLite:
        return SQLite(self.settings, self._sql, self._kept)

    def close(self) -> None:
        self._sql.close()
