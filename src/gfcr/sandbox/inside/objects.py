"""Objects across the line: plain data by value, everything else as a handle with a stand-in on the other side.

    {"o": [handle, kind, ...]}   an object of the sender's, described the first time    {"y": handle}   an object of the receiver's
    {"e": [class, args, text]}   an exception    {"S": [module, name]}   a standard class    {"M": name}   a standard module
    {"#": [n, tree]}   a mutable argument that later trees call {"@": n}: what a call changes in it is brought back

Invariants: a class derived from a builtin (`class I(int)`) is a builtin on the other side, with what it holds: comparison and
arithmetic are the receiver's. Under `strict`, which the tests' side has, a judged object never equals, orders against or computes to
plain data with plain data: it can pass a comparison only by being the data.
"""

from __future__ import annotations

import sys

from gfcr.sandbox.inside.link import Peer
from gfcr.sandbox.inside.standins import CONTAINERS, FORWARDED, class_of, exception_class, function, instance, module
from gfcr.sandbox.inside.wire import base_of, plain, stored, value_of

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from typing import Any

_OPEN = ("builtins", "collections", "collections.abc", "datetime", "decimal", "fractions", "enum", "abc", "uuid", "pathlib")


def standard(kind: type) -> bool:
    """Whether the class is the standard library's own and may be named across the line: data, or an error other than a test tool's."""
    home = kind.__module__
    root = home.partition(".")[0]
    if root not in sys.stdlib_module_names or root in ("unittest", "doctest") or home not in sys.modules:
        return False
    if getattr(sys.modules[home], kind.__qualname__, None) is not kind:
        return False
    return issubclass(kind, BaseException) or (home in _OPEN and kind.__name__ not in ("generator", "coroutine", "function"))


