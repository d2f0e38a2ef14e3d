"""A row of `gfcr verify vision`: `kind` (`iou`, `mra`, `count`, `ocr`), `gold` (a box or a list of boxes; a number, perhaps with a unit; a
whole number; a text or several of which any may be met), `prediction`; for boxes perhaps `size` and `resized` ([width, height]); and any
setting of the verifier as a column (`layout`, `scale`, `right_at`, `metric`, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gfcr.errors import ConfigError
from gfcr.filter.verifiers.given import prediction, reference
from gfcr.filter.verifiers.vision.verifier import OWN, Kinds
from gfcr.types import Task


def case(row: Mapping[str, Any]) -> tuple[Task, str]:
    """The task and the text to judge. Raises ConfigError that names the field that is missing or wrong."""
    own = {name: row[name] for name in Kinds.model_fields if row.get(name) is not None}
    if own.get("kind") not in (None, "iou", "mra", "count", "ocr"):
        raise ConfigError(f"a vision row's kind is {own['kind']!r}", "write iou, mra, count or ocr")
    meta = {name: row[name] for name in ("size", "resized") if row.get(name) is not None}
    task = Task(
        "vision", str(row.get("prompt", "")), reference(row, "vision"), meta={**meta, OWN: own}, id=str(row.get("id", ""))
    )
    return task, prediction(row, "vision")
