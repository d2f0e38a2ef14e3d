"""What the SQL verifier asks of a database, whatever its make.

Invariants: a query never changes a database; it ends within its limits or raises; what it raises says whether the query was not
allowed, took too much, or is no query, so that judged work is told from a reference that cannot be used. Imports nothing heavy:
this runs in the child process.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Value = None | int | float | str | bytes
Row = tuple[Any, ...]
"""Cells: None, int, float, str or bytes."""
Spec = Mapping[str, Any]
"""Where a database comes from, as JSON data: `{"schema_sql": text}` or `{"path": file}`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one query may take."""

    seconds: float = 3.0
    """Processor seconds."""
    wall: float = 12.0
    """Seconds on the clock."""
    rows: int = 200_000
    cells: int = 2_000_000
    """Rows times columns."""
    result_bytes: int = 64_000_000
    """Of all texts and blobs of the result."""
    value_bytes: int = 1_000_000
    """Longest text or blob, in the result and on the way to it."""
    memory_mb: int = 256


@dataclass(frozen=True, slots=True)
class Table:
    """A query's result."""

    columns: int
    rows: list[Row]
    seconds: float = 0.0
    """Processor seconds it took."""
    steps: int = 0
    """Steps of the database's machine, in multiples of what was asked for; 0 where the database counts none."""
    names: tuple[str, ...] = ()
    """Of the columns; empty where the database does not tell them."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What a generated copy of the data should try."""

    seed: str
    literals: Sequence[Value] = field(default_factory=tuple)
    """Constants of the reference query."""


class QueryError(Exception):
    """A query gave no result; the text says why, in words."""


class Refused(QueryError):
    """It asked for what no query may do: a write, a setting, a second statement, a function that is not allowed."""


class Runaway(QueryError):
    """It exceeded a limit."""


class Failed(QueryError):
    """It is no query that this database can answer."""


class Unusable(Exception):
    """The database itself cannot be used: nothing that is judged is to blame."""


class Database(Protocol):
    """One database, read only. A class of another make is named by its place, `module:Class`, and built as
    `Class(spec, limits)`; it raises Unusable when that cannot be done."""

    key: str
    """Same key, same data."""
    size: int
    """Bytes of memory it holds; 0 for one that lies in a file."""

    def query(self, sql: str, limits: Limits, every: int = 1000) -> Table:
        """The one statement's result. Raises QueryError. `every`: steps between two looks at the clock."""

    def perturbed(self, hints: Hints) -> Database | None:
        """A copy whose data are altered, within what keys and constraints allow; a function of data and hints alone. None where
        this cannot be done."""

    def close(self) -> None: ...


DIALECTS = {"sqlite": "gfcr.filter.verifiers.sql.sqlite:SQLite"}


def open_database(dialect: str, spec: Spec, limits: Limits) -> Database:
    """The database of a spec. Raises Unusable."""
    module, _, name = DIALECTS.get(dialect, dialect).partition(":")
    try:
        made: Database = getattr(importlib.import_module(module), name)(spec, limits)
    except (ImportError, AttributeError) as error:
        raise Unusable(f"there is no database class at {dialect!r}: {error}") from error
    return made
