"""Functions of numbers at one precision: each refuses arguments that would take long.

Invariant: an argument outside its bound raises TooBig, one without a value Undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gfcr.filter.verifiers.math.tree import TooBig, Undefined


def _real(n: Any, value: Any, limit: int, what: str) -> Any:
    if abs(value) > limit:
        raise TooBig(f"{what} of a number above {limit}")
    return value


def _root(n: Any, value: Any, degree: Any) -> Any:
    mp = n.mp
    if mp.im(degree) or degree != int(degree) or not 1 <= degree <= 1000:
        raise Undefined("a root of that degree")
    k = int(degree)
    if mp.im(value) == 0 and mp.re(value) < 0 and k % 2:
        return -mp.root(-mp.re(value), k)
    return mp.sqrt(value) if k == 2 else mp.root(value, k)


def _log(n: Any, value: Any, base: Any = None) -> Any:
    if value == 0 or base in (0, 1):
        raise Undefined("a logarithm of zero or to the base one")
    found = n.mp.log(value)
    return found if base is None else found / n.mp.log(base)


def _exp(n: Any, value: Any) -> Any:
    return n.mp.exp(_real(n, value, 2**60, "exponential"))


def _trigonometric(name: str) -> Callable[..., Any]:
    def rule(n: Any, value: Any) -> Any:
        limit = 10**12 if n.mp.im(value) == 0 else 10**4
        return getattr(n.mp, name)(_real(n, value, limit, name))

    return rule


def _floor(name: str) -> Callable[..., Any]:
    def rule(n: Any, value: Any) -> Any:
        near = n.mp.nint(value)
        if n.mp.im(value) or abs(value) > 10**15:
            raise Undefined("the floor of a complex or very large number")
        return near if abs(value - near) < n.mp.mpf(2) ** (-n.bits // 2) else getattr(n.mp, name)(value)

    return rule


def _gamma(shift: int) -> Callable[..., Any]:
    return lambda n, value: n.mp.gamma(_real(n, value, 500, "factorial") + shift)


_TRIG = ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth")
_INVERSE = ("asin", "acos", "atan", "acot", "asinh", "acosh", "atanh")
FUNCTIONS: dict[tuple[str, int], Callable[..., Any]] = {
    ("root", 2): _root,
    ("ln", 1): _log,
    ("log", 1): lambda n, v: _log(n, v, 10) if n.common else _log(n, v),
    ("lg", 1): lambda n, v: _log(n, v, 10),
    ("logb", 2): _log,
    ("exp", 1): _exp,
    ("abs", 1): lambda n, v: abs(v),
    ("floor", 1): _floor("floor"),
    ("ceil", 1): _floor("ceil"),
    ("fact", 1): _gamma(1),
    ("gamma", 1): _gamma(0),
    ("binom", 2): lambda n, a, b: n.mp.binomial(_real(n, a, 300, "binomial"), _real(n, b, 300, "binomial")),
    ("max", 2): lambda n, a, b: max(a, b),
    ("min", 2): lambda n, a, b: min(a, b),
    **{(name, 1): _trigonometric(name) for name in _TRIG},
    **{(name, 1): _trigonometric(name) for name in _INVERSE},
}
