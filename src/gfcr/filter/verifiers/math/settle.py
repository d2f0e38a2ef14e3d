"""What a tree says as an answer: names apart from values, chains cut to their value, signs expanded.

Adds to tree.py: `("named", name, value)` (x = 2, D = (0, 1), x ∈ S), `("eq", a, b)` (an equation that names nothing), `("ineq",
operators, expressions)` (only < and ≤, smallest first), `("ne", a, b)`, `("record", ((name, value), ...))`.

Invariants: an equation is never cut down to one of its sides unless the other side is a name or a constant; a chain of equals says
its last value, and the exact one where an approximation follows.
"""

from __future__ import annotations

from itertools import pairwise

from gfcr.filter.verifiers.math.tree import MINUS, Node, Unreadable, add, any_kind, key, negative, times, variables

_FLIP = {">": "<", "≥": "≤"}


def settle(node: Node) -> Node:
    """The tree as an answer. Raises Unreadable where it says none."""
    kind = node[0]
    if kind == "rel":
        return _relation(node[1], node[2])
    if kind == "list":
        return _list([settle(x) for x in node[1]], node[2])
    if kind == "group":
        return ("list", tuple(settle(x) for x in node[1]), ",")
    if kind == "set":
        items: list[Node] = []
        for x in node[1]:
            found = settle(x)
            items.extend(found[1] if found[0] == "list" else (found,))
        return ("set", tuple(items))
    if kind in ("union", "cap"):
        return (kind, tuple(settle(x) for x in node[1]))
    if kind == "minus":
        return (kind, settle(node[1]), settle(node[2]))
    if any_kind(node, "pm"):
        return ("list", (settle(_signs(node, True)), settle(_signs(node, False))), "or")
    if kind == "tuple":
        return (kind, node[1], node[2], tuple(settle(x) for x in node[3]))
    if kind == "words" and node[1][0] not in ("words",):
        return (kind, settle(node[1]), node[2])
    if kind in ("+", "*") and any_kind(node, "mat"):
        return _matrix(node)
    if kind == "*" and len(node[1]) == 2 and _point(*node[1]):
        return ("named", node[1][0], settle(node[1][1]))
    if any_kind(node, "rel", "list", "group", "set", "union", "words", "ratio") and kind in ("+", "*", "^", "f"):
        raise Unreadable("a structure inside an expression")
    return node


def _point(name: Node, place: Node) -> bool:
    """A(1, 2): a point by its letter."""
    return name[0] == "v" and name[1][:1].isupper() and place[:3] == ("tuple", "(", ")")


def _signs(node: Node, upper: bool) -> Node:
    """Every ± at once with its upper or its lower sign."""
    if node[0] == "pm":
        inner = _signs(node[1], upper)
        return inner if upper else negative(inner)
    return tuple(_signs(part, upper) if isinstance(part, tuple) else part for part in node)


def nameable(node: Node) -> bool:
    """Whether a side of an equation is what is asked for: a symbol, f(x), |AB|, AB, a ratio or a tuple of such."""
    kind = node[0]
    if kind == "v":
        return True
    if kind == "f":
        return (
            str(node[1]).startswith("call ")
            or (node[1] in ("sin", "cos", "tan", "cot") and all(nameable(a) for a in node[2]))
            or (node[1] in ("abs", "max", "min") and all(nameable(a) for a in node[2]))
        )
    if kind == "*":
        return all(nameable(x) or (x[0] == "^" and x[2] == MINUS and nameable(x[1])) for x in node[1])
    if kind == "ratio":
        return all(nameable(x) for x in node[1])
    if kind == "tuple":
        return all(nameable(x) for x in node[3])
    return kind == "words" and nameable(node[1])


def _relation(operators: tuple[str, ...], sides: tuple[Node, ...]) -> Node:
    if operators == ("∈",):
        if not nameable(sides[0]):
            raise Unreadable("membership of what is no symbol")
        return ("named", sides[0], settle(sides[1]))
    if set(operators) <= {"=", "≈"}:
        return _chain(operators, sides)
    if set(operators) <= {"<", "≤"}:
        return ("ineq", operators, sides)
    if set(operators) <= {">", "≥"}:
        return ("ineq", tuple(_FLIP[o] for o in reversed(operators)), tuple(reversed(sides)))
    if operators == ("≠",):
        return ("ne", sides[0], sides[1])
    if operators[-1] == "∈" and set(operators[:-1]) <= {"="}:
        return ("named", sides[0], settle(sides[-1]))
    raise Unreadable(f"a chain of {' '.join(operators)}")


