"""Values as text: what judged code returns, in a form that the trusted side parses and never executes.

    null, true, false, numbers, "text", [list]        as in JSON; floats may be NaN, Infinity
    {"i": "-0x1f"} a long integer    {"d": [[k, v], ...]} dict    {"t": [...]} tuple    {"s": [...]} set    {"z": [...]} frozenset
    {"b": "00ff"} bytes    {"B": "00ff"} bytearray    {"c": [re, im]} complex    {"g": [start, stop, step]} range
    {"k": ["datetime", "date", [2020, 1, 1]]} a value of the standard library, with what builds it (CONSTRUCTED)

Invariant: data is read with the builtin types' own methods, never with those of a subclass, so a value is what it holds and not
what it says of itself.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing would double the start of a run
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

try:  # the C parts alone: importing json as a whole doubles the start of a run
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    class _Context:
        strict, memo = False, {}  # type: ignore[var-annotated]
        object_hook = object_pairs_hook = None
        parse_float, parse_int, parse_constant = float, int, float

    _scan = make_scanner(_Context())  # type: ignore[arg-type]
    _encode = make_encoder(None, None, encode_basestring_ascii, None, ":", ",", False, False, True)  # type: ignore[arg-type]

    def to_text(tree: Any) -> str:
        """JSON text of a tree of plain JSON values."""
        return "".join(_encode(tree, 0))

    def from_text(text: str) -> Any:
        """The tree. Raises ValueError where the text is none."""
        try:
            tree, end = _scan(text, 0)
        except StopIteration:
            raise ValueError("no value") from None
        if end != len(text):
            raise ValueError("more than one value")
        return tree

except (ImportError, TypeError):  # another Python than CPython, or one whose C parts changed
    pass

DEPTH = 200
"""Deepest nesting of a value."""
SMALL = 1 << 53
CONSTRUCTED: dict[tuple[str, str], Callable[[Any], list[Any]]] = {
    ("datetime", "date"): lambda v: [v.year, v.month, v.day],
    ("datetime", "datetime"): lambda v: [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond],
    ("datetime", "time"): lambda v: [v.hour, v.minute, v.second, v.microsecond],
    ("datetime", "timedelta"): lambda v: [v.days, v.seconds, v.microseconds],
    ("decimal", "Decimal"): lambda v: [str(v)],
    ("fractions", "Fraction"): lambda v: [v.numerator, v.denominator],
    ("uuid", "UUID"): lambda v: [str(v)],
    ("pathlib", "PosixPath"): lambda v: [str(v)],
    ("pathlib", "PurePosixPath"): lambda v: [str(v)],
    ("collections", "Counter"): lambda v: [dict(v)],
    ("collections", "OrderedDict"): lambda v: [dict(v)],
    ("collections", "defaultdict"): lambda v: [None, dict(v)],
    ("collections", "deque"): lambda v: [list(v)],
}
"""Standard classes that cross by value: what their constructor takes. Times with a zone are none of them."""
_TAGS: dict[type, str] = {tuple: "t", set: "s", frozenset: "z"}
_DATA = (int, float, str, list, tuple, dict, set, frozenset, bytes, bytearray, complex)


class NotPlain(Exception):
    """The value is no plain data; the text says what it is."""


def base_of(kind: type) -> type | None:
    """The builtin data type that a class is or derives from."""
    return next((base for base in _DATA if issubclass(kind, base)), None)


def stored(value: Any, base: type) -> Any:
    """What an instance of a subclass of a builtin holds, as the builtin."""
    if base is int:
        return int.__index__(value)
    if base is float:
        return float.__float__(value)
    if base is str:
        return str.__str__(value)
    if base is dict:
        return dict(dict.items(value))
    if base is complex:
        return complex(complex.__add__(value, 0j))
    if base in (bytes, bytearray):
        return base(memoryview(value))
    return base(base.__iter__(value))  # type: ignore[attr-defined]


def plain(value: Any, other: Callable[[Any], Any], seen: Callable[[Any, int], Any] | None = None, depth: int = 0) -> Any:
    """A JSON tree of a value; `other(value)` gives the tree of what is no plain builtin (or raises NotPlain), `seen(container)` one
    for a container that is already known, or None. Raises NotPlain for a value nested too deeply, as a cyclic one is."""
    kind = type(value)
    if value is None or kind is bool or kind is str or kind is float:
        return value
    if kind is int:
        return value if -SMALL < value < SMALL else {"i": hex(value)}
    if depth > DEPTH:
        raise NotPlain(f"nested deeper than {DEPTH}")
    if seen is not None and (known := seen(value, depth)) is not None:
        return known
    if kind is list:
        return [plain(item, other, seen, depth + 1) for item in value]
    if kind is dict:
        return {"d": [[plain(k, other, seen, depth + 1), plain(v, other, seen, depth + 1)] for k, v in dict.items(value)]}
    if kind in (tuple, set, frozenset):
        return {_TAGS[kind]: [plain(item, other, seen, depth + 1) for item in value]}
    if kind is bytes or kind is bytearray:
        return {"b" if kind is bytes else "B": value.hex()}
    if kind is complex:
        return {"c": [value.real, value.imag]}
    if kind is range:
        return {"g": [plain(n, other) for n in (value.start, value.stop, value.step)]}
    place = (kind.__module__, kind.__qualname__)
    if place in CONSTRUCTED and _standard(*place) is kind and getattr(value, "tzinfo", None) is None:
        return {"k": [*place, [plain(arg, other, None, depth + 1) for arg in CONSTRUCTED[place](value)]]}
    return other(value)


def value_of(tree: Any, other: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The value of a tree; `other` makes it for tags that are not of this module. Raises ValueError, TypeError, KeyError or
    RecursionError for what is no such tree."""
    if type(tree) is list:
        return [value_of(item, other) for item in tree]
    if type(tree) is not dict:
        return tree
    tag = next(iter(tree), "")
    if other is not None and tag not in "idtszbBcgk":
        return other(tree)
    (inside,) = tree.values()
    if tag == "i":
        return int(inside, 16)
    if tag == "d":
        return {value_of(k, other): value_of(v, other) for k, v in inside}
    if tag in ("t", "s", "z"):
        return {"t": tuple, "s": set, "z": frozenset}[tag](value_of(item, other) for item in inside)
    if tag in ("b", "B"):
        return (bytes if tag == "b" else bytearray).fromhex(inside)
    if tag == "c":
        return complex(*inside)
    if tag == "g":
        return range(*(value_of(n) for n in inside))
    if tag == "k" and (inside[0], inside[1]) in CONSTRUCTED:
        return _standard(inside[0], inside[1])(*(value_of(arg, other) for arg in inside[2]))
    raise ValueError(f"unknown tag {tag!r}")


def _standard(module: str, name: str) -> Any:
    """A class of the standard library; imports its module."""
    if module not in sys.modules:
        __import__(module)
    return getattr(sys.modules[module], name, None)
