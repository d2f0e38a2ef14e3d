"""A row of `gfcr verify structured`: `kind` (`json`, the default, `list` or `regex`), `gold` (the value, the list or its text, the pattern),
`prediction`, and any settings of the verifier as columns (`ordered`, `rel_tol`, `abs_tol`, `ignore_case`, `extra`, `number_text`, `lenient`,
`separators`, `match`, `partial`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gfcr.errors import ConfigError
from gfcr.filter.verifiers.given import prediction, reference
from gfcr.filter.verifiers.structured.verifier import OWN, Kinds
from gfcr.types import Task


def case(row: Mapping[str, Any]) -> tuple[Task, str]:
    """The task and the text to judge. Raises ConfigError that names the field that is missing or wrong."""
    own = {name: row[name] for name in Kinds.model_fields if row.get(name) is not None}
    if own.get("kind", "json") not in ("json", "list", "regex"):
        raise ConfigError(f"a structured row's kind is {own['kind']!r}", "write json, list or regex")
    gold = reference(row, "structured")
    task = Task("structured", str(row.get("prompt", "")), gold, meta={OWN: own}, id=str(row.get("id", "")))
    return task, prediction(row, "structured")
