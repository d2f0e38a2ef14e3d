"""Sets of real numbers: intervals, points, unions, intersections, differences, inequalities in one symbol.

Invariants: end points keep their exact form and are compared exactly; they are put in order by their size; a set with symbols in its
end points is kept in the order written.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from gfcr.filter.verifiers.math.polynomials import Polynomial, linear, polynomial
from gfcr.filter.verifiers.math.settle import neighbours
from gfcr.filter.verifiers.math.tree import MINUS, Node, add, negative, over, variables
from gfcr.filter.verifiers.math.values import Budget, Numbers

INFINITE: Node = ("k", "inf")
MINUS_INFINITE: Node = ("*", (MINUS, INFINITE))


@dataclass(frozen=True)
class End:
    """An end point: its exact form and its size (infinite ones too)."""

    node: Node
    size: Any
    closed: bool


@dataclass(frozen=True)
class Piece:
    low: End
    high: End


def end(node: Node, closed: bool, budget: Budget) -> End | None:
    """None where the point has no real size."""
    if node in (INFINITE, MINUS_INFINITE):
        return End(node, float("inf") if node == INFINITE else float("-inf"), False)
    if variables(node):
        return None
    numbers = Numbers(120, {}, budget)
    value = numbers(node)
    return None if numbers.mp.im(value) else End(node, numbers.mp.re(value), closed)


def pieces(node: Node, budget: Budget) -> list[Piece] | None:
    """The set in order, its parts joined where they touch; None where the node is no set of real numbers."""
    kind = node[0]
    if kind == "tuple" and len(node[3]) == 2:
        low, high = (end(x, bracket in "[]", budget) for x, bracket in zip(node[3], (node[1], node[2])))
        return None if low is None or high is None else [Piece(low, high)]
    if kind == "set":
        points = [end(x, True, budget) for x in node[1]]
        found = [Piece(p, p) for p in points if p is not None]
        return ordered(found) if len(found) == len(points) else None
    if kind == "all":
        return [_line()] if node[1] == "ℝ" else None
    if kind == "union":
        parts = [pieces(x, budget) for x in node[1]]
        return None if None in parts else ordered([p for part in parts if part for p in part])
    if kind == "cap":
        parts = [pieces(x, budget) for x in node[1]]
        both = parts[0]
        for part in parts[1:]:
            both = None if both is None or part is None else intersection(both, part)
        return both
    if kind == "minus":
        left, right = pieces(node[1], budget), pieces(node[2], budget)
        return None if left is None or right is None else intersection(left, complement(right))
    if kind == "ineq":
        return _solved([(o, a, b) for o, a, b in neighbours(node[1], node[2])], budget)
    if kind == "ne":
        points_ = _solved([("=", node[1], node[2])], budget)
        return None if points_ is None else complement(points_)
    if kind == "named":
        return pieces(node[2], budget) if node[1][0] == "v" else None
    if kind == "list" and (real := [x for x in node[1] if not _is_real(x)]) and len(real) < len(node[1]):  # x ∈ ℝ, x ≠ 1
        return pieces(("list", tuple(real), "and"), budget) if len(subject(node)) == 1 else None
    if kind == "list" and all(x[0] in ("ineq", "ne") for x in node[1]):
        return _several(node, budget)
    return None


def _is_real(node: Node) -> bool:
    return node[0] == "named" and node[1][0] == "v" and node[2] == ("all", "ℝ")


def subject(node: Node) -> set[str]:
    """The symbols that an inequality or a named set speaks of."""
    if node[0] in ("ineq", "ne", "list"):
        return {
            v for part in (node[2] if node[0] == "ineq" else node[1:] if node[0] == "ne" else ()) for v in variables(part)
        } or {v for x in (node[1] if node[0] == "list" else ()) for v in subject(x)}
    return variables(node[1]) if node[0] == "named" else set()


def _several(node: Node, budget: Budget) -> list[Piece] | None:
    parts = [pieces(x, budget) for x in node[1]]
    if len(subject(node)) != 1 or any(p is None for p in parts):
        return None
    known = [p for p in parts if p is not None]
    both = known[0]
    for part in known[1:]:
        both = intersection(both, part)
    if node[2] == "and" or (node[2] == "," and both):
        return both
    return ordered([p for part in known for p in part])


def _solved(relations: list[tuple[str, Node, Node]], budget: Budget) -> list[Piece] | None:
    """Linear relations in one symbol; None elsewhere."""
    both: list[Piece] | None = None
    names: set[str] = set()
    for operator, a, b in relations:
        found = _one(operator, a, b, budget)
        if found is None:
            return None
        name, part = found
        names.add(name)
        both = part if both is None else intersection(both, part)
    return both if len(names) == 1 else None


def _one(operator: str, a: Node, b: Node, budget: Budget) -> tuple[str, list[Piece]] | None:
    closed = operator in ("≤", "=")
    for left, right, less in ((a, b, True), (b, a, False)):  # a symbol against a value, in either order
        if left[0] == "v" and not variables(right):
            point = end(right, closed, budget)
            if point is None:
                return None
            return left[1], _half(operator, point, less)
    for left, right, less in ((a, b, True), (b, a, False)):
        if left[0] == "f" and left[1] == "abs" and not variables(right) and operator != "=":
            return _absolute(operator, left[2][0], right, less, budget)
    p = polynomial(add([a, negative(b)]), budget)
    found = linear(p) if p is not None else None
    if found is None:
        return _quadratic(operator, p, budget) if p else None
    name, slope, offset = found
    value = -offset / slope
    point = end(("n", value), closed, budget)
    assert point is not None
    return name, _half(operator, point, slope > 0)


def _absolute(operator: str, inner: Node, value: Node, less: bool, budget: Budget) -> tuple[str, list[Piece]] | None:
    """|inner| < value, or value < |inner|."""
    low = _one(operator, negative(value), inner, budget) if less else _one(operator, inner, negative(value), budget)
    high = _one(operator, inner, value, budget) if less else _one(operator, value, inner, budget)
    if low is None or high is None:
        return None
    return low[0], intersection(low[1], high[1]) if less else ordered(low[1] + high[1])


def _quadratic(operator: str, p: Polynomial, budget: Budget) -> tuple[str, list[Piece]] | None:
    """p < 0 (or ≤, =) of degree two in one symbol."""
    names = {name for monomial in p for name, _ in monomial}
    if len(names) != 1:
        return None
    (name,) = names
    if set(p) - {(), ((name, 1),), ((name, 2),)} or ((name, 2),) not in p:
        return None
    a, b, c = p[((name, 2),)], p.get(((name, 1),), Fraction(0)), p.get((), Fraction(0))
    square = b * b - 4 * a * c
    if square <= 0:
        return None
    root: Node = ("f", "root", (("n", square), ("n", Fraction(2))))
    ends = [end(over(add([("n", -b), sign]), ("n", 2 * a)), operator in ("≤", "="), budget) for sign in (root, negative(root))]
    points = sorted((e for e in ends if e is not None), key=lambda e: e.size)
    if len(points) != 2:
        return None
    low, high = points
    if operator == "=":
        return name, [Piece(low, low), Piece(high, high)]
    line = _line()
    return name, [Piece(low, high)] if a > 0 else [Piece(line.low, low), Piece(high, line.high)]


def _half(operator: str, point: End, less: bool) -> list[Piece]:
    if operator == "=":
        return [Piece(point, point)]
    line = _line()
    return [Piece(line.low, point) if less else Piece(point, line.high)]


def _line() -> Piece:
    return Piece(End(MINUS_INFINITE, float("-inf"), False), End(INFINITE, float("inf"), False))


def ordered(parts: list[Piece]) -> list[Piece]:
    """Sorted, empty ones gone, touching ones joined."""
    parts = [p for p in parts if p.low.size < p.high.size or (p.low.size == p.high.size and p.low.closed and p.high.closed)]
    parts.sort(key=lambda p: (p.low.size, not p.low.closed))
    out: list[Piece] = []
    for p in parts:
        if out and (
            p.low.size < out[-1].high.size or (p.low.size == out[-1].high.size and (p.low.closed or out[-1].high.closed))
        ):
            last = out[-1]
            if (p.high.size, p.high.closed) > (last.high.size, last.high.closed):
                out[-1] = Piece(last.low, p.high)
        else:
            out.append(p)
    return out


def intersection(a: list[Piece], b: list[Piece]) -> list[Piece]:
    out = []
    for p in a:
        for q in b:
            low = max(p.low, q.low, key=lambda e: (e.size, not e.closed))
            high = min(p.high, q.high, key=lambda e: (e.size, e.closed))
            out.append(Piece(low, high))
    return ordered(out)


def complement(parts: list[Piece]) -> list[Piece]:
    out: list[Piece] = []
    line = _line()
    low = line.low
    for p in ordered(parts):
        out.append(Piece(low, End(p.low.node, p.low.size, not p.low.closed)))
        low = End(p.high.node, p.high.size, not p.high.closed)
    out.append(Piece(low, line.high))
    return [p for p in ordered(out) if p.low.size != float("inf") and p.high.size != float("-inf")]
