"""Derived ids. Invariant: an id is a pure function of what it names, never random, so the same run has the same ids."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np


def derive_id(*parts: str | int | bytes | None) -> str:
    """A 128-bit hex id of `parts`; lengths and types are part of the digest, so no two part lists collide by joining."""
    digest = blake2b(digest_size=16)
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        digest.update(f"{type(part).__name__}{len(raw)}:".encode())
        digest.update(raw)
    return digest.hexdigest()


def frozen_array(values: Any, dtype: Any) -> np.ndarray:
    """`values` as a read-only 1-D array of `dtype` (a view where no conversion is needed)."""
    array = np.asarray(values, dtype=dtype)
    if array.ndim != 1:
        raise ValueError(f"token arrays have one dimension, got shape {array.shape}")
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array
