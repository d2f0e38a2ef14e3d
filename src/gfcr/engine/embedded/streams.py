"""Host-side state of running streams: numpy arrays indexed by slot, so that a decode step costs no Python per stream.

Invariants: a slot belongs to one stream until it is released; `written` counts positions stored in the pool, which is
always one less than the tokens known (the newest token goes through the model with the next step).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gfcr.engine.contract import Chunk, Request
from gfcr.engine.stops import Watch
from gfcr.types import StopReason

_STATE: dict[str, Any] = {
    "written": np.int64,
    "last": np.int64,
    "new": np.int64,
    "sent": np.int64,
    "start": np.int64,
    "end": np.int64,
    "key": np.uint64,
    "law": np.int64,
    "turn": np.int64,
    "eos": np.int64,
    "watched": np.bool_,
}
NEVER = 1 << 62
_LOGS: dict[str, Any] = {"ids": np.int32, "logprobs": np.float32, "entropy": np.float32, "mass": np.float32}


@dataclass(slots=True, eq=False)
class Stream:
    """One accepted request."""

    request: Request
    context: np.ndarray
    """int32[n], n >= 1."""
    end: int
    """Tokens it may sample at most."""
    end_reason: StopReason
    laws: tuple[int, ...]
    """Numbers of the request's laws."""
    eos: int
    slot: int = -1
    watch: Watch | None = None
    tokens: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    """Context and answer, set when the stream ends and is kept."""


class Streams:
    """The arrays; every attribute named in `_STATE` is [slots], in `_LOGS` [slots, longest answer so far]."""

    written: np.ndarray
    last: np.ndarray
    new: np.ndarray
    sent: np.ndarray
    start: np.ndarray
    end: np.ndarray
    key: np.ndarray
    law: np.ndarray
    turn: np.ndarray
    """New tokens at which the law changes next; NEVER for most."""
    eos: np.ndarray
    watched: np.ndarray
    ids: np.ndarray
    logprobs: np.ndarray
    entropy: np.ndarray
    mass: np.ndarray

    def __init__(self, slots: int) -> None:
        for name, dtype in _STATE.items():
            setattr(self, name, np.zeros(slots, dtype))
        for name, dtype in _LOGS.items():
            setattr(self, name, np.zeros((slots, 64), dtype))
        self._free = list(range(slots))[::-1]
        self.changing: dict[int, Stream] = {}
        """Streams whose law changes on the way, by slot; empty = nothing to look after."""

    def take(self, stream: Stream) -> int:
        """Give the stream a slot and set its state."""
        if not self._free:
            size = len(self.written)
            self._grow(2 * size, self.ids.shape[1])
            self._free = list(range(size, 2 * size))[::-1]
        slot = stream.slot = self._free.pop()
        self.written[slot] = self.new[slot] = self.sent[slot] = 0
        self.start[slot], self.end[slot] = len(stream.context), stream.end
        self.key[slot], self.law[slot], self.eos[slot] = stream.request.key, stream.laws[0], stream.eos
        self.turn[slot] = NEVER
        if stream.request.later:
            self.turn[slot], self.changing[slot] = stream.request.later[0][0], stream
        self.watched[slot] = stream.watch is not None
        return slot

    def change_laws(self, slots: np.ndarray) -> bool:
        """Give those of `slots` that reached a change the law of their next token; whether there are any."""
        due = slots[self.turn[slots] <= self.new[slots]].tolist()
        for slot in due:
            stream = self.changing[slot]
            later, new = stream.request.later, int(self.new[slot])
            passed = sum(start <= new for start, _ in later)
            self.law[slot] = stream.laws[passed]
            self.turn[slot] = later[passed][0] if passed < len(later) else NEVER
        return bool(due)

    def release(self, slot: int) -> None:
        self.changing.pop(slot, None)
        self._free.append(slot)

    def record(
        self,
        slots: np.ndarray,
        ids: np.ndarray,
        logprobs: np.ndarray,
        entropy: np.ndarray,
        mass: np.ndarray | None,
    ) -> None:
        """Append one token to each of `slots`."""
        at = self.new[slots]
        if at.max(initial=0) >= self.ids.shape[1]:
            self._grow(len(self.written), 2 * self.ids.shape[1])
        self.ids[slots, at], self.logprobs[slots, at], self.entropy[slots, at] = ids, logprobs, entropy
        if mass is not None:
            self.mass[slots, at] = mass
        elif self.changing:  # a stream may have truncated before, or will
            self.mass[slots, at] = 1.0
        self.new[slots] = at + 1
        self.last[slots] = ids

    def tokens(self, stream: Stream) -> np.ndarray:
        """int32: context and answer so far."""
        if stream.slot < 0 or len(stream.tokens):
            return stream.tokens if len(stream.tokens) else stream.context
        return np.concatenate([stream.context, self.ids[stream.slot, : self.new[stream.slot]]])

    def chunk(self, stream: Stream, version: int, stop: StopReason | None) -> Chunk:
        """The tokens since the stream's last chunk."""
        slot = stream.slot
        start, end = (self.sent[slot], self.new[slot]) if slot >= 0 else (0, 0)
        part = (slot, slice(start, end))
        tracks = {"entropy": self.entropy[part].copy()}
        if any(law.truncated for law in stream.request.laws):
            tracks["kept_mass"] = self.mass[part].copy()
        if slot >= 0:
            self.sent[slot] = end
        return Chunk(stream.request.id, self.ids[part].copy(), self.logprobs[part].copy(), version, tracks, stop)

    def _grow(self, slots: int, columns: int) -> None:
        for name in _STATE:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(slots - len(old), old.dtype)]))
        for name in _LOGS:
            old = getattr(self, name)
            new = np.zeros((slots, columns), old.dtype)
            new[: old.shape[0], : old.shape[1]] = old
            setattr(self, name, new)
