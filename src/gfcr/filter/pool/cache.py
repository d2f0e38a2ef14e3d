"""Verdicts met before.

Invariants: bounded, the least recently used goes first; an UNSCORABLE verdict is never kept, since it says nothing about the answer; the
key holds all that a verdict may depend on: verifier and version, task and its reference with revision, how the answer ended, and the
text, or what the verifier itself says stands for it (`cache_key`).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import replace
from hashlib import blake2b
from threading import Lock
from typing import Any

from gfcr.types import Status, StopReason, Task, Verdict

LONGEST = 20_000
"""Characters of evidence and answer up to which a verdict is kept."""


class VerdictCache:
    """`size` verdicts at most; 0 keeps none. Thread-safe."""

    def __init__(self, verifier: Any, size: int) -> None:
        """`verifier` may have `cache_key(task, text, stop) -> str | None`: the canonical text that stands for `text` (verdicts with
        `spans` depend on the text itself and need none), None = ask me each time; and `cacheable = False`."""
        self.size = size if getattr(verifier, "cacheable", True) else 0
        self._about = (str(verifier.name), str(verifier.version))
        self._own = getattr(verifier, "cache_key", None)
        self._kept: OrderedDict[bytes, Verdict] = OrderedDict()
        self._lock = Lock()
        self.hits = 0

    def key(self, task: Task, text: str, stop: StopReason) -> bytes | None:
        """None = not to be kept."""
        if self.size == 0:
            return None
        try:
            stands = text if self._own is None else self._own(task, text, stop)
            if stands is None:
                return None
            parts = (*self._about, task.id, task.reference_rev, task.reference, task.meta, str(stop), stands)
            return blake2b(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        except Exception:  # a task that is no JSON data, or the verifier's own fault: asked each time, as without a cache
            return None

    def get(self, key: bytes | None) -> Verdict | None:
        """The verdict, which took no time and no tokens now; None for one not kept."""
        if key is None:
            return None
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            self.hits += 1
        return replace(found, seconds=0.0, tokens=0)

    def put(self, key: bytes | None, verdict: Verdict) -> None:
        if key is None or verdict.status is Status.UNSCORABLE or len(verdict.evidence) + len(verdict.answer or "") > LONGEST:
            return
        with self._lock:
            self._kept[key] = verdict
            self._kept.move_to_end(key)
            while len(self._kept) > self.size:
                self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)
