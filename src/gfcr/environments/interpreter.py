"""One interpreter in a sandbox, given cells one after the other.

Invariants: each cell has its time, all together another; what the code does wrong is an `Outcome`, what the sandbox does wrong is a
SandboxError; after `close` no process of it is left.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from time import monotonic

from gfcr.filter.verifiers.code.line import Line
from gfcr.filter.verifiers.code.report import Failure, Fault, short
from gfcr.sandbox.box import Job
from gfcr.sandbox.settings import Limits, Sandbox
from gfcr.sandbox.stock import stock

_MODULES = ("wire", "link", "judged", "cells")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cell came to."""

    text: str
    """What it printed and the text of its last expression."""
    error: str = ""
    """Kind: the error's class, or `time`, `memory`, `output`, `died`; empty when there was none."""
    words: str = ""
    """The error in words, with its line."""
    dead: bool = False
    """The interpreter is gone with all that was defined in it."""


class Interpreter:
    """A started interpreter. Raises SandboxError where there is none to be had."""

    def __init__(self, sandbox: Sandbox, limits: Limits, seed: int) -> None:
        self._limits = limits
        self._box = stock(sandbox)(sandbox, limits)
        try:
            self._line = Line(self._box, Job({}, "", _MODULES, {"seed": seed}))
        except BaseException:
            self._box.close()
            raise
        self._left = limits.total_seconds

    def run(self, number: int, code: str) -> Outcome:
        """Execute a cell. Raises SandboxError."""
        started = monotonic()
        try:
            code.encode()
        except UnicodeEncodeError:
            return Outcome("", "SyntaxError", "SyntaxError: the code holds half a character")
        answer = self._line.ask(["?", "cell", number, code], max(0.01, min(self._limits.seconds, self._left)))
        self._left -= monotonic() - started
        if isinstance(answer, Failure):
            kind = "died" if answer.fault in (Fault.RUNTIME, Fault.WRONG, Fault.SYNTAX) else str(answer.fault)
            return Outcome("", kind, f"{answer.what}", True)
        try:
            text, error = answer[0]
            if error is None:
                return Outcome(str(text))
            _, name, said, line = error
        except (TypeError, ValueError):
            return Outcome("", "died", "something that is no answer came back", True)
        words = f"{name}: {said}" if said else str(name)
        if isinstance(line, int) and 1 <= line <= code.count("\n") + 1:
            words += f" (line {line}: {short(code.split(chr(10))[line - 1].strip(), 120)})"
        return Outcome(str(text), short(str(name), 60), words)

    def close(self) -> None:
        self._box.close()
        with contextlib.suppress(OSError):
            self._line.ours.close()
