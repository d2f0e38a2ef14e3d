"""Stand-ins on one side for objects on the other: classes, instances, functions, modules, errors.

Invariants: a stand-in of an instance of a builtin's subclass is that builtin here, compared and added up here; where the line is
strict (see Objects), no stand-in lets the other side decide a comparison with plain data, neither at once nor by arithmetic that tells
it what it is compared with (`abs(f(x) - 5) < 1e-6`).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from typing import Any

    from gfcr.sandbox.inside.objects import Objects

CONTAINERS = (list, dict, set, bytearray)
COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
_TWO = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "xor", "or")
ARITHMETIC = tuple(f"__{sign}{name}__" for name in _TWO for sign in ("", "r", "i") if (sign, name) != ("i", "divmod"))
_OUTPUT = (
    *(
        "__len__",
        "__iter__",
        "__next__",
        "__reversed__",
        "__getitem__",
        "__setitem__",
        "__delitem__",
        "__contains__",
        "__bool__",
    ),
    *(
        "__str__",
        "__repr__",
        "__format__",
        "__hash__",
        "__int__",
        "__float__",
        "__index__",
        "__complex__",
        "__round__",
        "__abs__",
    ),
    *(
        "__neg__",
        "__pos__",
        "__invert__",
        "__enter__",
        "__exit__",
        "__call__",
        "__await__",
        "__trunc__",
        "__floor__",
        "__ceil__",
    ),
)
FORWARDED = (*COMPARISONS, *ARITHMETIC, *_OUTPUT)
_HELD = (
    *("__call__", "__enter__", "__exit__", "__await__", "__getitem__", "__setitem__", "__delitem__", "__len__", "__iter__"),
    *("__reversed__", "__bool__", "__str__", "__repr__", "__format__"),
)
"""Special methods that a builtin's subclass may have of its own; all others are the builtin's, here."""
_CONVERSIONS = (
    *(
        "__abs__",
        "__neg__",
        "__pos__",
        "__invert__",
        "__int__",
        "__float__",
        "__index__",
        "__complex__",
        "__round__",
        "__bool__",
    ),
    *("__trunc__", "__floor__", "__ceil__"),
)


class Proxy:
    """A stand-in of an instance or a function."""

    _gfcr: Objects
    _gfcr_handle: int

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_gfcr"):
            raise AttributeError(name)
        found = self._gfcr.get(self._gfcr_handle, name)
        if "_gfcr_refresh" not in self.__dict__ or not isinstance(found, Function):
            return found

        def method(*args: Any, **named: Any) -> Any:  # it may change what the container holds
            result = found(*args, **named)
            self._gfcr.again(self)
            return result

        return method

    def __setattr__(self, name: str, value: Any) -> None:
        self._gfcr.set(self._gfcr_handle, name, value)

    def __delattr__(self, name: str) -> None:
        self._gfcr.delete(self._gfcr_handle, name)

    def __reduce__(self) -> Any:
        raise TypeError("an object of the answer's cannot be copied by the tests")


class ProxyType(type):
    """The class of such stand-ins: itself the stand-in of a class."""

    _gfcr: Objects
    _gfcr_handle: int

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if "_gfcr_handle" not in body:
            raise TypeError("tests cannot derive a class from one of the answer's: set tests = 'together'")
        return super().__new__(cls, name, bases, body)

    def __call__(cls, *args: Any, **named: Any) -> Any:
        return cls._gfcr.call(cls._gfcr_handle, args, named)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_gfcr"):
            raise AttributeError(name)
        return cls._gfcr.get(cls._gfcr_handle, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        cls._gfcr.set(cls._gfcr_handle, name, value)

    def __iter__(cls) -> Any:
        return cls._gfcr.dunder(cls, "__iter__", ())

    def __getitem__(cls, key: Any) -> Any:
        return cls._gfcr.dunder(cls, "__getitem__", (key,))

    def __len__(cls) -> Any:
        return cls._gfcr.dunder(cls, "__len__", ())

    def __bool__(cls) -> bool:
        return True

    def __contains__(cls, item: Any) -> bool:
        return any(item is member or item == member for member in cls)


def class_of(objects: Objects, handle: int, name: str, bases: list[Any], own: list[str]) -> type:
    """A stand-in of a class that is no error."""
    standard = [b for b in bases if isinstance(b, type) and not isinstance(b, ProxyType)]
    data = next((builtin for b in standard for builtin in b.__mro__ if builtin in _DATA), None)
    parents = [b for b in bases if isinstance(b, ProxyType)]
    held = data is not None or any(issubclass(p, _DATA) for p in parents)
    body: dict[str, Any] = {"_gfcr": objects, "_gfcr_handle": handle, "__module__": "the answer"}
    for special in own:
        if special in (_HELD if held else FORWARDED):
            body[special] = _special(special)
    if "__eq__" in own and "__hash__" not in own and not held:
        body["__hash__"] = None
    if held:
        root = data or next(b for p in parents for b in p.__mro__ if b in _DATA)
        if root in CONTAINERS:
            body |= {
                n: _mutator(n)
                for n in (*_public(root), "__setitem__", "__delitem__", "__iadd__", "__ior__")
                if hasattr(root, n)
            }
            body["_gfcr_refresh"] = _refresh
    order = (*(parents or (Proxy,)), *((data,) if data is not None else ()))
    try:
        return ProxyType(name, order, body)
    except TypeError:  # bases that do not combine here
        return ProxyType(name, (Proxy,), body)


_DATA = (int, float, str, list, tuple, dict, set, frozenset, bytes, bytearray, complex)


def _public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def _special(name: str) -> Any:
    """The stand-in's special method."""
    if name == "__call__":

        def call(self: Any, *args: Any, **named: Any) -> Any:
            return self._gfcr.call(self._gfcr_handle, args, named)

        return call
    if name == "__await__":

        def wait(self: Any) -> Any:
            yield from ()
            return self._gfcr.awaited(self)

        return wait

    def method(self: Any, *args: Any) -> Any:
        strict = self._gfcr.strict
        told = strict and args and not isinstance(args[0], (Proxy, ProxyType))
        if told and name in COMPARISONS:
            return NotImplemented
        if told and name == "__contains__":
            return any(item is args[0] or item == args[0] for item in self)
        result = self._gfcr.dunder(self, name, args)
        if not strict or result is NotImplemented or (name not in ARITHMETIC and name not in _CONVERSIONS):
            return result
        told = (told and name in ARITHMETIC) or any("_gfcr_told" in getattr(one, "__dict__", ()) for one in (self, *args))
        if told and not isinstance(result, Proxy):
            raise TypeError(
                f"{name} of an object of the answer's that was told plain data: what it gives is not taken for data"
            )
        if told:
            result.__dict__["_gfcr_told"] = True
        return result

    method.__name__ = name
    return method


