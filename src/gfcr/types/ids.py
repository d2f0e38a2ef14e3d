"""Derived ids. Invariant: an id is a pure function of what it names, never random, so the same run has the same ids."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np


def derive_id(*parts: str | int | bytes | None) -> str:
    """A 128-bit hex id of `parts`; lengths and types are part of the digest, so no two part lists collide by joining."""
    return blake2b(_joined(parts), digest_size=16).hexdigest()


class IdFamily:
    """Ids that begin with the same parts: `IdFamily(a, b)(c)` equals `derive_id(a, b, c)` at less cost."""

    def __init__(self, *parts: str | int | bytes | None) -> None:
        self._begun = blake2b(_joined(parts), digest_size=16)

    def __call__(self, *parts: str | int | bytes | None) -> str:
        digest = self._begun.copy()
        digest.update(_joined(parts))
        return digest.hexdigest()


@lru_cache(maxsize=4096)
def id_family(*parts: str | int | bytes | None) -> IdFamily:
    """The family of `parts`; the last ones asked for are kept: the groups of a round come in turn, each with some families."""
    return IdFamily(*parts)


def _joined(parts: tuple[str | int | bytes | None, ...]) -> bytes:
    pieces: list[bytes] = []
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        pieces.append(b"%b%d:%b" % (part.__class__.__name__.encode(), len(raw), raw))
    return b"".join(pieces)


def frozen_array(values: Any, dtype: Any) -> np.ndarray:
    """`values` as a read-only 1-D array of `dtype` (a view where no conversion is needed)."""
    if type(values) is np.ndarray and values.dtype == dtype and values.ndim == 1 and not values.flags.writeable:
        return values
    array = np.asarray(values, dtype=dtype)
    if array.ndim != 1:
        raise ValueError(f"token arrays have one dimension, got shape {array.shape}")
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array