def _chain(operators: tuple[str, ...], sides: tuple[Node, ...]) -> Node:
    for n, operator in enumerate(operators):
        if operator == "≈" and not (n == 0 and nameable(sides[0])):
            sides = sides[: n + 1]
            break
    first, last = sides[0], sides[-1]
    if len(sides) == 1:
        return settle(first)
    if nameable(first):
        shared = variables(first) & variables(last)
        if first[0] == "v" and shared and len(sides) == 2:
            return ("eq", first, last)
        return _named(first, settle(last))
    if not any(variables(x) for x in sides[:-1]):
        if len(sides) == 2 and nameable(last):
            return _named(last, settle(first))
        return ("eq", sides[-2], last) if variables(last) else settle(last)
    if len(sides) == 2:
        return ("eq", first, last)
    raise Unreadable("a chain of equations")


def _named(name: Node, value: Node) -> Node:
    if name[0] == "tuple" and value[0] == "tuple" and len(name[3]) == len(value[3]):
        return ("record", tuple(zip(name[3], value[3])))
    if value[0] == "named":
        value = value[2]
    return ("named", name, value)


def _list(items: list[Node], joined: str) -> Node:
    flat: list[Node] = []
    for item in items:
        flat.extend(item[1] if item[0] == "list" else (item,))
    named = [x for x in flat if x[0] == "named"]
    if named and flat[0][0] == "named" and len(named) == 1 and all(x[0] not in ("eq", "ineq", "ne", "record") for x in flat):
        return ("named", flat[0][1], ("list", (*_values(flat[0][2]), *flat[1:]), joined))  # n = 1, 2, 3
    if len(named) == len(flat):
        names = [key(x[1]) for x in named]
        if len(set(names)) == 1:
            return ("named", named[0][1], ("list", tuple(v for x in named for v in _values(x[2])), joined))
        if len(set(names)) == len(names):
            return ("record", tuple((x[1], x[2]) for x in named))
    return ("list", tuple(flat), joined)


def _values(value: Node) -> tuple[Node, ...]:
    return value[1] if value[0] == "list" else (value,)


def _matrix(node: Node) -> Node:
    """A multiple or a sum of matrices as one matrix."""
    parts = [_matrix(x) if x[0] in ("+", "*") and any_kind(x, "mat") else x for x in node[1]]
    matrices = [x for x in parts if x[0] == "mat"]
    if node[0] == "*" and len(matrices) == 1:
        factor = [x for x in parts if x[0] != "mat"]
        if any(any_kind(x, "mat", "tuple", "list") for x in factor):
            raise Unreadable("a product with a matrix inside")
        return ("mat", tuple(tuple(times([*factor, cell]) for cell in row) for row in matrices[0][1]))
    if node[0] == "+" and len(matrices) == len(parts) and len({(len(m[1]), len(m[1][0])) for m in matrices}) == 1:
        rows = zip(*(m[1] for m in matrices))
        return ("mat", tuple(tuple(add(list(cells)) for cells in zip(*row)) for row in rows))
    raise Unreadable("matrices that are not added or scaled")


def as_difference(node: Node) -> Node | None:
    """lhs - rhs of an equation or a named expression; None where a side is no expression."""
    if node[0] not in ("eq", "named"):
        return None
    sides = (node[1], node[2])
    if any(
        any_kind(x, "tuple", "list", "set", "union", "mat", "words", "ratio", "rel", "ineq", "named", "record", "date", "time")
        for x in sides
    ):
        return None
    return ("+", (node[1], negative(node[2])))


def neighbours(operators: tuple[str, ...], sides: tuple[Node, ...]) -> list[tuple[str, Node, Node]]:
    """A chain of inequalities as single ones."""
    return [(o, a, b) for o, (a, b) in zip(operators, pairwise(sides))]
