"""Fields of the rows that `gfcr verify` reads. Invariants: a field that is missing is an error, one that is null says something: no
gold is UNSCORABLE, no prediction is the empty answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gfcr.errors import ConfigError


def reference(row: Mapping[str, Any], kind: str) -> Any:
    """The row's `gold`. Raises ConfigError where it has no such field."""
    return _field(row, "gold", kind)


def prediction(row: Mapping[str, Any], kind: str) -> str:
    """The row's `prediction`, null as the empty text. Raises ConfigError where it has no such field or it is no text."""
    text = _field(row, "prediction", kind)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise ConfigError(
            f"a {kind} row's 'prediction' is {type(text).__name__}, not text", "write the answer's text as a JSON string"
        )
    return text


def _field(row: Mapping[str, Any], name: str, kind: str) -> Any:
    if name not in row:
        raise ConfigError(
            f"a {kind} row has no field {name!r}; it has {', '.join(sorted(map(str, row))) or 'none'}",
            f"add it, or name the column that holds it (a column map {name}=COLUMN)",
        )
    return row[name]
