"""Rows of `gfcr verify sql`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gfcr.errors import ConfigError
from gfcr.types import Task

DATABASE = ("schema_sql", "db_path", "db_id")
OPTIONS = ("ordered", "time_limit_s", "variants")


def case(row: Mapping[str, Any]) -> tuple[Task, str]:
    """`gold_sql` (a query, a list of which any may be met, or null: unscorable), `pred_sql` (a reply, or null: the empty one), and one
    of `schema_sql`, `db_path`, `db_id`; optional `ordered`, `time_limit_s`, `variants`, `question`. Raises ConfigError for a missing
    field."""
    for name in ("gold_sql", "pred_sql"):
        if name not in row:
            raise ConfigError(f"the row has no {name!r}", "name the column that holds it with the column map")
    if not any(row.get(name) for name in DATABASE):
        raise ConfigError(f"the row names no database ({', '.join(DATABASE)})", "give one, or map the column that holds it")
    environment = {name: row[name] for name in DATABASE if row.get(name) is not None}
    meta = {name: row[name] for name in OPTIONS if row.get(name) is not None}
    text = row["pred_sql"]
    if text is not None and not isinstance(text, str):
        raise ConfigError(f"pred_sql is {type(text).__name__}, not text", "give the reply as text, or null")
    prompt = str(row.get("question") or row.get("id") or "")
    return Task("sql", prompt, row["gold_sql"], environment=environment, meta=meta), text or ""
