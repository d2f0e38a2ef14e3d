"""One worker process, seen from the parent.

Invariants: a call's deadline starts when the work starts, never while it waits; nothing here waits without a bound, whatever the
process does (hangs, stops reading, is stopped, sends half an answer); an answer may hold plain data and verdicts only, so that what
ran in the process cannot run code here; after a call without an answer the process is dead.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import Any

from gfcr.child import Child
from gfcr.filter.pool import serve
from gfcr.filter.pool.serve import ANSWER_BYTES, resident_bytes

START_SECONDS = 120.0
"""Longest a process may take to import what the object needs."""
TAKE_SECONDS = 20.0
"""Longest a process that is ready may take to take up a call, and to hand over an answer it has begun to send."""
LOOKS = (0.05, 0.25)
"""Seconds between looks at the memory of a process that works: at first, later on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker process may take."""

    seconds: float = 10.0
    """Of one call, from the start of its work."""
    memory_mb: int | None = 4096
    """Memory it may hold; above it the process is killed. None = not looked at."""
    calls: int = 5_000
    """Calls after which the process is replaced by a fresh one."""
    growth_mb: int = 512
    """Memory it may have gained since it was ready before it is replaced, between calls."""


class Broken(Exception):
    """A call that gave no answer; the text is the evidence."""

    def __init__(self, evidence: str, seconds: float = 0.0) -> None:
        """`seconds`: how long the work had been going on."""
        super().__init__(evidence)
        self.seconds = seconds


class Late(Broken):
    """The work was killed at its deadline."""


class Lost(Broken):
    """The process ended during the work."""


class NotTaken(Broken):
    """The work never started: the process had ended before, or did not take it up."""


@dataclass(slots=True)
class Answer:
    """What a call gave."""

    value: Any
    seconds: float
    """Of the work, as the process measured it."""


@dataclass(slots=True, eq=False)
class Use:
    """What a process has done."""

    calls: int = 0
    ready_bytes: int = 0
    now_bytes: int = 0


@dataclass(eq=False)
class Worker:
    """One process that holds a copy of the object. Raises Broken when it does not get ready."""

    payload: bytes
    """The object, pickled."""
    limits: Limits
    use: Use = field(default_factory=Use)

    def __post_init__(self) -> None:
        self.child = child = Child(serve.__name__)
        try:
            child.bound_sending(START_SECONDS)
            _bound_receiving(child, TAKE_SECONDS)
            child.pipe.send_bytes(self.payload)
            child.bound_sending(TAKE_SECONDS)
            if not child.pipe.poll(START_SECONDS):
                raise Broken(f"its process did not start within {START_SECONDS:g} s")
            kind, text, _, self.use.ready_bytes = self._receive()
        except BlockingIOError:
            child.kill()
            raise Broken(f"its process took nothing within {START_SECONDS:g} s") from None
        except (EOFError, OSError) as error:
            raise Broken(f"its process {child.fate()} before its first call") from error
        except Broken:
            child.kill()
            raise
        if kind != "ready":
            child.kill()
            raise Broken(text)

    def call(self, request: bytes) -> Answer:
        """`request`: (method, args), pickled. Raises Broken: it raised; or it hung, died or sent rubbish and is dead now."""
        pipe, seconds = self.child.pipe, self.limits.seconds
        self.use.calls += 1
        try:
            pipe.send_bytes(request)
            if not pipe.poll(TAKE_SECONDS):
                raise BlockingIOError
            if pipe.recv_bytes(64) != b"started":
                raise OSError("it answered before it was asked")
        except BlockingIOError:
            self.child.kill()
            raise NotTaken(f"its process did not take the call within {TAKE_SECONDS:g} s; killed") from None
        except (EOFError, OSError) as error:
            raise NotTaken(f"its process {self.child.fate()} before the call") from error
        started = perf_counter()  # the work starts now
        try:
            if not self._wait(seconds):
                self.child.kill()
                raise Late(f"no verdict within {seconds:g} s; killed", seconds)
            kind, value, took, self.use.now_bytes = self._receive()
        except BlockingIOError:
            self.child.kill()
            raise Broken("its process stopped in the middle of its answer; killed", perf_counter() - started) from None
        except (EOFError, OSError) as error:
            raise Lost(f"its process {self.child.fate()} during the call", perf_counter() - started) from error
        if kind == "error":
            raise Broken(value, took)
        return Answer(value, took)

    def spent(self) -> bool:
        """Whether a fresh process should take its place: too many calls, or memory that it does not give back."""
        grown = self.use.now_bytes - self.use.ready_bytes
        return self.use.calls >= self.limits.calls or grown > self.limits.growth_mb * 2**20

    @property
    def alive(self) -> bool:
        return self.child.alive

    def kill(self) -> None:
        """For the thread that calls it."""
        self.child.kill()

    def end(self) -> None:
        """For any other thread: ends the process only; the one that waits for its answer sees it and closes the pipe."""
        self.child.end()

    def _wait(self, seconds: float) -> bool:
        """Whether an answer came in time. Raises Broken when the process holds too much memory."""
        pipe, end, (step, longest) = self.child.pipe, monotonic() + seconds, LOOKS
        while True:
            left = max(0.0, end - monotonic())
            if pipe.poll(min(step, left)):
                return True
            if left <= step:
                return False
            most = self.limits.memory_mb
            if most is not None and resident_bytes(self.child.process.pid) > most * 2**20:
                self.child.kill()
                raise Broken(f"it held more than {most} MB of memory; killed", seconds - left)
            step = min(2 * step, longest)

    def _receive(self) -> tuple[str, Any, float, int]:
        """Raises Broken for an answer that is none; the process is dead then."""
        data = self.child.pipe.recv_bytes(ANSWER_BYTES + 1024)
        try:
            kind, value, seconds, resident = _Plain(io.BytesIO(data)).load()
            return str(kind), value, float(seconds), int(resident)
        except Exception as error:
            self.child.kill()
            raise Broken(f"its answer cannot be read: {type(error).__name__}: {error}") from None


class _Plain(pickle.Unpickler):
    """Reads plain data, verdicts and numpy scalars; refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not travel")


_ALLOWED = {
    *((module, name) for module in ("gfcr.types", "gfcr.types.signals") for name in ("Verdict", "Status", "Span")),
    *(("builtins", name) for name in ("set", "frozenset", "complex", "bytearray", "range", "slice")),
    *((module, name) for module in ("numpy._core.multiarray", "numpy.core.multiarray") for name in ("scalar", "_reconstruct")),
    *(("numpy", name) for name in ("dtype", "ndarray")),
    ("fractions", "Fraction"),
    ("decimal", "Decimal"),
}


def _bound_receiving(child: Child, seconds: float) -> None:
    """Reading an answer of which only a part came raises BlockingIOError after this long."""
    with socket.socket(fileno=child.pipe.fileno()) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))
        ours.detach()
