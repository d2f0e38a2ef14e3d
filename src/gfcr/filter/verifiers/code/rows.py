"""Rows of `gfcr verify code`: `prompt`, `solution` (text, or a map file name -> text), `tests`, sometimes `limits`."""

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
            raise ConfigError(f"a code row has no {name!r}", f"name the column that holds it: --columns {name}=COLUMN")
    solution, tests = row["solution"], row["tests"]
    if isinstance(solution, Mapping):
        solution = json.dumps(dict(solution))
    if not isinstance(solution, str | None):
        raise ConfigError(
            f"a code row's 'solution' is {type(solution).__name__}", "give text, or a map from file names to text"
        )
    reference = None
    if tests is not None:
        reference = {"tests": tests} | {key: row[key] for key in ("limits", "reference_solution") if row.get(key)}
        if "reference_solution" in reference:
            reference["solution"] = reference.pop("reference_solution")
    return Task("code", str(row.get("prompt") or ""), reference, id=str(row.get("id") or "")), solution or ""
