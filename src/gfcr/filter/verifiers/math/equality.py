"""Whether two expressions are equal: by form, as rational numbers, as polynomials, or in all digits at several points.

Invariants: symmetric; a difference is certain, and equality is exact or holds in at least 40 digits beyond the smallest part of either
side at every point where both are real (three at least; where they never are, as complex numbers); decimals as written equal
an irrational or endless value only from `digits` significant digits on, and only within their last place.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Set
from fractions import Fraction
from typing import Any

from gfcr.filter.verifiers.math.polynomials import fraction, polynomial
from gfcr.filter.verifiers.math.tree import Node, TooBig, Undefined, any_kind, children, key, variables
from gfcr.filter.verifiers.math.values import Budget, Numbers, context, exact

FIRST_BITS = 90
MOST_BITS = 6000
POINTS = 7
WHOLE = frozenset({"n", "k", "m", "j"})
"""Symbols that stand for whole numbers where a form makes sense for these only."""


def same_value(a: Node, b: Node, budget: Budget, digits: int = 6) -> bool:
    """Whether two expressions are equal. Raises TooBig and Undefined, where that cannot be said."""
    if key(a) == key(b):
        return True
    try:
        left, right = exact(a, budget), exact(b, budget)
    except TooBig:
        if _agree(a, b, variables(a) | variables(b), budget, False):
            raise  # equal as far as can be seen, which is not far enough
        return False
    if left is not None and right is not None:
        return left == right or _as_written(a, right, b, digits) or _as_written(b, left, a, digits)
    names = variables(a) | variables(b)
    if names:
        whole = bounds(a) | bounds(b)
        if whole:
            return _agree(a, b, names, budget, False, whole)
        p, q = polynomial(a, budget), polynomial(b, budget)
        if p is not None and q is not None:
            return p == q
        return _at_points(a, b, names, budget)
    for one, other in ((a, b), (b, a)):
        if one[0] == "d" and not _has_decimal(other):
            return (one[2] >= digits and _within(one, other, budget)) or _at_points(a, b, names, budget)  # 0.5 for cos(π/3)
    return _at_points(a, b, names, budget)


def _as_written(a: Node, value: Fraction, b: Node, digits: int) -> bool:
    """Whether a decimal as written stands for a value that no decimal of its length can be."""
    if a[0] != "d" or b[0] == "d" or a[2] < digits or _has_decimal(b):
        return False
    bottom = value.denominator
    for p in (2, 5):
        while bottom % p == 0:
            bottom //= p
    return bottom != 1 and _rounds(a[1], a[3], value)


def _rounds(decimal: Any, place: Any, value: Any) -> bool:
    """Whether a decimal is the value rounded, or cut, at its last place."""
    off = abs(decimal - value)
    return bool(off * 2 <= place or (off < place and abs(decimal) < abs(value)))


def _has_decimal(node: Node) -> bool:
    return node[0] == "d" or any(_has_decimal(c) for c in children(node))


def _within(decimal: Node, other: Node, budget: Budget) -> bool:
    numbers = Numbers(max(FIRST_BITS, decimal[2] * 4 + 60), {}, budget)
    value = numbers(other)
    mp = numbers.mp
    if mp.im(value):
        return False
    written, place = (mp.mpf(x.numerator) / x.denominator for x in (decimal[1], decimal[3]))
    return _rounds(written, place, mp.re(value))


def _logs(node: Node) -> bool:
    return (node[0] == "f" and node[1] == "log") or any(_logs(c) for c in children(node))


def _alternates(node: Node) -> bool:
    """Whether whole numbers are meant: a power of a negative number, a trigonometric function of π, a floor."""
    if node[0] == "^" and node[1][0] == "n" and node[1][1] < 0:
        return True
    if node[0] == "f" and (node[1] in ("floor", "ceil") or (node[1] in ("sin", "cos", "tan") and any_kind(node, "k"))):
        return True
    return any(_alternates(c) for c in children(node))


def _at_points(a: Node, b: Node, names: set[str], budget: Budget) -> bool:
    if _agree(a, b, names, budget, False):
        return True
    if names and names <= WHOLE and (_alternates(a) or _alternates(b)) and _agree(a, b, names, budget, False, names):
        return True
    return (_logs(a) or _logs(b)) and _agree(a, b, names, budget, True)


def bounds(node: Node) -> set[str]:
    """Symbols in the bounds of sums and products: whole numbers."""
    found = variables(node[2]) | variables(node[3]) if node[0] in ("sum", "prod") else set()
    return found.union(*(bounds(c) for c in children(node)))


def points(names: set[str], bits: int, whole: Set[str] = frozenset()) -> list[dict[str, Any]]:
    """Values for the symbols, the same for every call: positive ones first, then some negative; `whole` ones from 2 to 8."""
    mp = context(bits)
    out = []
    for n in range(POINTS if names else 1):
        values = {}
        for name in sorted(names):
            draw = random.Random(zlib.crc32(f"{n} {name}".encode()))
            size = mp.mpf(draw.randrange(1 << 60, 1 << 62)) / (1 << 60) * (mp.mpf(1) / 2 if n % 2 else 1)
            if name in whole:
                values[name] = mp.mpf(draw.randint(2, 9))
                continue
            values[name] = -size if n in (3, 4, 5) and (n == 3 or draw.random() < 0.5) else size
        out.append(values)
    return out


def _agree(a: Node, b: Node, names: set[str], budget: Budget, common: bool, whole: Set[str] = frozenset()) -> bool:
    found = [v for s in points(names, FIRST_BITS, whole) if (v := _agree_at(a, b, s, budget, common)) is not None]
    if not found:
        raise Undefined("no point where both have a value")
    needed = 3 if names else 1
    best = max(found, key=lambda v: v[1])[1]
    for kind in range(best, -1, -1):  # at points of the best kind that has enough of them
        here = [agree for agree, k in found if k >= kind]
        if len(here) >= needed or kind == 0:
            return len(here) >= needed and all(here)
    return False


def _agree_at(a: Node, b: Node, symbols: dict[str, Any], budget: Budget, common: bool) -> tuple[bool, int] | None:
    """(equal, kind) at one point; kind 2: every number met is real, 1: both values are, 0: one is complex. None where one of them has no
    value there."""
    values: list[Any] = []
    sizes = []
    all_real = True
    for node in (a, b):
        numbers = Numbers(FIRST_BITS, symbols, budget, common)
        try:
            values.append(numbers(node))
        except Undefined:
            if not symbols:
                raise
            return None
        all_real &= numbers.real
        sizes.append((numbers.largest, numbers.smallest))
    mp = context(FIRST_BITS)
    largest, smallest = max(s[0] for s in sizes), min(s[1] for s in sizes)
    noise = mp.mpf(2) ** (largest - FIRST_BITS + 30)
    both_real = all(abs(mp.im(v)) <= noise for v in values)
    kind = 0 if not both_real else 2 if all_real else 1
    if any(abs(mp.im(v)) <= noise for v in values) and not both_real:
        return (False, 0)
    if abs(values[0] - values[1]) > noise:
        return (False, kind)
    bits = min(300 + max(0, largest - smallest), MOST_BITS + 1)
    if bits > MOST_BITS:
        raise TooBig("parts too different in size to compare")
    mp = context(bits)
    precise = [Numbers(bits, symbols, budget, common)(node) for node in (a, b)]
    limit = mp.mpf(2) ** (largest - bits + 60)
    return (bool(abs(precise[0] - precise[1]) <= limit), kind)


def proportional(a: Node, b: Node, budget: Budget) -> bool:
    """Whether a = 0 and b = 0 say the same: one is a constant multiple of the other, denominators cleared."""
    p, q = fraction(a, budget), fraction(b, budget)
    if p is not None and q is not None:
        return bool(p[0]) and p[0].keys() == q[0].keys() and len({p[0][m] / q[0][m] for m in p[0]}) == 1
    return ratio(a, b, budget) != 0


def ratio(a: Node, b: Node, budget: Budget) -> int:
    """The sign of c where a = c b with a constant c other than 0; 0 where there is none."""
    names = variables(a) | variables(b)
    p, q = polynomial(a, budget), polynomial(b, budget)
    if p is not None and q is not None:
        if not p or set(p) != set(q):
            return 0
        c = {p[m] / q[m] for m in p}
        return 0 if len(c) != 1 else (1 if min(c) > 0 else -1)
    found: list[Any] = []
    mp = context(FIRST_BITS)
    for symbols in points(names, FIRST_BITS):
        try:
            x, y = Numbers(FIRST_BITS, symbols, budget)(a), Numbers(FIRST_BITS, symbols, budget)(b)
        except Undefined:
            continue
        if mp.im(x) or mp.im(y) or x == 0 or y == 0:
            continue
        found.append(x / y)
    if len(found) < 3 or any(abs(c - found[0]) > abs(found[0]) * mp.mpf(2) ** -60 for c in found):
        return 0
    return 1 if found[0] > 0 else -1
