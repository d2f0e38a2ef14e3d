"""What an answer is once it is read: nested tuples.

Expressions: `("n", Fraction)`, `("d", Fraction, significant digits, last place)` (a decimal as written), `("v", name)`,
`("k", "pi" | "e" | "i" | "inf")`, `("+", args)`, `("*", args)`, `("^", a, b)`, `("f", name, args)`, `("sum" | "prod", name, low,
high, body)`, `("pm", a)` (both signs), `("%", a)`, `("deg", a)`, `("base", digits, base)`, `("dots",)`.
Structures: `("tuple", open, close, items)`, `("list", items)` (commas, and, or), `("group", items)` (lists between semicolons),
`("set", items)`, `("union" | "cap", parts)`, `("minus", a, b)`, `("all", letter)`, `("mat", rows)`, `("rel", operators,
expressions)`, `("ratio", parts)`, `("words", a, text)` (a value and the words after it), `("time", hours, minutes, seconds)`,
`("date", year, month, day)`, `("text", key)`.

Invariants: immutable and hashable; nothing here evaluates.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

Node = tuple[Any, ...]

ZERO: Node = ("n", Fraction(0))
ONE: Node = ("n", Fraction(1))
MINUS: Node = ("n", Fraction(-1))


class Unreadable(Exception):
    """The text is not, in full, an answer that the grammar knows; says where."""


class TooBig(Exception):
    """A value that would take too long or too much to compute; says which."""


class Undefined(Exception):
    """No value: a division by zero, a logarithm of zero, a symbol without a number."""


def integer(value: int) -> Node:
    return ("n", Fraction(value))


def add(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else ("+", tuple(parts))


def times(parts: list[Node]) -> Node:
    flat: list[Node] = []
    for part in parts:
        flat.extend(part[1] if part[0] == "*" else (part,))
    return flat[0] if len(flat) == 1 else ("*", tuple(flat))


def negative(a: Node) -> Node:
    if a[0] == "n":
        return ("n", -a[1])
    if a[0] == "d":
        return ("d", -a[1], a[2], a[3])
    return times([MINUS, a])


def over(a: Node, b: Node) -> Node:
    if a[0] == "n" and b[0] == "n" and b[1] != 0:
        return ("n", a[1] / b[1])
    return times([a, ("^", b, MINUS)])


def determinant(node: Node) -> Node:
    """Of a square matrix of at most four rows, along its first row."""
    if node[0] != "mat" or len(node[1]) != len(node[1][0]) or len(node[1]) > 4:
        raise Unreadable("a determinant of what is no small square matrix")
    rows = node[1]
    if len(rows) == 1:
        return rows[0][0]
    parts = []
    for n, cell in enumerate(rows[0]):
        minor = determinant(("mat", tuple(row[:n] + row[n + 1 :] for row in rows[1:])))
        parts.append(negative(times([cell, minor])) if n % 2 else times([cell, minor]))
    return add(parts)


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below."""
    for part in node[1:]:
        if isinstance(part, tuple) and part:
            if isinstance(part[0], str) and part[0] in KINDS:
                yield part
            else:
                for inner in part:
                    if isinstance(inner, tuple) and inner:
                        if isinstance(inner[0], str) and inner[0] in KINDS:
                            yield inner
                        else:
                            yield from (x for x in inner if isinstance(x, tuple))


KINDS = frozenset(
    [
        "n",
        "d",
        "v",
        "k",
        "+",
        "*",
        "^",
        "f",
        "sum",
        "prod",
        "pm",
        "%",
        "deg",
        "base",
        "dots",
        "tuple",
        "list",
        "group",
        "set",
        "union",
        "cap",
        "minus",
        "all",
        "mat",
        "rel",
        "ratio",
        "words",
        "time",
        "date",
        "text",
        "named",
        "eq",
        "ineq",
        "ne",
        "record",
    ]
)


def replaced(node: Node, old: Node, new: Node) -> Node:
    """The tree with one node in another's place."""
    if node == old:
        return new
    return tuple(replaced(part, old, new) if isinstance(part, tuple) else part for part in node)


def variables(node: Node) -> set[str]:
    """Names of the free symbols."""
    found: set[str] = set()
    stack = [(node, frozenset[str]())]
    while stack:
        one, bound = stack.pop()
        if one[0] == "v":
            if one[1] not in bound:
                found.add(one[1])
        elif one[0] in ("sum", "prod"):
            stack += [(one[2], bound), (one[3], bound), (one[4], bound | {one[1]})]
        else:
            stack += [(child, bound) for child in children(one)]
    return found


def any_kind(node: Node, *kinds: str) -> bool:
    """Whether a node of one of the kinds stands anywhere in the tree."""
    stack = [node]
    while stack:
        one = stack.pop()
        if one[0] in kinds:
            return True
        stack.extend(children(one))
    return False


def key(node: Node) -> Node:
    """The node with sums, products and sets in one order, so that equal up to order is equal."""
    kind = node[0]
    if kind == "d":
        return ("n", node[1])
    if kind in ("+", "*", "set", "list", "union", "cap"):
        return (kind, tuple(sorted((key(x) for x in node[1]), key=repr)))
    if kind in ("n", "v", "k", "base", "dots", "all", "time", "date", "text"):
        return node
    return tuple(_key_part(part) for part in node)


def _key_part(part: Any) -> Any:
    if isinstance(part, tuple):
        if part and isinstance(part[0], str) and part[0] in KINDS:
            return key(part)
        return tuple(_key_part(x) for x in part)
    return part


def shown(node: Node) -> str:
    """A tree as text, every part in brackets that needs them."""
    kind = node[0]
    if kind in ("+", "*"):
        return "(" + kind.join(shown(x) for x in node[1]) + ")"
    if kind == "^":
        return f"{shown(node[1])}^{shown(node[2])}"
    if kind == "f":
        return f"{node[1]}({', '.join(shown(x) for x in node[2])})"
    if kind in ("n", "v", "k"):
        return str(node[1]) if kind != "n" or (node[1] >= 0 and node[1].denominator == 1) else f"({node[1]})"
    parts = [
        shown(x)
        if _is_node(x)
        else "[" + ", ".join(shown(y) if _is_node(y) else str(y) for y in x) + "]"
        if isinstance(x, tuple)
        else str(x)
        for x in node[1:]
    ]
    return f"{kind}({', '.join(parts)})"


def _is_node(part: object) -> bool:
    return isinstance(part, tuple) and bool(part) and isinstance(part[0], str) and part[0] in KINDS
