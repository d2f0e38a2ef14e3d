"""A row of `gfcr verify choice`: `gold` (text, or a list of which any may be met), `prediction`, and perhaps `choices` (texts in order,
or label -> text). The same as a math row with options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gfcr.filter.verifiers.given import prediction, reference
from gfcr.types import Task


def case(row: Mapping[str, Any]) -> tuple[Task, str]:
    """The task and the text to judge. Raises ConfigError that names the field that is missing."""
    meta = {"choices": row["choices"]} if row.get("choices") is not None else {}
    task = Task("choice", str(row.get("prompt", "")), reference(row, "choice"), meta=meta, id=str(row.get("id", "")))
    return task, prediction(row, "choice")
