"""One worker process as its owner sees it.

Invariants: an order is answered, or the worker is dead and `Lost` says how: there is no waiting for what cannot come; after
an exception the process is gone, so no answer is ever taken for that of another order.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gfcr.child import Child
from gfcr.engine.contract import Prefilled, Request, Usage
from gfcr.engine.workers.serve import BEAT, Order, Parcel, Reply

START_SECONDS = 1200.0
"""Longest a worker may take to import torch and build its engine: seconds, minutes on a machine with better things to do."""
_COUNTS = ("prefilled", "decoded", "scored", "cached")


class Lost(Exception):
    """A worker is gone; the text says how."""


class Remote:
    """A worker process, what it was given, and what it said last."""

    def __init__(self, index: int, numbers: Sequence[int], share: int, seconds: float) -> None:
        """`numbers`: arguments of `serve`; `share`: the weights' descriptor; `seconds`: longest silence of a process at work."""
        self.index, self._numbers, self._share, self._seconds = index, numbers, share, seconds
        self.pending: list[Request] = []
        """Accepted and not yet sent."""
        self.live: dict[str, int] = {}
        """Requests the process has -> tokens it has sampled and not returned."""
        self.prefilled: list[Prefilled] = []
        self.starts = 0
        self._usage, self._before = Usage(), Counter[str]()
        """Of this process, and of the dead ones before it."""
        self._child: Child | None = None

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def pid(self) -> int | None:
        """Process id; None while there is no process."""
        return self._child.process.pid if self._child is not None else None

    def start(self, parcel: Parcel) -> None:
        """Begin a process; `receive` then gives the fingerprint of the weights it serves."""
        self.starts += 1
        self._child = Child("gfcr.engine.workers.serve", self._numbers, [self._share])
        self._child.bound_sending(self._seconds)
        self._put(parcel)

    def send(self, call: str, args: tuple[Any, ...] = ()) -> None:
        """Give an order, with every pending request before it. Raises Lost."""
        requests, self.pending = tuple(self.pending), []
        self.live |= dict.fromkeys([r.id for r in requests], 0)
        self._put(Order(requests, call, args))

    def receive(self, seconds: float | None = None) -> Any:
        """The value of the oldest unanswered order. Raises Lost, or what the worker raised."""
        child = self._child
        if child is None:
            raise Lost(f"worker {self.index} has no process")
        try:
            while True:
                if not child.pipe.poll(seconds or self._seconds):
                    raise Lost(f"worker {self.index} made no progress for {seconds or self._seconds:g} s and was killed")
                message = child.pipe.recv()
                if message != BEAT:
                    break
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise Lost(f"worker {self.index} {child.fate()}") from error
        except BaseException:
            child.kill()
            raise
        reply: Reply = message
        self._usage = reply.usage
        self.prefilled += reply.prefilled
        self.live = {name: reply.unsent.get(name, 0) for name in self.live}
        if reply.error is not None:
            raise reply.error
        return reply.value

    def bury(self) -> dict[str, int]:
        """End the process if it has not; returns its requests and the tokens lost with each. What it counted is kept."""
        if self._child is not None:
            self._child.kill()
            self._child = None
        lost, self.live = self.live, {}
        self._before.update({name: getattr(self._usage, name) for name in _COUNTS})
        self._usage = Usage(kv_peak=self._usage.kv_peak, live_peak=self._usage.live_peak)
        return lost

    def usage(self) -> Usage:
        """All processes of this worker so far."""
        now = self._usage
        counts = {name: self._before[name] + getattr(now, name) for name in _COUNTS}
        return Usage(**counts, kv_peak=now.kv_peak, live_peak=now.live_peak)

    def fate(self) -> str:
        """How its process ended, in words."""
        return "never started" if self._child is None else self._child.fate()

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _put(self, message: Any) -> None:
        assert self._child is not None
        try:
            self._child.pipe.send(message)
        except BlockingIOError as error:
            self._child.kill()
            raise Lost(f"worker {self.index} took no order for {self._seconds:g} s and was killed") from error
        except OSError as error:
            raise Lost(f"worker {self.index} {self._child.fate()}") from error
        except BaseException:
            self._child.kill()
            raise
