"""Runs an answer as a program of its own: standard input and output, exit code."""

from __future__ import annotations

import _io
import atexit
import builtins
import gc
import os
import sys

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


MANY = 20_000


def run(plan: dict[str, Any]) -> Callable[[], None]:
    """The program as a call, in a fresh `__main__`; a syntax error is raised as any program's. Nothing else holds its namespace, so that
    its objects go when the interpreter ends."""
    main = type(sys)("__main__")
    sys.argv[:] = [plan["entry"]]
    main.__dict__["__file__"] = plan["entry"]
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.path[0] = os.path.dirname(os.path.abspath(plan["entry"]))
    for name, _ in plan["modules"]:
        sys.modules.pop(name, None)

    def program() -> None:
        exec(compile(_text(plan["entry"]), plan["entry"], "exec", dont_inherit=True), main.__dict__)
        finish()

    return program


def _text(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def finish() -> None:
    """End at once where the interpreter's own end would show nothing: tearing down a forked interpreter copies most of its memory.

    Something to see: threads, `atexit`, another sys.stdout, and objects that do something when they go (files, generators, `__del__`)."""
    if (
        sys.stdout is not sys.__stdout__
        or sys.stderr is not sys.__stderr__
        or "threading" in sys.modules
        or atexit._ncallbacks()
    ):
        return
    new = gc.get_objects()  # what the supervisor made is frozen and not among them
    if len(new) > MANY or any(isinstance(o, _LIVELY) or hasattr(type(o), "__del__") for o in new):
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(0)


_LIVELY = (_io._IOBase, type(_ for _ in ()))
