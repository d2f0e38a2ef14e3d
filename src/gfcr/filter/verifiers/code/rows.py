"""Rows of `gfcr verify code`: `solution` (text, or a map file name -> text), `tests`; perhaps `prompt`, `limits`, `reference_solution`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gfcr.errors import ConfigError
from gfcr.types import Task


def case(row: Mapping[str, Any]) -> tuple[Task, str]:
    """The task and the text to judge. Raises ConfigError for a row without `tests` or `solution`, or with one of another type."""
    for name in ("solution", "tests"):
        if name not in row:
            raise ConfigError(
                f"a code row has no field {name!r}; it has {', '.join(sorted(map(str, row))) or 'none'}",
                f"add it, or name the column that holds it (a column map {name}=COLUMN)",
            )
    solution, tests = row["solution"], row["tests"]
    if isinstance(solution, Mapping):
        solution = json.dumps(dict(solution))
    if not isinstance(solution, str | None):
        raise ConfigError(
            f"a code row's 'solution' is {type(solution).__name__}", "give text, or a map from file names to text"
        )
    reference: dict[str, Any] | None = None
    if tests is not None:
        beside = {"limits": row.get("limits"), "solution": row.get("reference_solution")}
        reference = {"tests": tests} | {key: value for key, value in beside.items() if value}
    return Task("code", str(row.get("prompt") or ""), reference, id=str(row.get("id") or "")), solution or ""
