"""Tables of `run.sqlite` and their migrations.

Invariants: `PRAGMA user_version` counts the migrations applied; a migration runs in one transaction and never changes
a value that a digest covers (it may add tables and columns); a file with a higher version is refused, never guessed at.
Rows are keyed by (step, number within the step), so a step's rows are inserted in order and read back in order.
"""

from __future__ import annotations

import sqlite3

from gfcr.run.failures import RunDirectoryError

APPLICATION_ID = 0x67666372
"""`gfcr` in ASCII; SQLite keeps it in the file's header."""

RETIRED = 3
"""Format versions of before the first release, which this gfcr does not read."""

_V4 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE steps (
  step INTEGER PRIMARY KEY, round INTEGER NOT NULL, version INTEGER NOT NULL, progress REAL NOT NULL,
  payload_length INTEGER NOT NULL, payload_hash TEXT NOT NULL,
  checkpoint TEXT, metrics TEXT NOT NULL, state_hash TEXT NOT NULL, rows_hash TEXT NOT NULL, head TEXT NOT NULL) STRICT;
CREATE INDEX steps_checkpoint ON steps (step) WHERE checkpoint IS NOT NULL;
CREATE TABLE states (step INTEGER, part INTEGER, body BLOB NOT NULL, PRIMARY KEY (step, part)) STRICT;
CREATE TABLE tasks (digest BLOB PRIMARY KEY, id TEXT NOT NULL, reference_rev TEXT NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE forms (
  step INTEGER, key INTEGER, kind TEXT NOT NULL, turn INTEGER NOT NULL, author TEXT NOT NULL, version INTEGER, law TEXT,
  role TEXT NOT NULL, source TEXT, template TEXT, layout TEXT NOT NULL, PRIMARY KEY (step, key)) STRICT, WITHOUT ROWID;
CREATE TABLE rollouts (
  step INTEGER, key INTEGER, id TEXT NOT NULL, grp INTEGER NOT NULL, PRIMARY KEY (step, key)) STRICT, WITHOUT ROWID;
CREATE INDEX rollouts_id ON rollouts (id);
CREATE TABLE groups (
  step INTEGER, key INTEGER, id TEXT NOT NULL, task BLOB NOT NULL, task_id TEXT NOT NULL, round INTEGER NOT NULL,
  version INTEGER NOT NULL, planned INTEGER NOT NULL, stage INTEGER NOT NULL, state TEXT NOT NULL, start INTEGER NOT NULL,
  length INTEGER NOT NULL, sum BLOB NOT NULL, body TEXT NOT NULL, PRIMARY KEY (step, key)) STRICT;
CREATE INDEX groups_task ON groups (task_id);
CREATE TABLE batches (step INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE decisions (
  step INTEGER, key INTEGER, slot TEXT NOT NULL, subject TEXT NOT NULL, action TEXT NOT NULL, task TEXT NOT NULL,
  body TEXT NOT NULL, PRIMARY KEY (step, key)) STRICT, WITHOUT ROWID;
CREATE VIEW members AS
  SELECT g.step, g.key AS grp, m.key,
    CASE json_type(m.value, '$[0]') WHEN 'array' THEN json_extract(m.value, '$[0][0]') ELSE g.step END AS rollout_step,
    CASE json_type(m.value, '$[0]') WHEN 'array' THEN json_extract(m.value, '$[0][1]') ELSE json_extract(m.value, '$[0]') END
      AS rollout,
    json_extract(m.value, '$[1]') AS role, json_extract(m.value, '$[2]') AS in_baseline,
    json_extract(m.value, '$[3]') AS in_loss, json_extract(m.value, '$[4]') AS cohort,
    json_extract(m.value, '$[5]') AS dropped, json_extract(m.value, '$[6]') AS source,
    json_extract(m.value, '$[7]') AS correct, json_extract(m.value, '$[8][3]') AS reward,
    json_extract(m.value, '$[9][0]') AS advantage, json_extract(m.value, '$[8]') AS signals
  FROM groups g, json_each(g.body, '$[3]') m;
"""

_V5 = """
CREATE TABLE environments (step INTEGER, environment TEXT NOT NULL) STRICT;
"""

MIGRATIONS: tuple[str, ...] = (_V4, _V5)
"""The first makes a new file of version RETIRED + 1, each further one raises the version by 1. V5: environments a resume accepted
although they differ from the run's own (after which step, and what they were)."""

ROWS: dict[str, tuple[str, ...]] = {
    "forms": ("key", "kind", "turn", "author", "version", "law", "role", "source", "template", "layout"),
    "rollouts": ("key", "id", "grp"),
    "groups": (
        "key",
        "id",
        "task",
        "task_id",
        "round",
        "version",
        "planned",
        "stage",
        "state",
        "start",
        "length",
        "sum",
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
_ORDER = {"batches": "step"}
SELECTS_ORDERED = {table: f"{text} ORDER BY {_ORDER.get(table, 'key')}" for table, text in SELECTS.items()}

GROUP_HEADS = SELECTS_ORDERED["groups"].replace(", body FROM", ", '' FROM")
"""The groups of a step without what makes their rows long."""


def version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection, where: str, migrations: tuple[str, ...] = MIGRATIONS) -> list[int]:
    """Bring the file up to date, one transaction a version; returns the versions reached, empty when nothing was to do.

    Raises RunDirectoryError for a version from the future or a retired one.
    """
    check_version(db, where, RETIRED + len(migrations))
    reached = []
    for number in range(max(version(db), RETIRED) + 1, RETIRED + len(migrations) + 1):
        statements = [s for s in migrations[number - RETIRED - 1].split(";") if s.strip()]
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


def check_version(db: sqlite3.Connection, where: str, newest: int = RETIRED + len(MIGRATIONS)) -> None:
    """Refuse a file written by a newer gfcr, or by one of before the first release."""
    found = version(db)
    if found > newest:
        raise RunDirectoryError(
            f"{where} has format version {found}, this gfcr reads up to {newest}",
            "open it with the gfcr that wrote it or a newer one (`pip install -U gfcr`)",
        )
    if 0 < found <= RETIRED:
        raise RunDirectoryError(
            f"{where} has format version {found}, of before the first release; this gfcr reads {RETIRED + 1} to {newest}",
            "start the run again in another directory, or open it with the gfcr that wrote it",
        )
