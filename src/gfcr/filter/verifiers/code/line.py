"""Questions to a judged process, and how it ended in words.

Invariants: what comes back is parsed as a tree and never made a value or executed here; a broken limit, a broken line and nonsense on
it are the judged code's failures, a broken sandbox is a SandboxError.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

from gfcr.filter.verifiers.code.report import Failure, Fault, short
from gfcr.sandbox.box import Box, Job, SandboxError
from gfcr.sandbox.inside.wire import NotPlain, plain
from gfcr.sandbox.pump import Run, pump


class Line:
    """Questions to a judged process."""

    def __init__(self, box: Box, job: Job) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.run = box.start(job, channels=[theirs.fileno()], channel=ours)
        self.ours = ours

    def ask(self, question: list[Any], seconds: float) -> list[Any] | Failure:
        """The answer's parts. Raises SandboxError."""
        run = self.run
        run.send(json.dumps(question).encode())
        in_time = pump([run], seconds, lambda: bool(run.frames) or run.over or run.cut_off)
        if not run.frames:
            if run.cut_off and not run.over:  # its code follows
                pump([run], 1.0, lambda: run.over)
            return fate(run, in_time, seconds) or Failure(Fault.RUNTIME, ended(run))
        try:
            kind, *parts = json.loads(run.frames.popleft())
            if kind == "=" and len(parts) <= 1:
                return parts or [None]
            what, name, text, where = parts
            place = (str(where[0]), int(where[1])) if where else None
            if what == "unplain":
                return Failure(Fault.WRONG, f"it returned {short(text, 160)}")
            return Failure(Fault.SYNTAX if what == "syntax" else Fault.RUNTIME, short(f"{name}: {text}", 200), where=place)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            run.cut_off = True
            return Failure(Fault.RUNTIME, "something that is no answer came on the channel")


def fate(run: Run, in_time: bool, seconds: float) -> Failure | None:
    """The limit that a run broke, if it broke one. Raises SandboxError for a fault of the sandbox's."""
    if run.ours:
        raise SandboxError(f"{run.breach}", "try again; if it lasts, look at the machine's memory and process limits")
    if run.breach is not None:
        kind = Fault.OUTPUT if "output" in run.breach else Fault.MEMORY if "MiB" in run.breach else Fault.RUNTIME
        return Failure(kind, run.breach)
    return None if in_time else Failure(Fault.TIME, f"not done after {seconds:.3g} s")


def ended(run: Run) -> str:
    if run.code is None:
        return "it closed its channel"
    return f"its process was ended by signal {-run.code}" if run.code < 0 else f"its process ended with exit code {run.code}"


@dataclass(frozen=True)
class Tree:
    """An expected value that came over a line, from the task's own program."""

    tree: Any


def tree(value: Any) -> Any:
    """A value of the tests as it would come over the line. Raises SandboxError for what is no plain data."""
    if isinstance(value, Tree):
        return value.tree
    try:
        return plain(value, _no_data)
    except NotPlain as error:
        raise SandboxError(f"a value of the tests is {error}", "give plain data") from None


def _no_data(value: Any) -> Any:
    raise NotPlain(f"{type(value).__name__}, no plain data")
