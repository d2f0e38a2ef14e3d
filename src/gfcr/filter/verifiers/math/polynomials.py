"""Polynomials with rational coefficients in their one form: two of them are equal iff their forms are.

Invariants: exact; the number of terms, the degree and the bits are bounded (beyond: None, another way decides).
"""

from __future__ import annotations

from fractions import Fraction

from gfcr.filter.verifiers.math.tree import Node, TooBig, Undefined
from gfcr.filter.verifiers.math.values import Budget, exact

TERMS = 150
DEGREE = 40
Monomial = tuple[tuple[str, int], ...]
Polynomial = dict[Monomial, Fraction]


def polynomial(node: Node, budget: Budget) -> Polynomial | None:
    """Monomials with their coefficients, none of them 0; None where the node is no polynomial or a large one."""
    budget.spend()
    kind = node[0]
    if kind in ("n", "d"):
        return {(): node[1]} if node[1] else {}
    if kind == "v":
        return {((node[1], 1),): Fraction(1)}
    if kind == "+":
        total: Polynomial = {}
        for part in node[1]:
            found = polynomial(part, budget)
            if found is None:
                return None
            for monomial, c in found.items():
                total[monomial] = total.get(monomial, Fraction(0)) + c
        return {m: c for m, c in total.items() if c} if len(total) <= TERMS else None
    if kind == "*":
        product: Polynomial | None = {(): Fraction(1)}
        for part in node[1]:
            found = polynomial(part, budget)
            if found is None or product is None:
                return None
            product = _times(product, found, budget)
        return product
    if kind == "^":
        return _power(node, budget)
    if kind in ("f", "%", "base"):
        value = _constant(node, budget)
        return None if value is None else {(): value} if value else {}
    return None


def _constant(node: Node, budget: Budget) -> Fraction | None:
    try:
        return exact(node, budget)
    except (TooBig, Undefined):
        return None


def _power(node: Node, budget: Budget) -> Polynomial | None:
    power = _constant(node[2], budget)
    base = polynomial(node[1], budget)
    if base is None or power is None or power.denominator != 1:
        value = _constant(node, budget)
        return None if value is None else {(): value}
    n = power.numerator
    if n < 0:
        if len(base) == 1 and () in base and abs(n) < 100:
            value = _constant(node, budget)
            return None if value is None else {(): value}
        return None
    if n > DEGREE or (n == 0 and not base):
        value = _constant(node, budget)
        return None if value is None else {(): value} if value else {}
    out: Polynomial | None = {(): Fraction(1)}
    for _ in range(n):
        if out is None:
            return None
        out = _times(out, base, budget)
    return out


def _times(a: Polynomial, b: Polynomial, budget: Budget) -> Polynomial | None:
    if len(a) * len(b) > TERMS * 20:
        return None
    budget.spend(len(a) * len(b) // 4)
    out: Polynomial = {}
    for left, c in a.items():
        for right, d in b.items():
            monomial = _join(left, right)
            if sum(n for _, n in monomial) > DEGREE:
                return None
            value = out.get(monomial, Fraction(0)) + c * d
            if value.numerator.bit_length() > 4000 or value.denominator.bit_length() > 4000:
                return None
            out[monomial] = value
    return {m: c for m, c in out.items() if c} if len(out) <= TERMS else None


def fraction(node: Node, budget: Budget) -> tuple[Polynomial, Polynomial] | None:
    """(numerator, denominator) with nothing cancelled; None where the node is no quotient of polynomials, or a large one."""
    whole = polynomial(node, budget)
    if whole is not None:
        return whole, {(): Fraction(1)}
    if node[0] == "^" and node[2][0] == "n" and node[2][1].denominator == 1 and -6 <= node[2][1] < 0:
        below = polynomial(("^", node[1], ("n", -node[2][1])), budget)
        return None if not below else ({(): Fraction(1)}, below)
    if node[0] not in ("+", "*"):
        return None
    top: Polynomial | None = {} if node[0] == "+" else {(): Fraction(1)}
    bottom: Polynomial | None = {(): Fraction(1)}
    for part in node[1]:
        found = fraction(part, budget)
        if found is None or top is None or bottom is None:
            return None
        if node[0] == "*":
            top = _times(top, found[0], budget)
        else:
            left, right = _times(top, found[1], budget), _times(found[0], bottom, budget)
            top = (
                None
                if left is None or right is None
                else {m: c for m in {**left, **right} if (c := left.get(m, Fraction(0)) + right.get(m, Fraction(0)))}
            )
        bottom = _times(bottom, found[1], budget)
    return None if top is None or bottom is None else (top, bottom)


def _join(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for name, n in b:
        powers[name] = powers.get(name, 0) + n
    return tuple(sorted(powers.items()))


def linear(found: Polynomial) -> tuple[str, Fraction, Fraction] | None:
    """(x, a, b) of a x + b with a not 0 in one symbol; None elsewhere."""
    names = {name for monomial in found for name, _ in monomial}
    if len(names) != 1:
        return None
    (name,) = names
    if set(found) - {(), ((name, 1),)}:
        return None
    return name, found[((name, 1),)], found.get((), Fraction(0))


def written(found: Polynomial) -> str:
    """The one form as text: highest degree first."""
    if not found:
        return "0"
    order = sorted(found.items(), key=lambda item: (-sum(n for _, n in item[0]), item[0]))
    parts = []
    for monomial, c in order:
        letters = "*".join(name if n == 1 else f"{name}^{n}" for name, n in monomial)
        size = str(abs(c)) if abs(c) != 1 or not letters else ""
        parts.append(("-" if c < 0 else "+") + size + ("*" if size and letters else "") + letters)
    return "".join(parts).removeprefix("+")
