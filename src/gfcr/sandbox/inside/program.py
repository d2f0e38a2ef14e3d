"""Runs an answer as a program of its own: standard input and output, exit code."""

from __future__ import annotations

import builtins
import os
import sys

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from typing import Any


def run(plan: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The program's code and its namespace, a fresh `__main__`; a syntax error is raised as any program's."""
    main = type(sys)("__main__")
    sys.argv[:] = [plan["entry"]]
    main.__dict__["__file__"] = plan["entry"]
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.path[0] = os.path.dirname(os.path.abspath(plan["entry"]))
    for name, _ in plan["modules"]:
        sys.modules.pop(name, None)
    with open(plan["entry"], "rb") as file:
        return compile(file.read(), plan["entry"], "exec", dont_inherit=True), main.__dict__
