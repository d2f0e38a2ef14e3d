"""Settings that a task brings along in a column of its own, over those of the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from gfcr.filter.verdicts import short
from gfcr.settings import FrozenModel

K = TypeVar("K", bound=FrozenModel)


def own_settings(column: str, own: object, kinds: type[K], base: Mapping[str, Any]) -> K:
    """What `own`, the task's `column`, says, and `base` where it says nothing. Raises ValueError with the column's name."""
    if not isinstance(own, Mapping):
        raise ValueError(f"column {column!r} is {short(own)}, not a mapping of settings")
    try:
        return kinds.model_validate({**base, **own})
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "missing":
            raise ValueError(f"no {first['loc'][0]} is given, neither by a setting nor by the task") from None
        raise ValueError(f"column {column!r}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
