"""Verifiers that may hang, each in a child process that can be killed.

Invariants: one deadline per call, and its clock starts when the child starts the work, never while the call waits for a
child; a call that hangs, kills its process, raises or returns rubbish is UNSCORABLE with the evidence, and the next call gets
a fresh child; children (with whatever they started) die with `close`, with the wrapper, and with this process (gfcr.child).
"""

from __future__ import annotations

import pickle
import queue
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from gfcr.child import Child
from gfcr.errors import ConfigError
from gfcr.filter.slots import StepScorer, Verifier
from gfcr.types import Status, StopReason, Task, Verdict

START_SECONDS = 120.0
"""Longest a child may take to import what the verifier needs, or to take up a call."""
in_child = False
"""Whether this process is such a child: there a script is loaded for its functions, and must start no run."""


class Broken(Exception):
    """A call that gave no answer; the text is the evidence."""


class _Child(Child):
    """One process that holds a copy of the verifier."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(__name__)
        try:
            self.pipe.send_bytes(payload)
            if not self.pipe.poll(START_SECONDS):
                raise Broken(f"its process did not start within {START_SECONDS:g} s")
            kind, text = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise Broken(f"its process {self.fate()} before its first call") from error
        except Broken:
            self.kill()
            raise
        if kind != "ready":
            self.kill()
            raise Broken(text)

    def call(self, method: str, args: tuple[Any, ...], seconds: float) -> Any:
        """Raises Broken; the child is dead afterwards when it hung or died."""
        try:
            self.pipe.send((method, args))
            if not self.pipe.poll(START_SECONDS):
                self.kill()
                raise Broken(f"its process did not take the call within {START_SECONDS:g} s; killed")
            self.pipe.recv()  # the work starts now
            if not self.pipe.poll(seconds):
                self.kill()
                raise Broken(f"no verdict within {seconds:g} s; killed")
            kind, value = self.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise Broken(f"its process {self.fate()} during the call") from error
        if kind == "error":
            raise Broken(value)
        return value


class Killable:
    """Calls of one object's methods, each in a child; up to `workers` at once from as many threads."""

    bounded = True

    def __init__(self, inner: Any, seconds: float, workers: int = 1) -> None:
        self.name, self.seconds = str(inner.name), seconds
        try:
            self._payload = pickle.dumps(inner)
        except Exception as error:
            raise ConfigError(
                f"{self.name!r} cannot be sent to a process of its own: {error}",
                "keep only data on it and define its class in a module, or declare `bounded = True` when it can never hang",
            ) from error
        self._free: queue.LifoQueue[_Child | None] = queue.LifoQueue()
        self._workers = workers
        for _ in range(workers):
            self._free.put(None)

    def call(self, method: str, *args: Any) -> Any:
        """The method's answer. Raises Broken: it hung and was killed, its process died, it raised."""
        child = self._free.get()
        try:
            if child is None or not child.alive:
                child = None
                child = _Child(self._payload)
            return child.call(method, args, self.seconds)
        finally:
            self._free.put(child if child is not None and child.alive else None)

    def start(self) -> None:
        """Start the first child now, so that what cannot work there is said before the first call. Raises ConfigError."""
        child = self._free.get()
        try:
            child = child if child is not None and child.alive else _Child(self._payload)
        except Broken as error:
            child = None
            raise ConfigError(
                f"{self.name} does not work in a process of its own: {error}",
                'what it needs must be importable there; a script that starts a run does so under `if __name__ == "__main__":`',
            ) from None
        finally:
            self._free.put(child)

    def close(self) -> None:
        """End the children; a later call starts new ones."""
        for _ in range(self._workers):
            child = self._free.get()
            if child is not None:
                child.kill()
        for _ in range(self._workers):
            self._free.put(None)


class KillableVerifier(Killable):
    """A verifier or gate that cannot hang the run."""

    def __init__(self, inner: Verifier, seconds: float, workers: int = 1) -> None:
        super().__init__(inner, seconds, workers)
        self.version = inner.version

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        try:
            verdict = self.call("judge", task, text, stop)
        except Broken as broken:
            return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=str(broken))
        if not isinstance(verdict, Verdict):
            return Verdict(
                self.name, self.version, Status.UNSCORABLE, evidence=f"returned {type(verdict).__name__}, not a Verdict"
            )
        return verdict


class KillableSteps(Killable):
    """A step scorer that cannot hang the run; a call without an answer raises Broken."""

    def __init__(self, inner: StepScorer, seconds: float, workers: int = 1) -> None:
        super().__init__(inner, seconds, workers)

    def score(self, task: Task, text: str, stop: StopReason) -> Sequence[tuple[int, int, float | None]]:
        return list(self.call("score", task, text, stop))


def contained(judge: Any, seconds: float) -> Any:
    """`judge` itself when its class declares that it cannot hang (`bounded = True`), else the same in a child process."""
    if getattr(judge, "bounded", False):
        return judge
    return KillableSteps(judge, seconds) if hasattr(judge, "score") else KillableVerifier(judge, seconds)


def serve(handle: int) -> None:
    """The child: receive the object, then answer calls until the pipe closes."""
    global in_child
    in_child = True
    pipe = Connection(handle)
    try:
        inner = pickle.loads(pipe.recv_bytes())
    except Exception as error:
        pipe.send(("error", f"it cannot be loaded in a process of its own: {type(error).__name__}: {error}"))
        return
    pipe.send(("ready", ""))
    while True:
        try:
            method, args = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send("started")
        try:
            answer = ("value", getattr(inner, method)(*args))
            pickle.dumps(answer)
        except Exception as error:
            answer = ("error", f"{type(error).__name__}: {error}")
        pipe.send(answer)
