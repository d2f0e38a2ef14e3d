"""When a result counts as the expected one. Every rule of taste is in this file.

Values: numbers are equal by value (`5.0` is 5, `True` is 1); a tuple is as good as a list, since expected values come from JSON, which
has no tuples, and for the same reason a key that JSON would write as text equals that text; nothing else changes type: `"5"` is not
5, a set or an iterator is no list. NaN equals nothing but an expected NaN. With a tolerance, finite numbers may be off by it, relative
or absolute.

Output: blanks at line ends and empty lines at the end do not count; everything else does: leading blanks, letter case, line breaks,
the form of accented letters. With a tolerance, blank-separated words that are both numbers are compared as numbers.

Invariant: what judged code gave is compared as the tree that came over the line (gfcr.sandbox.inside.wire), in time proportional to
its length, up to sorting; it is never made a value here, whose keys could be chosen to collide.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from gfcr.filter.verifiers.code.report import short
from gfcr.sandbox.inside.wire import to_text

_ERRORS = (ValueError, TypeError, KeyError, IndexError, ArithmeticError)


def same(expected: Any, got: Any, tolerance: float | None = None) -> bool:
    """Whether a tree is the expected one. Raises ValueError, TypeError, KeyError, IndexError, ArithmeticError for what is no tree."""
    wanted = _number(expected)
    if wanted is not None:
        given = _number(got)
        return given is not None and _close(wanted, given, tolerance)
    if type(expected) is not dict and type(expected) is not list:
        return type(expected) is type(got) and bool(expected == got)
    (kind, inside), (other, items) = _parts(expected), _parts(got)
    if kind == "list":
        return other == "list" and len(inside) == len(items) and all(same(e, g, tolerance) for e, g in zip(inside, items))
    if kind == "d":
        if other != "d" or len(inside) != len(items):
            return False
        by_key = {_key(key): value for key, value in items}
        return len(by_key) == len(items) and all(
            _key(key) in by_key and same(value, by_key[_key(key)], tolerance) for key, value in inside
        )
    if kind in ("s", "z"):
        return other in ("s", "z") and sorted(map(_key, inside)) == sorted(map(_key, items))
    return kind == other and bool(inside == items)


def same_output(expected: str, got: str, tolerance: float | None = None) -> bool:
    """Whether a program printed the expected text."""
    wanted, printed = _lines(expected), _lines(got)
    if len(wanted) != len(printed):
        return False
    return all(w == p or (tolerance is not None and _same_words(w, p, tolerance)) for w, p in zip(wanted, printed))


def shown(tree: Any, most: int = 80) -> str:
    """A tree as Python would write it, for evidence. Never raises."""
    try:
        return short(_written(tree, most), most)
    except (*_ERRORS, RecursionError):
        return short(repr(tree), most)


def _parts(tree: Any) -> tuple[str, Any]:
    """A compound tree's kind, lists and tuples alike, and what it holds."""
    if type(tree) is list:
        return "list", tree
    if type(tree) is not dict:
        return type(tree).__name__, tree
    ((tag, inside),) = tree.items()
    return ("list" if tag == "t" else tag), inside


def _number(tree: Any) -> Any:
    """The number a tree is; None for everything else."""
    if isinstance(tree, (bool, int, float)):
        return tree
    if type(tree) is not dict:
        return None
    ((tag, inside),) = tree.items()
    if tag == "i":
        return int(inside, 16)
    if tag == "c":
        return complex(*inside)
    if tag == "k" and inside[:2] == ["decimal", "Decimal"]:
        return Decimal(*inside[2])
    if tag == "k" and inside[:2] == ["fractions", "Fraction"]:
        return Fraction(*map(_number, inside[2]))
    return None


def _key(tree: Any) -> str:
    """A key as JSON would write it; equal numbers alike. Text otherwise no JSON key can be."""
    if type(tree) is str:
        return tree
    if tree is None or isinstance(tree, bool):
        return {None: "null", True: "true", False: "false"}[tree]
    if isinstance(tree, float) and tree.is_integer() and abs(tree) < 1 << 53:
        return str(int(tree))
    number = _number(tree)
    return repr(tree) if number is not None and type(tree) is not dict else "\0" + to_text(tree)


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_words(wanted: str, printed: str, tolerance: float) -> bool:
    if wanted[: len(wanted) - len(wanted.lstrip())] != printed[: len(printed) - len(printed.lstrip())]:
        return False
    ours, theirs = wanted.split(), printed.split()
    return len(ours) == len(theirs) and all(a == b or _numbers(a, b, tolerance) for a, b in zip(ours, theirs))


def _numbers(a: str, b: str, tolerance: float) -> bool:
    try:
        return _close(float(a), float(b), tolerance)
    except ValueError:
        return False


def _close(expected: Any, got: Any, tolerance: float | None) -> bool:
    try:
        if expected == got:
            return True
        if isinstance(expected, float) and math.isnan(expected):
            return isinstance(got, float) and math.isnan(got)
        if tolerance is None or isinstance(got, complex):
            return False
        a, b = float(expected), float(got)
    except (OverflowError, ArithmeticError):  # beyond a float, or a signalling Decimal
        return False
    return math.isfinite(a) and math.isfinite(b) and math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)


def _written(tree: Any, most: int) -> str:
    """The first `most` characters or so."""
    if type(tree) is str:
        return repr(tree[: most + 1])
    if type(tree) is not list and type(tree) is not dict:
        return repr(tree)
    if type(tree) is dict and "i" in tree:
        return str(int(tree["i"], 16)) if len(tree["i"]) < 3000 else f"an integer of about {4 * len(tree['i'])} bits"
    kind, inside = _parts(tree)
    if type(tree) is dict and "t" in tree:
        kind = "t"
    if kind == "d":
        return "{" + ", ".join(f"{_written(pair[0], most)}: {_written(pair[1], most)}" for pair in inside[:most]) + "}"
    if kind in ("list", "t", "s"):
        items = ", ".join(_written(item, most) for item in inside[:most])
        if kind == "t":
            return f"({items}{',' if len(inside) == 1 else ''})"
        return f"[{items}]" if kind == "list" else f"{{{items}}}"
    if kind == "z":
        return f"frozenset({_written({'s': inside}, most)})"
    if kind in ("b", "B"):
        text = repr(bytes.fromhex(inside[: 2 * most]))
        return text if kind == "b" else f"bytearray({text})"
    if kind == "k":
        return f"{inside[1]}({', '.join(_written(arg, most) for arg in inside[2])})"
    return str(complex(*inside)) if kind == "c" else f"range({', '.join(_written(n, most) for n in inside)})"
