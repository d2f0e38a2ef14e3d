"""SQLite for the SQL verifier.

Invariants: a file is opened read only and immutable, so nothing is ever created beside it; a query may read, call functions that
are not in FORBIDDEN and recurse, and nothing else; it is stopped by processor time, by the clock, by rows, cells and bytes of its
result, by the longest value and by memory. One native step (a search in a long text, say) cannot be stopped from here: values are
kept short, and the process is killed from outside (worker.py).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from pathlib import Path

from gfcr.filter.verifiers.sql.database import Failed, Hints, Limits, Refused, Runaway, Spec, Table, Unusable, Value
from gfcr.filter.verifiers.sql.perturb import perturb

FORBIDDEN = frozenset(
    {"random", "randomblob", "load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "sqlite_log", "optimize"}
    | {"changes", "total_changes", "last_insert_rowid"}
)
"""Functions that draw, reach outside, or tell of the connection instead of the data."""
_HIDDEN = ("pragma_", "sqlite_stmt", "sqlite_dbpage", "dbstat", "bytecode", "tables_used", "fsdir")
"""Tables of these names tell of settings and storage, not of the data."""
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE})
_NAMED = ("CREATE_", "DROP_", "ALTER_", "INSERT", "UPDATE", "DELETE", "PRAGMA", "ATTACH", "DETACH", "TRANSACTION", "SAVEPOINT")
_NAMES = {
    getattr(sqlite3, name): name[7:].replace("_", " ")
    for name in dir(sqlite3)
    if name.startswith(tuple(f"SQLITE_{word}" for word in (*_NAMED, "ANALYZE", "REINDEX")))
}
"""What a query is told that it may not do."""
_BUILD_SECONDS = 30.0
"""Longest time a schema may take to run."""
MOST_COPIED = 16_000_000
"""Bytes of the largest database that is copied to be altered."""


class SQLite:
    """See database.Database. `{"schema_sql": text}` is built in memory, `{"path": file}` is opened where it is."""

    def __init__(self, spec: Spec, limits: Limits) -> None:
        self.key = json.dumps(dict(spec), sort_keys=True)
        self._spec, self._limits, self._denied, self._late = spec, limits, "", ""
        try:
            self._db = self._opened(spec)
        except sqlite3.Error as error:
            raise Unusable(f"the database cannot be used: {error}") from error
        self._guard()

    def _opened(self, spec: Spec) -> sqlite3.Connection:
        if "path" in spec:
            path = Path(str(spec["path"])).absolute()
            if not path.is_file():
                raise Unusable(f"there is no database file {path.name!r}")
            log = path.with_name(path.name + "-wal")
            if log.is_file() and log.stat().st_size:
                raise Unusable(f"{path.name} has a write-ahead log that is not merged yet: checkpoint it, or close its writer")
            db = _connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
            try:
                db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.Error:
                db.close()
                raise
            return db
        if "schema_sql" not in spec:
            raise Unusable("the task names no database: neither schema_sql nor path")
        db = _connect(":memory:")
        db.set_authorizer(_build_only)
        end = time.thread_time() + _BUILD_SECONDS
        db.set_progress_handler(lambda: time.thread_time() > end, 10_000)
        try:
            db.executescript(str(spec["schema_sql"]))
            if db.in_transaction:
                db.execute("COMMIT")
        except (sqlite3.Error, ValueError) as error:
            db.close()
            raise Unusable(f"its schema does not run: {error}") from error
        return db

    def _guard(self) -> None:
        """From here on the connection reads only, within the limits of size."""
        db, limits = self._db, self._limits
        db.set_authorizer(None)
        file = db.execute("PRAGMA database_list").fetchone()[2]
        self.size = 0 if file else _bytes(db)
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA temp_store = 2")  # sorters spill into memory, which is limited, and not into files
        db.execute(f"PRAGMA hard_heap_limit = {limits.memory_mb * 1_000_000}")
        for what, most in (
            (sqlite3.SQLITE_LIMIT_LENGTH, limits.value_bytes),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, limits.value_bytes),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
            (sqlite3.SQLITE_LIMIT_VDBE_OP, 1_000_000),
        ):
            db.setlimit(what, most)
        db.set_authorizer(self._allow)

    def query(self, sql: str, limits: Limits, every: int = 1000) -> Table:
        for decode in (str, _lenient):
            self._db.text_factory = decode
            try:
                return self._query(sql, limits, every)
            except sqlite3.OperationalError as error:
                if "decode" not in str(error) or decode is _lenient:
                    raise Failed(str(error)) from error
        raise AssertionError

    def _query(self, sql: str, limits: Limits, every: int) -> Table:
        sql = sql.rstrip("; \t\r\n")  # an empty statement after the query is none
        if not sql:
            raise Failed("it is empty")
        self._denied = self._late = ""
        db, started, calls = self._db, time.thread_time(), 0
        busy, late = started + limits.seconds, time.monotonic() + limits.wall

        def look() -> int:
            nonlocal calls
            calls += 1
            if time.thread_time() > busy:
                self._late = f"no end within {limits.seconds:g} s of work"
            elif time.monotonic() > late:
                self._late = f"no end within {limits.wall:g} s"
            return bool(self._late)

        db.set_progress_handler(look, every)
        try:
            with contextlib.closing(db.execute(sql)) as cursor:
                if cursor.description is None:
                    raise Failed("it returns no table")
                names = tuple(column[0] for column in cursor.description)
                rows = _fetched(cursor, len(names), limits)
        except sqlite3.Error as error:
            if self._late:
                raise Runaway(self._late) from error
            if self._denied:
                raise Refused(f"{self._denied} is not allowed") from error
            if "one statement" in str(error):
                raise Refused("a second statement is not allowed") from error
            if "too big" in str(error):
                raise Runaway(f"a value of more than {limits.value_bytes} bytes") from error
            if isinstance(error, sqlite3.OperationalError):
                raise
            raise Failed(str(error)) from error
        except sqlite3.Warning as error:
            raise Refused(str(error)) from error
        except MemoryError as error:
            raise Runaway(f"more than {limits.memory_mb} MB of memory") from error
        except (ValueError, OverflowError, UnicodeError) as error:
            raise Failed(str(error)) from error
        finally:
            db.set_progress_handler(None, 0)
        return Table(len(names), rows, time.thread_time() - started, calls * every, names)

    def _allow(self, action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
        if action in _ALLOWED:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and not (first or "").lower().startswith(_HIDDEN):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            if (name := (second or "").lower()) not in FORBIDDEN:
                return sqlite3.SQLITE_OK
            self._denied = self._denied or f"the function {name}()"
        elif action == sqlite3.SQLITE_READ:
            self._denied = self._denied or f"the table {first}"
        else:
            self._denied = self._denied or _NAMES.get(action, f"action {action}")
        return sqlite3.SQLITE_DENY

    def perturbed(self, hints: Hints) -> SQLite | None:
        db = _connect(":memory:")
        try:
            self._db.set_authorizer(None)
            if _bytes(self._db) > MOST_COPIED:
                db.close()
                return None
            self._db.backup(db)
            perturb(db, hints)
        except sqlite3.Error:  # a database that cannot be copied or altered (a virtual table, say) has no variant
            db.close()
            return None
        finally:
            self._db.set_authorizer(self._allow)
        made = object.__new__(SQLite)
        made.key = f"{self.key}#{hints.seed}"
        made._spec, made._limits, made._denied, made._late, made._db = self._spec, self._limits, "", "", db
        made._guard()
        return made

    def close(self) -> None:
        self._db.close()


def _connect(name: str, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(name, isolation_level=None, cached_statements=0, uri=uri)


def _bytes(db: sqlite3.Connection) -> int:
    """Of all its pages."""
    pages, size = (db.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size"))
    return int(pages * size)


def _fetched(cursor: sqlite3.Cursor, columns: int, limits: Limits) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    most, room = min(limits.rows, limits.cells // max(1, columns)), limits.result_bytes
    for row in cursor:
        if len(rows) == most:
            raise Runaway(f"more than {most} rows")
        for value in row:
            if isinstance(value, (str, bytes)):
                room -= len(value)
        if room < 0:
            raise Runaway(f"a result of more than {limits.result_bytes} bytes")
        rows.append(row)
    return rows


def _lenient(raw: bytes) -> str:
    """Text that is no UTF-8, every byte kept."""
    return raw.decode("utf-8", "surrogateescape")


def _build_only(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """While a schema runs: nothing outside this database."""
    outside = action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH)
    return sqlite3.SQLITE_DENY if outside or (second or "").lower() == "load_extension" else sqlite3.SQLITE_OK
