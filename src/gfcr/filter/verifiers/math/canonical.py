"""One text for equal answers: what votes and clusters count.

Invariants: equal text means an equal answer up to names (x = 5 is 5); equal answers have equal text where they are rational, polynomials, words, or numbers whose
first 25 digits tell them apart, and structures of those; other forms keep the order-free form of what was written.
"""

from __future__ import annotations

from gfcr.filter.verifiers.math.answers import Reading
from gfcr.filter.verifiers.math.compare import called
from gfcr.filter.verifiers.math.intervals import MINUS_INFINITE
from gfcr.filter.verifiers.math.polynomials import polynomial, written
from gfcr.filter.verifiers.math.tree import Node, TooBig, Undefined, key, shown, times, variables
from gfcr.filter.verifiers.math.units import SIGN, plain, unit
from gfcr.filter.verifiers.math.values import Budget, Numbers, exact

LONGEST = 500


def canonical(reading: Reading) -> str:
    """The answer's one text."""
    if not reading.nodes:
        return reading.key[:LONGEST]
    try:
        return _text(reading.nodes[0], Budget(3000))[:LONGEST]
    except (TooBig, Undefined, RecursionError, ValueError):
        return reading.key[:LONGEST]


def _text(node: Node, budget: Budget) -> str:
    kind = node[0]
    if kind == "named":
        return _text(node[2], budget)
    if kind in ("list", "set"):
        return "{" + ", ".join(sorted({_text(x, budget) for x in node[1]})) + "}"
    if kind == "tuple":
        return node[1] + ", ".join(_text(x, budget) for x in node[3]) + str(node[2])
    if kind == "record":
        return "(" + ", ".join(_text(v, budget) for _, v in node[1]) + ")"
    if kind == "mat":
        return "[" + "; ".join(", ".join(_text(x, budget) for x in row) for row in node[1]) + "]"
    if kind == "union":
        return " ∪ ".join(sorted(_text(x, budget) for x in node[1]))
    if kind == "ratio":
        return ":".join(_text(x, budget) for x in node[1])
    if kind == "words" and node[2] == SIGN:
        return _text(node[1], budget)
    if kind == "cong":
        return f"{node[1]} mod {node[2]}"
    if kind == "words":
        measured = unit(node[2])
        if measured is None:
            return f"{_text(node[1], budget)} {plain(node[2])}"
        kinds = "*".join(name if power == 1 else f"{name}^{power}" for name, power in measured[0])
        return f"{_text(times([('n', measured[1]), node[1]]), budget)} {kinds}"
    if kind in ("date", "time"):
        return ":".join(str(x) for x in node[1:4])
    if kind == "base":
        return f"{node[1]}_{node[2]}"
    if kind in ("n", "d", "+", "*", "^", "f", "%", "sum", "prod", "deg", "v", "k"):
        return _expression(called(node), budget)
    return shown(key(node))


def _expression(node: Node, budget: Budget) -> str:
    value = exact(node, budget)
    if value is not None:
        return str(value)
    if variables(node):
        found = polynomial(node, budget)
        return written(found) if found is not None else shown(key(node))
    if node[0] == "k":
        return str(node[1])
    if node == MINUS_INFINITE:
        return "-inf"
    numbers = Numbers(160, {}, budget)
    return str(numbers.mp.nstr(numbers(node), 25))
