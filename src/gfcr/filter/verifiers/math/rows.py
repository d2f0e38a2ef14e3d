"""One row of `gfcr verify math` as a task and a text.

Columns: `gold` (a text, a number, a list of which any may match, or null) and `prediction` (the whole text of an answer, or null);
`id` is optional. A null prediction is the empty text, a null gold makes the row UNSCORABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gfcr.errors import ConfigError
from gfcr.types import Task


def case(row: Mapping[str, Any]) -> tuple[Task, str]:
    """The task and the text to judge. Raises ConfigError that names the missing column."""
    for column in ("gold", "prediction"):
        if column not in row:
            raise ConfigError(
                f"a row of `math` has no field {column!r}; it has {', '.join(map(str, row))}",
                "name the column with --map gold=COLUMN,prediction=COLUMN",
            )
    prediction = row["prediction"]
    if prediction is not None and not isinstance(prediction, str):
        raise ConfigError(f"`prediction` is {prediction!r}, which is no text", "give the answer's whole text, or null")
    return Task("math", str(row.get("prompt", row.get("id", ""))), row["gold"]), prediction or ""
