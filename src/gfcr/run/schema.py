"""Tables of `run.sqlite` and their migrations.

Invariants: `PRAGMA user_version` is the number of migrations applied; a migration runs in one transaction and never changes
a value that a digest covers (it may add tables and columns); a file with a higher version is refused, never guessed at.
Rows are keyed by (step, number within the step), so a step's rows are inserted in order and read back in order.
"""

from __future__ import annotations

import sqlite3

from gfcr.run.failures import RunDirectoryError

APPLICATION_ID = 0x67666372
"""`gfcr` in ASCII; SQLite keeps it in the file's header."""

_V1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE steps (
  step INTEGER PRIMARY KEY, round INTEGER NOT NULL, version INTEGER NOT NULL, progress REAL NOT NULL,
  payload_length INTEGER NOT NULL, payload_hash TEXT NOT NULL,
  checkpoint TEXT, metrics TEXT NOT NULL, state_hash TEXT NOT NULL, rows_hash TEXT NOT NULL, head TEXT NOT NULL) STRICT;
CREATE TABLE states (step INTEGER, part INTEGER, body BLOB NOT NULL, PRIMARY KEY (step, part)) STRICT;
CREATE TABLE tasks (digest BLOB PRIMARY KEY, id TEXT NOT NULL, reference_rev TEXT NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE forms (
  step INTEGER, key INTEGER, kind TEXT NOT NULL, turn INTEGER NOT NULL, author TEXT NOT NULL, version INTEGER, law TEXT,
  role TEXT NOT NULL, source TEXT, template TEXT, layout TEXT NOT NULL, PRIMARY KEY (step, key)) STRICT, WITHOUT ROWID;
CREATE TABLE nodes (
  step INTEGER, key INTEGER, id TEXT NOT NULL, parent TEXT, form INTEGER NOT NULL, offset INTEGER NOT NULL,
  count INTEGER NOT NULL, checksum BLOB NOT NULL, PRIMARY KEY (step, key)) STRICT, WITHOUT ROWID;
CREATE TABLE rollouts (
  step INTEGER, key INTEGER, id TEXT NOT NULL, task_id TEXT NOT NULL, stop TEXT NOT NULL, body TEXT NOT NULL,
  path TEXT NOT NULL, train_path TEXT, digest BLOB NOT NULL, PRIMARY KEY (step, key)) STRICT, WITHOUT ROWID;
CREATE INDEX rollouts_id ON rollouts (id);
CREATE TABLE groups (
  step INTEGER, key INTEGER, id TEXT NOT NULL, task BLOB NOT NULL, task_id TEXT NOT NULL, round INTEGER NOT NULL,
  version INTEGER NOT NULL, planned INTEGER NOT NULL, stage INTEGER NOT NULL, state TEXT NOT NULL, body TEXT,
  PRIMARY KEY (step, key)) STRICT, WITHOUT ROWID;
CREATE INDEX groups_task ON groups (task_id);
CREATE TABLE members (
  step INTEGER, grp INTEGER, key INTEGER, rollout_step INTEGER NOT NULL, rollout INTEGER NOT NULL, role TEXT NOT NULL,
  in_baseline INTEGER NOT NULL, in_loss INTEGER NOT NULL, cohort TEXT NOT NULL, dropped TEXT, source TEXT,
  reward REAL, correct INTEGER, advantage REAL, body TEXT NOT NULL, PRIMARY KEY (step, grp, key)) STRICT, WITHOUT ROWID;
CREATE TABLE batches (step INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE decisions (
  step INTEGER, key INTEGER, slot TEXT NOT NULL, subject TEXT NOT NULL, action TEXT NOT NULL, task TEXT NOT NULL,
  body TEXT NOT NULL, PRIMARY KEY (step, key)) STRICT, WITHOUT ROWID;
"""

_V2 = """
CREATE TABLE environments (step INTEGER, environment TEXT NOT NULL) STRICT;
"""

_V3 = """
CREATE INDEX steps_checkpoint ON steps (step) WHERE checkpoint IS NOT NULL;
"""

MIGRATIONS: tuple[str, ...] = (_V1, _V2, _V3)
"""Entry i brings version i to i + 1. V2: environments a resume accepted although they differ from the run's own (after
which step, and what they were). V3: a run with few checkpoints finds the newest without walking its steps."""

ROWS: dict[str, tuple[str, ...]] = {
    "forms": ("key", "kind", "turn", "author", "version", "law", "role", "source", "template", "layout"),
    "nodes": ("key", "id", "parent", "form", "offset", "count", "checksum"),
    "rollouts": ("key", "id", "task_id", "stop", "body", "path", "train_path", "digest"),
    "groups": ("key", "id", "task", "task_id", "round", "version", "planned", "stage", "state", "body"),
    "members": (
        "grp",
        "key",
        "rollout_step",
        "rollout",
        "role",
        "in_baseline",
        "in_loss",
        "cohort",
        "dropped",
        "source",
        "reward",
        "correct",
        "advantage",
        "body",
    ),
    "batches": ("body",),
    "decisions": ("key", "slot", "subject", "action", "task", "body"),
}
"""Columns, beside `step`, of the tables a step's rows digest covers. Fixed for ever: digests depend on them."""

INSERTS = {
    table: f"INSERT INTO {table} (step, {', '.join(columns)}) VALUES (?{', ?' * len(columns)})"
    for table, columns in ROWS.items()
}
SELECTS = {table: f"SELECT {', '.join(columns)} FROM {table} WHERE step = ?" for table, columns in ROWS.items()}
_ORDER = {"members": "grp, key", "batches": "step"}
SELECTS_ORDERED = {table: f"{text} ORDER BY {_ORDER.get(table, 'key')}" for table, text in SELECTS.items()}


def version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection, where: str, migrations: tuple[str, ...] = MIGRATIONS) -> list[int]:
    """Bring the file up to date, one transaction a version; returns the versions reached, empty when nothing was to do.

    Raises RunDirectoryError for a version from the future.
    """
    check_version(db, where, len(migrations))
    reached = []
    for number in range(version(db) + 1, len(migrations) + 1):
        statements = [s for s in migrations[number - 1].split(";") if s.strip()]
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")  # part of the transaction
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        reached.append(number)
    return reached


def check_version(db: sqlite3.Connection, where: str, newest: int = len(MIGRATIONS)) -> None:
    """Refuse a file written by a newer gfcr."""
    found = version(db)
    if found > newest:
        raise RunDirectoryError(
            f"{where} has format version {found}, this gfcr reads up to {newest}",
            "open it with the gfcr that wrote it or a newer one (`pip install -U gfcr`)",
        )
