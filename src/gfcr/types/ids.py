"""Derived ids. Invariant: an id is a pure function of what it names, never random, so the same run has the same ids."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np


def derive_id(*parts: str | int | bytes | None) -> str:
    """A 128-bit hex id of `parts`; lengths and types are part of the digest, so no two part lists collide by joining."""
    pieces: list[bytes] = []
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        pieces += (f"{type(part).__name__}{len(raw)}:".encode(), raw)
    return blake2b(b"".join(pieces), digest_size=16).hexdigest()


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
