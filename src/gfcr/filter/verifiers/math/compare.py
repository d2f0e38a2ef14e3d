"""Whether two settled answers are the same answer.

Invariants: an ordered answer never equals an unordered one in another order; an answer never equals a part of the other; interval
ends count; a name or a unit that only one side writes is no difference, two different ones are.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from gfcr.filter.verifiers.math.equality import proportional, ratio, same_value
from gfcr.filter.verifiers.math.intervals import Piece, pieces, subject
from gfcr.filter.verifiers.math.settle import as_difference, neighbours
from gfcr.filter.verifiers.math.tree import Node, TooBig, Undefined, any_kind, key, negative, over, replaced, shown, times
from gfcr.filter.verifiers.math.units import MULTIPLIERS, PERCENT, plain, priced, same_things, unit
from gfcr.filter.verifiers.math.values import Budget, exact, in_base

SETS = ("union", "cap", "minus", "all", "ineq", "ne")
MOST_PAIRS = 64


class Comparison:
    """One comparison: a reference with an answer, under one budget. `trouble`: the first part that could not be computed."""

    def __init__(self, budget: Budget, digits: int) -> None:
        self.budget, self.digits = budget, digits
        self.trouble: TooBig | Undefined | None = None

    def same(self, gold: Node, answer: Node) -> bool:
        """Whether the answer is the reference. Both settled."""
        if key(gold) == key(answer):
            return True
        pair = {gold[0], answer[0]}
        if pair <= {"eq", "named"}:
            return self.equations(gold, answer)
        if "eq" in pair:
            return False
        if "record" in pair:
            return self.records(gold, answer)
        if pair & set(SETS):
            return self.sets(gold, answer)
        if gold[0] == "named":
            return self.same(gold[2], answer)
        if answer[0] == "named":
            return self.same(gold, answer[2])
        if "tuple" in pair or "mat" in pair:
            return self.tuples(gold, answer)
        if pair & {"list", "set"}:
            return self.several(gold, answer)
        if "cong" in pair:  # 5 (mod 9) is the remainder 5, not the other way round
            return gold[0] == "n" and gold[1] == answer[1] < answer[2]
        if pair & {"date", "time"}:
            return self.dates(gold, answer)
        if pair & {"ratio"}:
            return self.ratios(gold, answer)
        if pair & {"words", "%", "deg"}:
            return self.measured(gold, answer)
        if pair & {"base"}:
            return self.bases(gold, answer)
        return self.value(gold, answer)

    def value(self, gold: Node, answer: Node) -> bool:
        if any_kind(gold, "dots") or any_kind(answer, "dots"):
            return False
        try:
            return same_value(called(gold), called(answer), self.budget, self.digits)
        except (TooBig, Undefined) as error:
            self.trouble = self.trouble or error
            return False

    # equations, names

    def equations(self, gold: Node, answer: Node) -> bool:
        if gold[0] == answer[0] == "named" and same_name(gold[1], answer[1]):
            return self.same(*_with_argument(gold, answer))
        left, right = as_difference(gold), as_difference(answer)
        if left is None or right is None:
            return False
        try:
            return proportional(called(left), called(right), self.budget)
        except (TooBig, Undefined) as error:
            self.trouble = self.trouble or error
            return False

    def records(self, gold: Node, answer: Node) -> bool:
        if gold[0] == answer[0] == "record":
            mine = {key(name): value for name, value in gold[1]}
            theirs = {key(name): value for name, value in answer[1]}
            if mine.keys() == theirs.keys():
                return all(self.same(mine[name], theirs[name]) for name in mine)
            return _indexed(gold) and _indexed(answer) and self.unordered([v for _, v in gold[1]], [v for _, v in answer[1]])
        record, other = (gold, answer) if gold[0] == "record" else (answer, gold)
        if other[0] == "named":  # x_1 = 2, x_2 = 3 against x = 2, 3
            if not _indexed(record) or other[1] != ("v", str(record[1][0][0][1]).partition("_")[0]):
                return False
            other = other[2]
        items = other[3] if other[0] == "tuple" and other[1] == "(" else other[1] if other[0] in ("list", "set") else None
        values = [v for _, v in record[1]]
        if items is None or len(items) != len(values):
            return False
        in_order = [(v, x) if record is gold else (x, v) for v, x in zip(values, items)]
        if other[0] != "set" and all(self.same(a, b) for a, b in in_order):
            return True
        if other[0] in ("list", "set") and _indexed(record):
            return self.unordered(values, list(items)) if record is gold else self.unordered(list(items), values)
        return False

    # several values

    def several(self, gold: Node, answer: Node) -> bool:
        left, right = _items(gold), _items(answer)
        if any(any_kind(x, "dots") for x in (*left, *right)):
            return len(left) == len(right) and all(
                a == b or (not any_kind(a, "dots") and self.same(a, b)) for a, b in zip(left, right)
            )
        if gold[0] not in ("list", "set") or answer[0] not in ("list", "set"):  # 3/8, or 37.5 %: one value said twice
            left, right = self.distinct(left), self.distinct(right)
            return len(left) == len(right) == 1 and self.same(left[0], right[0])
        units = [x for x in (*left, *right) if x[0] == "words"]
        if units and len(left) == len(right) and gold[0] == answer[0] == "list":
            left, right = _with_last_unit(left), _with_last_unit(right)
        return self.unordered(left, right)

    def unordered(self, left: list[Node], right: list[Node]) -> bool:
        """Equal as sets: each has its equal on the other side."""
        mine, theirs = self.distinct(left), self.distinct(right)
        if len(mine) != len(theirs) or len(mine) > MOST_PAIRS:
            return False
        free = list(theirs)
        for item in mine:
            match = next((n for n, other in enumerate(free) if self.same(item, other)), None)
            if match is None:
                return False
            del free[match]
        return True

    def distinct(self, items: list[Node]) -> list[Node]:
        seen: dict[Any, Node] = {}
        for item in items:
            try:
                number = exact(item, self.budget)
            except (TooBig, Undefined):
                number = None
            seen.setdefault(("n", number) if number is not None else key(item), item)
        return list(seen.values())

    def tuples(self, gold: Node, answer: Node) -> bool:
        left, right = gold[0], answer[0]
        if left == right == "mat":
            a, b = gold[1], answer[1]
            return (len(a), len(a[0])) == (len(b), len(b[0])) and all(
                self.same(x, y) for r, s in zip(a, b) for x, y in zip(r, s)
            )
        if "mat" in (left, right):
            matrix, other = (gold, answer) if left == "mat" else (answer, gold)
            if other[0] == "tuple" and all(x[0] == "tuple" for x in other[3]):  # [[1, 2], [3, 4]]
                rows = ("mat", tuple(x[3] for x in other[3]))
                same_shape = len(rows[1]) == len(matrix[1]) and {len(r) for r in rows[1]} == {len(matrix[1][0])}
                return same_shape and (self.tuples(gold, rows) if left == "mat" else self.tuples(rows, answer))
            line = (
                [row[0] for row in matrix[1]] if len(matrix[1][0]) == 1 else list(matrix[1][0]) if len(matrix[1]) == 1 else None
            )
            if line is None or other[0] != "tuple" or len(other[3]) != len(line):
                return False
            return all(self.same(a, b) if left == "mat" else self.same(b, a) for a, b in zip(line, other[3]))
        if left == right == "tuple":
            a, b = gold[3], answer[3]
            if len(a) != len(b) or (len(a) == 2 and gold[1:3] != answer[1:3]):
                return False
            return all(self.same(x, y) for x, y in zip(a, b))
        one, other = (gold, answer) if left == "tuple" else (answer, gold)
        if other[0] == "list" and one[1] == "(" and one[2] == ")" and len(other[1]) == len(one[3]):
            return all(self.same(x, y) if left == "tuple" else self.same(y, x) for x, y in zip(one[3], other[1]))
        if other[0] in ("list", "set") and len(_items(other)) == 1:
            return self.same(gold, _items(answer)[0]) if left == "tuple" else self.same(_items(gold)[0], answer)
        return False

    # sets of numbers

    def sets(self, gold: Node, answer: Node) -> bool:
        if gold[0] == answer[0] == "ineq" and self.inequalities(gold, answer):
            return True
        if gold[0] == answer[0] == "ne":
            left, right = (("eq", x[1], x[2]) for x in (gold, answer))
            return self.equations(left, right)
        mine, theirs = subject(gold), subject(answer)
        if mine and theirs and mine != theirs:
            return False
        try:
            a, b = (pieces(_interval(x), self.budget) for x in (gold, answer))
        except (TooBig, Undefined) as error:
            self.trouble = self.trouble or error
            return False
        if a is not None and b is not None:
            return len(a) == len(b) and all(self.piece(p, q) for p, q in zip(a, b))
        if gold[0] == answer[0] in ("union", "cap"):
            return self.unordered(list(gold[1]), list(answer[1]))
        if gold[0] == answer[0] == "minus":
            return self.same(gold[1], answer[1]) and self.same(gold[2], answer[2])
        for one, other in ((gold, answer), (answer, gold)):
            if one[0] == "named" and other[0] in ("union", "cap", "minus", "all"):
                return self.same(one[2], other) if one is gold else self.same(other, one[2])
        return False

    def piece(self, p: Piece, q: Piece) -> bool:
        return (
            (p.low.closed, p.high.closed) == (q.low.closed, q.high.closed)
            and self.same(p.low.node, q.low.node)
            and self.same(p.high.node, q.high.node)
        )

    def inequalities(self, gold: Node, answer: Node) -> bool:
        left, right = neighbours(gold[1], gold[2]), neighbours(answer[1], answer[2])
        if len(left) != len(right):
            return False
        if len(left) == 1:
            (o, a, b), (p, c, d) = left[0], right[0]
            if o != p:
                return False
            try:
                return ratio(called(("+", (a, negative(b)))), called(("+", (c, negative(d)))), self.budget) > 0
            except (TooBig, Undefined) as error:
                self.trouble = self.trouble or error
                return False
        return gold[1] == answer[1] and all(self.value(x, y) for x, y in zip(gold[2], answer[2]))

    # what is measured, written in a base, dated

    def measured(self, gold: Node, answer: Node) -> bool:
        mine, my_unit = _peel(gold)
        theirs, their_unit = _peel(answer)
        my_unit, their_unit = priced(my_unit, their_unit)
        if my_unit == their_unit or not their_unit:
            if my_unit == "%" and not their_unit and self.value(("%", mine), theirs):
                return True
            return self.same(mine, theirs)
        if their_unit == "%":
            return not my_unit and self.value(mine, ("%", theirs))
        if not my_unit:
            if their_unit == "°" and self.same(mine, theirs):
                return True
            return self.value(mine, ("deg", theirs)) if their_unit == "°" and any_kind(mine, "k") else self.same(mine, theirs)
        if my_unit == "%":
            return False
        a, b = unit(my_unit), unit(their_unit)
        if a is not None and b is not None:
            if a[0] != b[0]:
                return False
            if a[1] == b[1]:
                return self.same(mine, theirs)
            return self.value(times([("n", a[1]), mine]), times([("n", b[1]), theirs]))
        return same_things(my_unit, their_unit) and self.same(mine, theirs)

    def bases(self, gold: Node, answer: Node) -> bool:
        try:
            if gold[0] == answer[0] == "base":
                return gold[1:] == answer[1:]
            if gold[0] == "base":
                in_base(gold)
                return answer == ("n", Fraction(gold[1])) if gold[1].isdigit() else False
            return self.value(gold, ("n", Fraction(in_base(answer))))
        except Undefined as error:
            self.trouble = self.trouble or error
            return False

    def dates(self, gold: Node, answer: Node) -> bool:
        if gold[0] == answer[0] == "date":
            return all(a in (0, b) for a, b in zip(gold[1:], answer[1:]))
        if gold[0] == answer[0] == "time":
            return gold[1:4] == answer[1:4]
        if "time" in (gold[0], answer[0]) and "ratio" in (gold[0], answer[0]):
            return self.ratios(_clock(gold), _clock(answer))
        return False

    def ratios(self, gold: Node, answer: Node) -> bool:
        if gold[0] == answer[0] == "ratio":
            a, b = gold[1], answer[1]
            if len(a) != len(b):
                return False
            if all(x == y or self.value(x, y) for x, y in zip(a, b)):
                return True
            if any(any_kind(x, "dots") for x in (*a, *b)) or any(_zero(x, self.budget) for x in (*a, *b)):
                return False
            return all(self.value(times([x, b[0]]), times([y, a[0]])) for x, y in zip(a[1:], b[1:]))
        one, other = (gold, answer) if gold[0] == "ratio" else (answer, gold)
        if len(one[1]) != 2 or other[0] in ("date", "time", "words", "%", "deg") or _zero(one[1][1], self.budget):
            return False
        return self.value(over(one[1][0], one[1][1]), other)


def called(node: Node) -> Node:
    """Functions without a definition as symbols: f(2) is f(2) and nothing else."""
    if node[0] == "f" and str(node[1]).startswith("call "):
        return ("v", shown(key(node)))
    return tuple(called(part) if isinstance(part, tuple) else part for part in node)


def same_name(a: Node, b: Node) -> bool:
    """Whether two names may stand for the same: equal, or both the value of a function (y, f(x), W(n))."""
    return key(a) == key(b) or (_function_name(a) and _function_name(b))


def _function_name(name: Node) -> bool:
    return (
        (name[0] == "f" and str(name[1]).startswith("call "))
        or name in (("v", "y"), ("v", "z"))
        or (
            name[0] == "*"
            and len(name[1]) == 2
            and all(x[0] == "v" and len(x[1]) == 1 for x in name[1])
            and name[1][0][1].isupper()
            and name[1][1][1].islower()
        )
    )


def _indexed(record: Node) -> bool:
    """Whether the names are one letter with the indices 1 to n: their order says nothing."""
    names = [name[1].partition("_") if name[0] == "v" else ("", "", "") for name, _ in record[1]]
    return len({n[0] for n in names}) == 1 and sorted(n[2] for n in names) == sorted(str(k + 1) for k in range(len(names)))


def _with_argument(gold: Node, answer: Node) -> tuple[Node, Node]:
    """The values, with the arguments of f(x) and f(t) as one symbol."""
    mine, theirs = _argument(gold[1]), _argument(answer[1])
    if mine is None or theirs is None or mine == theirs:
        return gold[2], answer[2]
    new = ("v", "argument")
    return replaced(gold[2], mine, new), replaced(answer[2], theirs, new)


def _argument(name: Node) -> Node | None:
    """The one symbol that a function's name has as argument; None elsewhere."""
    inside: tuple[Node, ...] = ()
    if name[0] == "f":
        inside = name[2]
    elif name[0] == "*" and len(name[1]) == 2:
        inside = name[1][1:]
    return inside[0] if len(inside) == 1 and inside[0][0] == "v" else None


