"""The judged answer as a module: loaded, then asked from outside.

In the process of the judged code there is nothing to protect: no expected value, no test, no verdict. What it answers is data that
somebody else compares.
"""

from __future__ import annotations

import builtins
import os
import sys

from gfcr.sandbox.inside.link import Answering, Fault, Gone
from gfcr.sandbox.inside.wire import NotPlain, base_of, plain, stored, value_of

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from typing import Any


class Printed:
    """Stands for sys.stdout: what a call prints goes to an asker who wants it, up to a length; the rest is dropped."""

    encoding, errors, newlines, closed, mode = "utf-8", "strict", None, False, "w"

    def __init__(self, most: int) -> None:
        """`most`: characters kept until somebody takes them."""
        self.most, self.size = most, 0
        self.parts: list[str] = []

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self.size < self.most:
            self.parts.append(text[: self.most - self.size])
            self.size += len(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def fileno(self) -> int:
        return 1

    def taken(self) -> str:
        text = "".join(self.parts)
        self.parts, self.size = [], 0
        return text


class Solution:
    """What the asker sees of the answer."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.files = {os.path.join(plan["cwd"], name) for name in plan["files"]}
        self.module: Any = None

    def load(self) -> None:
        """Execute the entry file as a module. Raises Fault of the kind `syntax` or `runtime`."""
        entry = self.plan["entry"]
        name = os.path.splitext(entry)[0].replace("/", ".")
        self.module = module = type(sys)(name)
        path = os.path.join(self.plan["cwd"], entry)
        module.__dict__["__file__"] = path
        module.__dict__["__builtins__"] = builtins
        sys.modules[name] = module
        sys.argv[:] = [entry]
        with open(path, "rb") as file:
            text = file.read()
        try:
            code = compile(text, path, "exec", dont_inherit=True)
        except Exception as error:  # SyntaxError, ValueError (NUL), RecursionError, MemoryError
            line = getattr(error, "lineno", None)
            message = getattr(error, "msg", None) or str(error)
            raise Fault("syntax", type(error).__name__, message[:2000], (entry, line) if line else None) from None
        try:
            exec(code, module.__dict__)
        except Gone:
            raise
        except BaseException as error:
            raise self.fault(error) from None

    def fault(self, error: BaseException) -> Fault:
        """The error, with the last line of the answer's own files that it went through."""
        if isinstance(error, Fault):
            return error
        kind, where = "runtime", None
        trace = error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if file in self.files:
                where = (os.path.relpath(file, self.plan["cwd"]), trace.tb_lineno)
            trace = trace.tb_next
        if isinstance(error, SyntaxError) and error.filename and error.filename in self.files:
            kind, where = "syntax", (os.path.relpath(error.filename, self.plan["cwd"]), error.lineno or 0)
        try:
            text = str.__str__(str(error))[:2000]
        except BaseException:
            text = "(its text cannot be had)"
        return Fault(kind, type(error).__name__, text, where)

    def find(self, path: str) -> Any:
        """A function by dotted name; classes on the way are instantiated without arguments, and a name the module lacks is looked for
        in its class `Solution`."""
        first, *rest = path.split(".")
        if not rest and not hasattr(self.module, first) and hasattr(self.module, "Solution"):
            first, rest = "Solution", [first]
        found = getattr(self.module, first)
        for name in rest:
            found = getattr(found() if isinstance(found, type) else found, name)
        return found


class Calls(Answering):
    """Answers calls with plain data: `load`, and `call` with a function's name and arguments."""

    def __init__(self, solution: Solution, printed: Printed, fd: int, longest: int) -> None:
        super().__init__(fd, longest)
        self.solution, self.printed = solution, printed

    def answer(self, op: str, rest: list[Any]) -> list[Any]:
        if op == "load":
            self.solution.load()
            return []
        name, args, named = rest
        function = self.solution.find(name)
        value = function(*value_of(args), **{key: value_of(tree) for key, tree in named.items()})
        self.printed.taken()
        return [plain(value, held)]

    def fault(self, error: BaseException) -> list[Any]:
        if isinstance(error, NotPlain):
            return ["unplain", "", str(error), None]
        found = self.solution.fault(error)
        return [found.kind, found.name, found.text, found.where]


def held(value: Any) -> Any:
    """The tree of what an instance of a builtin's subclass holds. Raises NotPlain for every other object."""
    base = base_of(type(value))
    if base is None:
        name = type(value).__name__
        raise NotPlain(f"{'an' if name[:1] in 'aeiou' else 'a'} {name}, which is no plain data")
    return plain(stored(value, base), held)


def run(plan: dict[str, Any]) -> Any:
    """Serve until the asker is gone."""
    sys.stdout = printed = Printed(plan["output"])
    try:
        Calls(Solution(plan), printed, 3, plan["longest"]).serve()
    finally:
        os._exit(0)
