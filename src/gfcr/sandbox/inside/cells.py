"""An interpreter that is given cells one after the other: what one defines, the next ones find.

In this process there is nothing to protect. What it answers is data: what a cell printed, what its last expression was, what went wrong.
"""

from __future__ import annotations

import builtins
import os
import sys

from gfcr.sandbox.inside.judged import Printed
from gfcr.sandbox.inside.link import Answering, Gone

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from typing import Any

    Error = list[Any]

LONGEST_VALUE = 20_000
"""Characters of a last expression's text."""


class Cells(Answering):
    """Answers `cell` with a number and code by [what came out, the error or None]."""

    def __init__(self, printed: Printed, fd: int, longest: int) -> None:
        super().__init__(fd, longest)
        self.printed = printed
        main = type(sys)("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        self.names = main.__dict__

    def answer(self, op: str, rest: list[Any]) -> list[Any]:
        number, code = rest
        error = self.run(f"<cell {number}>", code)
        return [[self.printed.taken(), error]]

    def run(self, name: str, code: str) -> Error | None:
        """Execute a cell; the text of its last expression is printed, unless it is None."""
        import ast

        try:
            tree = ast.parse(code, name)
            last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            if last is not None:
                tree.body.pop()
            exec(compile(tree, name, "exec", dont_inherit=True), self.names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), self.names)
                if value is not None:
                    self.names["_"] = value
                    self.printed.write(f"{repr(value)[:LONGEST_VALUE]}\n")
        except Gone:
            raise
        except BaseException as error:  # SystemExit, KeyboardInterrupt: the cell's doing
            return _told(error, name)
        return None

    def fault(self, error: BaseException) -> list[Any]:
        return ["runtime", type(error).__name__, _text(error), None]


def _told(error: BaseException, name: str) -> Error:
    """Kind, class, text and line of the cell."""
    line = None
    if isinstance(error, SyntaxError) and error.filename == name:
        return ["syntax", type(error).__name__, str(error.msg)[:2000], error.lineno]
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return ["runtime", type(error).__name__, _text(error), line]


def _text(error: BaseException) -> str:
    try:
        return str.__str__(str(error))[:2000]
    except BaseException:
        return "(its text cannot be had)"


def run(plan: dict[str, Any]) -> Any:
    """Serve until the asker is gone."""
    import random

    random.seed(plan["seed"])
    sys.argv[:] = [""]
    sys.path[0] = ""
    sys.stdout = sys.stderr = printed = Printed(plan["output"] // 8)  # goes along with answers, escaped
    try:
        Cells(printed, 3, plan["longest"]).serve()
    finally:
        os._exit(0)
