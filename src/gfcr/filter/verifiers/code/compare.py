"""When a result counts as the expected one. Every rule of taste is in this file.

Values: numbers are equal by value (`5.0` is 5, `True` is 1); a tuple is as good as a list, since expected values come from JSON, which
has no tuples, and for the same reason a key that JSON would write as text equals that text; nothing else changes type: `"5"` is not
5, a set or an iterator is no list. NaN equals nothing but an expected NaN. With a tolerance, finite numbers may be off by it, relative
or absolute.

Output: blanks at line ends and empty lines at the end do not count; everything else does: leading blanks, letter case, line breaks,
the form of accented letters. With a tolerance, blank-separated words that are both numbers are compared as numbers.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

NUMBERS = (int, float, Decimal, Fraction)


def same(expected: Any, got: Any, tolerance: float | None = None) -> bool:
    """Whether a plain value is the expected one."""
    if isinstance(expected, NUMBERS):
        return isinstance(got, (*NUMBERS, complex)) and _close(expected, got, tolerance)
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(got, (list, tuple))
            and len(got) == len(expected)
            and all(same(e, g, tolerance) for e, g in zip(expected, got))
        )
    if isinstance(expected, dict):
        if not isinstance(got, dict) or len(got) != len(expected):
            return False
        by_key = {_key(key): value for key, value in got.items()}
        return len(by_key) == len(got) and all(
            _key(key) in by_key and same(value, by_key[_key(key)], tolerance) for key, value in expected.items()
        )
    return type(expected) is type(got) and bool(expected == got)


def same_output(expected: str, got: str, tolerance: float | None = None) -> bool:
    """Whether a program printed the expected text."""
    wanted, printed = _lines(expected), _lines(got)
    if len(wanted) != len(printed):
        return False
    return all(w == p or (tolerance is not None and _same_words(w, p, tolerance)) for w, p in zip(wanted, printed))


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


def _key(key: Any) -> Any:
    """A key as JSON would write it."""
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return repr(key) if isinstance(key, (int, float)) else key