class Objects(Peer):
    """One side of a line over which objects go."""

    strict = False
    stops = True
    """Whether StopIteration may come out of a call: it would end the caller's own `map` or `zip` early, with nothing compared."""

    def __init__(self, fd: int, longest: int) -> None:
        super().__init__(fd, longest)
        self.mine: list[Any] = []
        self.handles: dict[int, int] = {}
        self.theirs: dict[int, Any] = {}
        self.known: dict[int, int] = {}
        """By id of a stand-in: the handle of what it stands for."""
        self.where: tuple[str, int] | None = None
        """Where the answer's last error came from."""

    # Sending

    def tree(self, value: Any) -> Any:
        return plain(value, self.export)

    def export(self, value: Any) -> Any:
        if (handle := self.known.get(id(value))) is not None and self.theirs.get(handle) is value:
            return {"y": handle}
        if isinstance(value, BaseException):
            return self.exception(value)
        if isinstance(value, type) and standard(value):
            return {"S": [value.__module__, value.__qualname__]}
        if isinstance(value, type(sys)) and value.__name__.partition(".")[0] in sys.stdlib_module_names:
            return {"M": value.__name__}
        base = None if isinstance(value, type) else base_of(type(value))
        content = plain(stored(value, base), self.export) if base is not None else None
        handle = self.handles.get(id(value))
        if handle is not None:
            return {"o": [handle, "again", content]} if base in CONTAINERS else {"o": [handle]}
        handle = self.handles[id(value)] = len(self.mine)
        self.mine.append(value)
        return {"o": [handle, *self.described(value, base, content)]}

    def described(self, value: Any, base: type | None, content: Any) -> list[Any]:
        if isinstance(value, type):
            bases = [self.export(b) for b in value.__bases__ if b is not object]
            own = [name for name in FORWARDED if any(name in kind.__dict__ for kind in _own(value))]
            return ["class", value.__name__, bases, own, issubclass(value, BaseException)]
        if isinstance(value, type(sys)):
            return ["module", value.__name__]
        code = getattr(value, "__code__", None)
        if isinstance(value, _FUNCTIONS):
            asynchronous = bool(getattr(code, "co_flags", 0) & 0x80)
            return ["function", str(getattr(value, "__name__", "")), asynchronous, getattr(value, "__doc__", None)]
        return ["instance", self.export(type(value)), base.__name__ if base else "", content]

    def exception(self, error: BaseException) -> Any:
        try:
            args = [plain(arg, self.export) for arg in error.args]
            text = str(error)
        except BaseException:
            args, text = [], "(its text cannot be had)"
        return {"e": [self.export(type(error)), args, text]}

    # Receiving

    def value(self, tree: Any) -> Any:
        return value_of(tree, self.bring)

    def bring(self, tree: dict[str, Any]) -> Any:
        ((tag, inside),) = tree.items()
        if tag == "y":
            return self.mine[inside]
        if tag == "S":
            return self.standard_class(*inside)
        if tag == "M":
            if inside.partition(".")[0] not in sys.stdlib_module_names:
                raise ValueError(f"no standard module: {inside!r}")
            __import__(inside)
            return sys.modules[inside]
        if tag == "N":
            return NotImplemented
        if tag == "e":
            kind, args, text = inside
            return self.made_exception(self.value(kind), [self.value(arg) for arg in args], text)
        if tag != "o":
            raise ValueError(f"unknown tag {tag!r}")
        handle, *about = inside
        if handle in self.theirs:
            if about and about[0] == "again":
                self.theirs[handle].__dict__["_gfcr_refresh"](self.value(about[1]))
            return self.theirs[handle]
        made = self.stand_in(handle, about)
        self.theirs[handle] = made
        self.known[id(made)] = handle
        return made

    def stand_in(self, handle: int, about: list[Any]) -> Any:
        kind = about[0]
        if kind == "class":
            _, name, bases, own, error = about
            found = [self.value(base) for base in bases]
            return exception_class(name, found) if error else class_of(self, handle, name, found, own)
        if kind == "module":
            return module(self, handle, about[1])
        if kind == "function":
            return function(self, handle, *about[1:])
        if kind == "instance":
            return instance(self, handle, self.value(about[1]), about[2], None if about[3] is None else self.value(about[3]))
        raise ValueError(f"unknown kind {kind!r}")

    def standard_class(self, home: str, name: str) -> type:
        if home.partition(".")[0] not in sys.stdlib_module_names or home.partition(".")[0] in ("unittest", "doctest"):
            raise ValueError(f"no standard class: {home}.{name}")
        __import__(home)
        found = getattr(sys.modules[home], name, None)
        if not isinstance(found, type) or not standard(found):
            raise ValueError(f"no standard class: {home}.{name}")
        return found

    def made_exception(self, kind: Any, args: list[Any], text: str) -> BaseException:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ValueError("no exception")
        error = kind.__new__(kind)
        error.args = tuple(args)
        for name in ("code", "value"):  # SystemExit, StopIteration keep theirs apart from args
            if hasattr(error, name) and args:
                setattr(error, name, args[0])
        return error

    # Asking

    def ask(self, op: str, *rest: Any) -> list[Any]:
        try:
            return super().ask(op, *rest)
        except StopIteration as end:
            if self.stops or (op == "dunder" and rest[1] == "__next__"):
                raise
            raise RuntimeError("StopIteration out of a call") from end

    def call(self, handle: int, args: Any, named: dict[str, Any]) -> Any:
        """Call their object; mutable arguments end as the call left them."""
        kept: list[Any] = []
        numbers: dict[int, int] = {}
        fresh: set[int] = set()

        def seen(value: Any, depth: int) -> Any:
            if type(value) not in CONTAINERS:
                return None
            place = id(value)
            if place in fresh:
                fresh.discard(place)
                return None
            if place in numbers:
                return {"@": numbers[place]}
            numbers[place] = len(kept)
            kept.append(value)
            fresh.add(place)
            return {"#": [numbers[place], plain(value, self.export, seen, depth)]}

        trees = [plain(arg, self.export, seen) for arg in args]
        answer, changed, printed = self.ask(
            "call", handle, trees, {key: plain(arg, self.export, seen) for key, arg in named.items()}
        )
        self.printed(printed)
        for arg in args:
            if "_gfcr_refresh" in getattr(arg, "__dict__", ()):
                self.again(arg)

        def known(tree: dict[str, Any]) -> Any:
            return kept[tree["@"]] if "@" in tree else self.bring(tree)

        for n, tree in changed:
            new = value_of(tree, known)
            old = kept[n]
            if isinstance(old, (list, bytearray)):
                old[:] = new
            else:
                old.clear()
                old.update(new)
        return value_of(answer, known)

    def dunder(self, proxy: Any, name: str, args: tuple[Any, ...]) -> Any:
        """A special method of their object."""
        tree, printed = self.ask("dunder", self.known[id(proxy)], name, [self.tree(arg) for arg in args])
        self.printed(printed)
        return self.value(tree)

    def again(self, proxy: Any) -> None:
        """Take over what their container holds now."""
        self.value(self.ask("again", self.known[id(proxy)])[0])

    def get(self, handle: int, name: str) -> Any:
        return self.value(self.ask("get", handle, name)[0])

    def set(self, handle: int, name: str, value: Any) -> None:
        self.ask("set", handle, name, self.tree(value))

    def delete(self, handle: int, name: str) -> None:
        self.ask("del", handle, name)

    def awaited(self, proxy: Any) -> Any:
        tree, printed = self.ask("await", self.known[id(proxy)])
        self.printed(printed)
        return self.value(tree)

    def printed(self, text: str) -> None:
        """What a call of theirs printed."""

    def taken(self) -> str:
        """What a call of ours printed."""
        return ""

    def error(self, parts: list[Any]) -> BaseException:
        tree, where = parts
        self.where = tuple(where) if where else None
        found = self.value(tree)
        return found if isinstance(found, BaseException) else RuntimeError("no error was sent")

    # Answering

    def allow(self, op: str, target: Any, name: str) -> None:
        """Raises PermissionError for what the other side may not do with an object of ours."""

    def answer(self, op: str, rest: list[Any]) -> list[Any]:
        target = self.mine[rest[0]]
        name = rest[1] if op in ("get", "set", "del", "dunder") else ""
        self.allow(op, target, name)
        if op == "call":
            return self._called(target, rest[1], rest[2])
        if op == "get":
            return [self.tree(getattr(target, name))]
        if op == "set":
            setattr(target, name, self.value(rest[2]))
            return []
        if op == "del":
            delattr(target, name)
            return []
        if op == "dunder":
            value = getattr(type(target), name)(target, *(self.value(arg) for arg in rest[2]))
            return [{"N": 0} if value is NotImplemented else self.tree(value), self.taken()]
        if op == "again":
            return [self.tree(target)]
        if op == "await":
            import asyncio

            async def whole() -> Any:
                return await target

            return [self.tree(asyncio.run(whole())), self.taken()]
        raise ValueError(f"unknown question {op!r}")

    def _called(self, target: Any, args: list[Any], named: dict[str, Any]) -> list[Any]:
        kept: dict[int, Any] = {}

        def other(tree: dict[str, Any]) -> Any:
            if "@" in tree:
                return kept[tree["@"]]
            if "#" in tree:
                n, inside = tree["#"]
                kept[n] = value_of(inside, other)
                return kept[n]
            return self.bring(tree)

        values = [value_of(tree, other) for tree in args]
        names = {key: value_of(tree, other) for key, tree in named.items()}
        places = {id(value): n for n, value in kept.items()}

        def content(value: Any) -> Any:
            top = [True]

            def seen(inner: Any, depth: int) -> Any:
                if top[0]:
                    top[0] = False
                    return None
                return {"@": places[id(inner)]} if id(inner) in places else None

            return plain(value, self.export, seen)

        before = {n: content(value) for n, value in kept.items()}
        result = target(*values, **names)
        changed = []
        for n, value in kept.items():
            after = content(value)
            if not _same(before[n], after):
                changed.append([n, after])
        tree = plain(result, self.export, lambda v, depth: {"@": places[id(v)]} if id(v) in places else None)
        return [tree, changed, self.taken()]

    def fault(self, error: BaseException) -> list[Any]:
        return [self.exception(error), None]


def _own(kind: type) -> list[type]:
    """The classes whose special methods are the class's own: of a builtin's subclass, those before the builtin."""
    base = base_of(kind)
    classes = kind.__mro__ if base is None else kind.__mro__[: kind.__mro__.index(base)]
    return [each for each in classes if each is not object]


def _same(a: Any, b: Any) -> bool:
    """Equal trees of equal types: 1 is not True, and a NaN is itself."""
    return repr(a) == repr(b)


class _Bound:
    def method(self) -> None: ...


_FUNCTIONS = (type(_same), type(len), type(_Bound().method), type("".__len__), type(str.join), type(object.__eq__))
