"""Databases of other makes for the SQL verifier, in an importable module because they are built in its child process."""

from __future__ import annotations

import os
import signal

from gfcr.filter.verifiers.sql.database import Database, Failed, Hints, Limits, Spec, Table


class Constant:
    """Answers everything with one row, and `other` with another."""

    def __init__(self, spec: Spec, limits: Limits) -> None:
        self.key, self.size = "constant", 0

    def query(self, sql: str, limits: Limits, every: int = 1000) -> Table:
        return Table(1, [(sql == "other",)])

    def perturbed(self, hints: Hints) -> Database | None:
        return None

    def close(self) -> None: ...


class Dying(Constant):
    """Ends its process where the query says so."""

    def query(self, sql: str, limits: Limits, every: int = 1000) -> Table:
        if "die" in sql:
            os.kill(os.getpid(), signal.SIGKILL)
        if not sql:
            raise Failed("it is empty")
        return Table(1, [(1,)])