def _mutator(name: str) -> Any:
    """A container's method: run on the other side, whose content is then taken over."""

    def method(self: Any, *args: Any, **named: Any) -> Any:
        objects = self._gfcr
        if name.startswith("__"):
            result = objects.dunder(self, name, args)
        else:
            result = objects.call(objects.known[id(objects.get(self._gfcr_handle, name))], args, named)
        objects.again(self)
        return result

    return method


def _refresh(self: Any, content: Any) -> None:
    if isinstance(self, list):
        list.__setitem__(self, slice(None), content)
    elif isinstance(self, bytearray):
        bytearray.__setitem__(self, slice(None), content)
    elif isinstance(self, dict):
        dict.clear(self)
        dict.update(self, content)
    else:
        set.clear(self)
        set.update(self, content)


def instance(objects: Objects, handle: int, kind: Any, base: str, content: Any) -> Any:
    """A stand-in of an instance; of a builtin's subclass with what it holds."""
    if not isinstance(kind, ProxyType):  # a standard class whose instances do not cross by value
        data = next((b for b in getattr(kind, "__mro__", ()) if b in _DATA), None)
        parents = (Proxy,) if data is None else (Proxy, data)
        kind = ProxyType(getattr(kind, "__name__", "object"), parents, _plain_body(objects, kind, data is not None))
    root: Any = next((b for b in kind.__mro__ if b in _DATA), None)
    if root is None or content is None:
        made = object.__new__(kind) if root is None else root.__new__(kind)
    elif root in CONTAINERS:
        made = root.__new__(kind)
        _refresh(made, content)
    else:
        made = root.__new__(kind, content)
    made.__dict__["_gfcr"] = objects
    made.__dict__["_gfcr_handle"] = handle
    if root in CONTAINERS:
        made.__dict__["_gfcr_refresh"] = lambda new: _refresh(made, new)
    return made


def _plain_body(objects: Objects, kind: Any, held: bool) -> dict[str, Any]:
    special = _HELD if held else FORWARDED
    own = [name for name in special if any(name in k.__dict__ for k in getattr(kind, "__mro__", ()) if k is not object)]
    return {"_gfcr": objects, "_gfcr_handle": -1, **{name: _special(name) for name in own}}


class Function(Proxy):
    """A stand-in of a function or a method."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._gfcr.call(self._gfcr_handle, args, named)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self


def function(objects: Objects, handle: int, name: str, asynchronous: bool, doc: str | None) -> Any:
    if asynchronous:

        async def stand_in(*args: Any, **named: Any) -> Any:
            return await objects.call(handle, args, named)

        stand_in.__name__, stand_in.__doc__ = name, doc
        return stand_in
    made = Function()
    made.__dict__.update(_gfcr=objects, _gfcr_handle=handle, __name__=name, __qualname__=name, __doc__=doc)
    return made


class Module(type(sys)):  # type: ignore[misc]
    """A stand-in of one of the answer's modules."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_gfcr", "__")):
            raise AttributeError(name)
        return self.__dict__["_gfcr"].get(self.__dict__["_gfcr_handle"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):  # the import system's own
            self.__dict__[name] = value
        else:
            self.__dict__["_gfcr"].set(self.__dict__["_gfcr_handle"], name, value)

    def __delattr__(self, name: str) -> None:
        self.__dict__["_gfcr"].delete(self.__dict__["_gfcr_handle"], name)


def module(objects: Objects, handle: int, name: str) -> Any:
    made = Module(name)
    made.__dict__.update(_gfcr=objects, _gfcr_handle=handle)
    return made


def exception_class(name: str, bases: list[Any]) -> type:
    """An error class of the answer's: a real one here, so that tests can catch it."""
    parents = tuple(b for b in bases if isinstance(b, type) and not isinstance(b, ProxyType))
    if not any(issubclass(b, BaseException) for b in parents):
        parents = (*parents, Exception)
    try:
        return type(name, parents, {"__module__": "the answer"})
    except TypeError:
        return type(name, (Exception,), {"__module__": "the answer"})