def _items(node: Node) -> list[Node]:
    return list(node[1]) if node[0] in ("list", "set") else [node]


def _with_last_unit(items: list[Node]) -> list[Node]:
    """5, 6 and 7 cm: the last unit is that of all."""
    last = items[-1]
    if last[0] != "words" or any(x[0] == "words" for x in items[:-1]):
        return items
    return [x if x[0] == "words" else ("words", x, last[2]) for x in items]


def _interval(node: Node) -> Node:
    return node[2] if node[0] == "named" else node


def _peel(node: Node) -> tuple[Node, str]:
    """(value, unit): "%", "°", the words, or nothing."""
    if node[0] == "%":
        return node[1], "%"
    if node[0] == "deg":
        return node[1], "°"
    if node[0] == "words":
        words = plain(node[2])
        if words in PERCENT:
            return node[1], "%"
        if words in ("degree", "degrees", "deg"):
            return node[1], "°"
        first, _, rest = words.partition(" ")
        scale = MULTIPLIERS.get(first)
        inner, own = _peel(node[1]) if node[1][0] in ("%", "deg") else (node[1], "")
        if own:
            return inner, own
        if scale is not None:
            return times([("n", Fraction(scale)), node[1]]), rest
        return node[1], words
    if node[0] == "*" and node[1][-1][0] in ("%", "deg"):
        last, mark = _peel(node[1][-1])
        return times([*node[1][:-1], last]), mark
    return node, ""


def _clock(node: Node) -> Node:
    return ("ratio", tuple(("n", Fraction(x)) for x in node[1:3])) if node[0] == "time" else node


def _zero(node: Node, budget: Budget) -> bool:
    try:
        return exact(node, budget) == 0
    except (TooBig, Undefined):
        return False
