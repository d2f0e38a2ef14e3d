"""Altered copies of a database: what is right on the given data by luck differs on one of them.

Invariants: primary keys, unique columns and columns whose texts are all different stay so; no NULL appears in a column that has none;
a value of a foreign key stays one of that column's values; the result depends on data and hints alone. Ours, after the idea of
test-suite accuracy (distilled database variants, arXiv:2010.02840).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from gfcr.filter.verifiers.sql.database import Hints

MOST_ROWS = 5_000
"""Tables of more rows are left as they are."""
DROP, RESAMPLE, INSERT = 0.2, 0.25, 0.5
"""Share of rows left out, share of cells that take another row's value, new rows as a share of the rows there are."""
LEAST_INSERTED = 3


@dataclass(frozen=True)
class _Column:
    key: bool
    """Part of the primary key, or unique by itself."""
    distinct: bool
    """No two rows have the same value, and none is a number with a fraction (of those, ties may be made)."""
    foreign: bool
    kinds: frozenset[str]
    """Of `text` and `number`, what its values are."""


def perturb(db: sqlite3.Connection, hints: Hints) -> None:
    """Alter all ordinary tables of a writable database in place."""
    master = db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
    for kind, name, _ in master:
        if kind == "trigger":
            db.execute(f"DROP TRIGGER {_quoted(name)}")
    virtual = {name for kind, name, sql in master if kind == "table" and str(sql).lstrip()[:14].upper() == "CREATE VIRTUAL"}
    for kind, name, _ in master:
        if (
            kind == "table"
            and not name.startswith("sqlite_")
            and not any(name == v or name.startswith(f"{v}_") for v in virtual)
        ):
            _table(db, name, Random(f"{hints.seed}/{name}"), hints.literals)


def _table(db: sqlite3.Connection, name: str, rng: Random, literals: Sequence[Any]) -> None:
    info = db.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
    if any(row[6] for row in info):  # generated columns cannot be written
        return
    names = [row[1] for row in info]
    listed = ", ".join(map(_quoted, names))
    rows = [list(row) for row in db.execute(f"SELECT {listed} FROM {_quoted(name)} LIMIT {MOST_ROWS + 1}")]
    if not 0 < len(rows) <= MOST_ROWS:
        return
    columns = _columns(db, name, info, rows)
    fresh = _inserted(rows, columns, rng, literals)
    for place, column in enumerate(columns):
        values = [row[place] for row in rows]
        if column.key:
            continue
        if column.distinct:
            rng.shuffle(values)
        else:
            values = [rng.choice(values) if rng.random() < RESAMPLE else value for value in values]
        for row, value in zip(rows, values):
            row[place] = value
    kept = [row for row in rows if rng.random() >= DROP] or rows[:1]
    db.execute("BEGIN")
    db.execute(f"DELETE FROM {_quoted(name)}")
    marks = ", ".join("?" * len(names))
    db.executemany(f"INSERT OR IGNORE INTO {_quoted(name)} ({listed}) VALUES ({marks})", [*kept, *fresh])
    db.execute("COMMIT")


def _columns(db: sqlite3.Connection, name: str, info: list[Any], rows: list[list[Any]]) -> list[_Column]:
    foreign = {row[3] for row in db.execute(f"PRAGMA foreign_key_list({_quoted(name)})")}
    unique = {row[1] for row in info if row[5]}
    for index in db.execute(f"PRAGMA index_list({_quoted(name)})").fetchall():
        if index[2]:
            unique |= {row[2] for row in db.execute(f"PRAGMA index_info({_quoted(index[1])})") if row[2]}
    out = []
    for place, row in enumerate(info):
        values = [r[place] for r in rows]
        real = any(isinstance(v, float) for v in values)
        distinct = len(set(values)) == len(values) and not real
        kinds = frozenset("text" if isinstance(v, str) else "number" for v in values if isinstance(v, (str, int, float)))
        out.append(_Column(row[1] in unique, distinct, row[1] in foreign, kinds))
    return out


def _inserted(rows: list[list[Any]], columns: list[_Column], rng: Random, literals: Sequence[Any]) -> list[list[Any]]:
    """New rows of values that occur, with constants of the query among them; empty where a key cannot be made up."""
    makers: list[Any] = []
    for place, column in enumerate(columns):
        values = [row[place] for row in rows]
        there = [value for value in values if value is not None]
        if not (column.key or column.distinct) or column.foreign or not there:
            makers.append(lambda i, values=values: rng.choice(values))
        elif all(isinstance(v, int) for v in there):
            makers.append(lambda i, there=there: max(there) + 1 + i)
        elif all(isinstance(v, str) for v in there):
            makers.append(lambda i, there=there: f"{rng.choice(there)}~{i}")
        else:
            return []
    out = []
    for i in range(max(LEAST_INSERTED, int(INSERT * len(rows)))):
        row = [make(i) for make in makers]
        if literals and rng.random() < 0.75:
            literal = rng.choice(literals)
            if isinstance(literal, (int, float)) and rng.random() < 0.5:
                literal += rng.choice((-1, 1))
            kind = "text" if isinstance(literal, str) else "number"
            fitting = [i for i, c in enumerate(columns) if not (c.key or c.foreign or c.distinct) and kind in c.kinds]
            if fitting:
                row[rng.choice(fitting)] = literal
        out.append(row)
    return out


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
