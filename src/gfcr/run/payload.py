"""A step's payload: one little-endian buffer of token and batch arrays, written once and never changed.

Invariants: an array comes back with its dtype, shape and every bit (NaN payloads and -0.0 too); offsets are multiples of 8;
arrays read are read-only. Arrays that repeat long runs (masks, versions, temperatures, advantages) are stored as runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np

_PAD = [b"\0" * n for n in range(8)]
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_KINDS = "biufcSU"
_PROBE = 128
"""Entries looked at before the search for runs."""


def digest(data: bytes | memoryview, size: int = 32) -> str:
    """Hex blake2b."""
    return blake2b(data, digest_size=size).hexdigest()


class Payload:
    """The buffer while it is filled."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.size = 0

    def add(self, raw: bytes) -> int:
        """Append `raw`; returns its offset."""
        offset, length = self.size, len(raw)
        self.chunks.append(raw)
        if odd := -length % 8:
            self.chunks.append(_PAD[odd])
        self.size = offset + length + odd
        return offset

    def array(self, values: np.ndarray, where: str = "array") -> list[Any]:
        """Append an array of numbers, bools or fixed-width strings; returns its reference, JSON data for `read_array`."""
        if values.dtype.kind not in _KINDS:
            raise TypeError(
                f"{where} is an array of dtype {values.dtype}, which has no portable bytes; use numbers, bools or "
                "fixed-width strings"
            )
        head = [values.dtype.str, list(values.shape)]
        if values.size > 16 and values.itemsize in _BITS:
            bits = np.ascontiguousarray(values).reshape(-1).view(_BITS[values.itemsize])
            start = bits[:_PROBE]
            if 2 * np.count_nonzero(start[1:] != start[:-1]) > len(start):  # token ids, log-probabilities: not worth a look
                return [*head, self.add(values.tobytes())]
            ends = np.flatnonzero(bits[1:] != bits[:-1])
            if (len(ends) + 1) * (values.itemsize + 4) < values.nbytes // 2 and len(bits) < 2**31:
                counts = np.diff(ends, prepend=-1, append=len(bits) - 1).astype("<i4")
                starts = bits[np.concatenate([[0], ends + 1])]
                return [*head, self.add(counts.tobytes()), self.add(starts.tobytes()), len(counts)]
        return [*head, self.add(values.tobytes())]

    def bytes(self) -> bytes:
        return b"".join(self.chunks)


def read_array(buffer: bytes | memoryview, reference: Sequence[Any]) -> np.ndarray:
    """The array of a reference made by `Payload.array`, read-only. Raises ValueError when the buffer is too short."""
    dtype, shape = np.dtype(reference[0]), tuple(reference[1])
    if len(reference) == 3:
        flat = np.frombuffer(buffer, dtype, prod(shape), reference[2])
    else:
        counts_at, starts_at, runs = reference[2:]
        counts = np.frombuffer(buffer, "<i4", runs, counts_at)
        flat = np.repeat(np.frombuffer(buffer, _BITS[dtype.itemsize], runs, starts_at), counts).view(dtype)
    out = flat.reshape(shape)
    out.flags.writeable = False
    return out
