"""The judged side of tests that run elsewhere: the answer's names, modules and objects, asked for one by one."""

from __future__ import annotations

import builtins
import os
import sys

from gfcr.sandbox.inside.judged import Printed, Solution
from gfcr.sandbox.inside.link import Fault
from gfcr.sandbox.inside.objects import Objects

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from typing import Any


class Played(Objects):
    """Answers the tests' side."""

    def __init__(self, solution: Solution, printed: Printed, fd: int, longest: int) -> None:
        super().__init__(fd, longest)
        self.solution, self.out = solution, printed
        sys.stdin = _Input(self)
        builtins.input = lambda prompt="": self.ask("input", str(prompt))[0]

    def answer(self, op: str, rest: list[Any]) -> list[Any]:
        if op == "load":
            self.solution.load()
            self.out.taken()
            return []
        if op == "names":
            found = self.solution.module.__dict__
            return [{name: self.tree(found[name]) for name in rest[0] if name in found}]
        if op == "module":
            __import__(rest[0])
            return [self.tree(sys.modules[rest[0]])]
        return super().answer(op, rest)

    def taken(self) -> str:
        return self.out.taken()

    def export(self, value: Any) -> Any:
        if isinstance(value, type(sys)) and getattr(value, "__file__", "") in self.solution.files:
            handle = self.handles.get(id(value))  # a file of the answer's, whatever it is called
            if handle is None:
                handle = self.handles[id(value)] = len(self.mine)
                self.mine.append(value)
                return {"o": [handle, "module", value.__name__]}
            return {"o": [handle]}
        return super().export(value)

    def fault(self, error: BaseException) -> list[Any]:
        found = self.solution.fault(error)
        if isinstance(error, Fault):
            return [{"e": [{"S": ["builtins", "RuntimeError"]}, [found.kind, found.name, found.text], ""]}, found.where]
        return [self.exception(error), found.where]


class _Input:
    """Stands for sys.stdin: asks the tests, who may have replaced theirs."""

    encoding, errors, closed, mode = "utf-8", "strict", False, "r"

    def __init__(self, side: Played) -> None:
        self._side = side

    def read(self, n: int = -1) -> str:
        return str(self._side.ask("stdin", "read", n)[0])

    def readline(self, n: int = -1) -> str:
        return str(self._side.ask("stdin", "readline", n)[0])

    def readlines(self) -> list[str]:
        return list(self)

    def __iter__(self) -> Any:
        return iter(self.readline, "")

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return 0


def run(plan: dict[str, Any]) -> Any:
    """Serve until the tests are done."""
    sys.stdout = printed = Printed(plan["output"] // 8)  # goes along with answers, escaped
    try:
        Played(Solution(plan), printed, 3, plan["longest"]).serve()
    finally:
        os._exit(0)
