"""Equality of JSON values, and how much of a value is right.

Invariants: `true` is never 1, and text is a number only where that is asked for; numbers are compared as exact decimals; the share is
1 iff the values are equal; a tolerance is relative to the wanted value; work is bounded (depth by texts/values.py, matching by PAIRS).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, DecimalException
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from gfcr.domains.answers import number
from gfcr.registry import FrozenModel

PAIRS = 40_000
"""Pairs of leaves looked at to match lists without order under a tolerance; larger ones are matched by exact equality alone."""
WIDEST = 400
"""Decimal places of the numbers that are compared with fractions."""


class Rules(FrozenModel):
    """When two values are equal."""

    ordered: bool = True
    """Whether the order of a list's elements counts. Keys of an object never have one."""
    rel_tol: float = Field(0.0, ge=0)
    """Relative tolerance of numbers, of the wanted one. 0: exactly equal (`1` = `1.0`, `0.1` is not `0.10000000000000001`)."""
    abs_tol: float = Field(0.0, ge=0)
    """Absolute tolerance of numbers."""
    ignore_case: bool = False
    """Texts are equal in any case and with any blanks."""
    extra: Literal["refuse", "ignore"] = "refuse"
    """Keys of an object that the reference lacks: wrong, or not looked at."""
    number_text: bool = False
    """Whether the text "3" equals the number 3."""

    @property
    def exact(self) -> bool:
        """Equal values have equal canonical texts, and the other way round."""
        return not (self.rel_tol or self.abs_tol or self.ignore_case or self.number_text or self.extra == "ignore")


def share(found: Any, wanted: Any, rules: Rules) -> Fraction:
    """The share of right leaves among the leaves of both: 1 iff equal. An empty object or list is a leaf."""
    return Fraction(*_count(found, wanted, rules))


def difference(found: Any, wanted: Any, rules: Rules, path: str = "$") -> str:
    """Where and how the values first differ, in words; empty where they are equal."""
    if share(found, wanted, rules) == 1:
        return ""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in wanted:
            if key not in found:
                return f"{path}.{key[:40]} is missing"
            if why := difference(found[key], wanted[key], rules, f"{path}.{key[:40]}"):
                return why
        extra = next(key for key in found if key not in wanted)
        return f"{path}.{extra[:40]} is not in the reference"
    if isinstance(wanted, list) and isinstance(found, list):
        if len(found) != len(wanted):
            return f"{path} has {len(found)} elements, wanted {len(wanted)}"
        pairs = enumerate(zip(found, wanted)) if rules.ordered else ()
        found_why = (why for i, (a, b) in pairs if (why := difference(a, b, rules, f"{path}[{i}]")))
        return next(found_why, f"{path} has other elements")
    return f"{path} is {shown(found)}, wanted {shown(wanted)}"


def shown(value: Any, width: int = 60) -> str:
    text = canonical(value)
    return text if len(text) <= width else text[: width - 3] + "..."


def canonical(value: Any, ordered: bool = True) -> str:
    """One text for equal values: keys in order, numbers reduced, lists sorted unless `ordered`."""
    if isinstance(value, (float, Decimal)):
        return _digits(Decimal(repr(value)) if isinstance(value, float) else value)
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Mapping):
        inside = (f"{json.dumps(str(k), ensure_ascii=False)}:{canonical(v, ordered)}" for k, v in sorted(value.items()))
        return "{" + ",".join(inside) + "}"
    if isinstance(value, (list, tuple)):
        parts = [canonical(v, ordered) for v in value]
        return "[" + ",".join(parts if ordered else sorted(parts)) + "]"
    return json.dumps(value, ensure_ascii=False)


def leaves(value: Any) -> int:
    """Leaves of a value; an empty object or list is one."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return sum(map(leaves, inner)) or 1


def close(found: Any, wanted: Any, rel_tol: float, abs_tol: float) -> bool:
    """|found - wanted| <= max(rel_tol * |wanted|, abs_tol), in exact numbers."""
    a, b = _exact(found), _exact(wanted)
    if isinstance(a, Fraction) or isinstance(b, Fraction):
        if any(isinstance(v, Decimal) and abs(v.adjusted()) > WIDEST for v in (a, b)):
            return False
        a, b = Fraction(a), Fraction(b)
        if a == b:
            return True
        return abs(a - b) <= max(Fraction(repr(rel_tol)) * abs(b), Fraction(repr(abs_tol)))
    if a == b or not (rel_tol or abs_tol):
        return bool(a == b)
    try:
        a, b = Decimal(a), Decimal(b)
        return bool(abs(a - b) <= max(Decimal(repr(rel_tol)) * abs(b), Decimal(repr(abs_tol))))
    except DecimalException:
        return False


def _exact(value: Any) -> Any:
    return Decimal(repr(value)) if isinstance(value, float) else value


def _digits(value: Decimal) -> str:
    """A decimal without zeros at its end, as an integer where it is a short one."""
    sign, figures, exponent = value.as_tuple()
    digits = "".join(map(str, figures)).rstrip("0")
    if not digits or not isinstance(exponent, int):
        return "0"
    exponent += len(figures) - len(digits)
    minus = "-" if sign else ""
    return f"{minus}{digits}{'0' * exponent}" if 0 <= exponent < 50 else f"{minus}{digits}e{exponent}"


def _count(found: Any, wanted: Any, rules: Rules) -> tuple[int, int]:
    """(right leaves, leaves of either side)."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        parts = [_count(found[k], v, rules) if k in found else (0, leaves(v)) for k, v in wanted.items()]
        if rules.extra == "refuse":
            parts += [(0, leaves(v)) for k, v in found.items() if k not in wanted]
        return _sum(parts) if parts else (1, 1)
    if isinstance(wanted, list) and isinstance(found, list) and (wanted or found):
        return _in_order(found, wanted, rules) if rules.ordered else _matched(found, wanted, rules)
    return (1, 1) if _same(found, wanted, rules) else (0, max(leaves(found), leaves(wanted)))


def _sum(parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(r for r, _ in parts), sum(n for _, n in parts)


def _in_order(found: Sequence[Any], wanted: Sequence[Any], rules: Rules) -> tuple[int, int]:
    rest = [*found[len(wanted) :], *wanted[len(found) :]]
    return _sum([_count(a, b, rules) for a, b in zip(found, wanted)] + [(0, leaves(v)) for v in rest])


def _matched(found: Sequence[Any], wanted: Sequence[Any], rules: Rules) -> tuple[int, int]:
    """Elements paired so that as many as possible are equal; what is left over counts as wrong. Exact pairs are taken out first only
    where nothing but exact pairs can be equal."""
    if not rules.exact and sum(map(leaves, found)) * sum(map(leaves, wanted)) <= PAIRS:
        pairs = _pairs(found, wanted, rules)
        met = set(pairs.values())
        right = sum(leaves(wanted[j]) for j in met)
        over = sum(leaves(v) for i, v in enumerate(found) if i not in pairs)
        return right, right + max(over, sum(leaves(v) for j, v in enumerate(wanted) if j not in met))
    left: dict[str, list[Any]] = {}
    for value in found:
        left.setdefault(_key(value, rules), []).append(value)
    right = unmet = 0
    for value in wanted:
        stack = left.get(_key(value, rules))
        if stack:
            stack.pop()
            right += leaves(value)
        else:
            unmet += leaves(value)
    return right, right + max(unmet, sum(leaves(v) for stack in left.values() for v in stack))


def _key(value: Any, rules: Rules) -> str:
    text = canonical(value, ordered=False)
    return text.casefold() if rules.ignore_case else text


def _pairs(found: Sequence[Any], wanted: Sequence[Any], rules: Rules) -> dict[int, int]:
    """A largest matching of equal elements, index in `found` -> index in `wanted` (augmenting paths, breadth first)."""
    near = [[j for j, b in enumerate(wanted) if share(a, b, rules) == 1] for a in found]
    partner: dict[int, int] = {}  # of an element wanted
    mine: dict[int, int] = {}
    for start in range(len(found)):
        came: dict[int, int] = {}
        queue, end = [start], None
        for i in queue:
            for j in near[i]:
                if j not in came:
                    came[j] = i
                    if j not in partner:
                        end = j
                        break
                    queue.append(partner[j])
            if end is not None:
                break
        while end is not None:
            i = came[end]
            before = mine.get(i)
            partner[end], mine[i] = i, end
            end = before
    return mine


def _same(found: Any, wanted: Any, rules: Rules) -> bool:
    if rules.number_text and isinstance(found, str) != isinstance(wanted, str):
        text, other = (found, wanted) if isinstance(found, str) else (wanted, found)
        read = number(text)
        if read is None or not _is_number(other):
            return False
        a, b = (read, other) if text is found else (other, read)
        return close(a, b, rules.rel_tol, rules.abs_tol)
    if _is_number(found) and _is_number(wanted):
        return close(found, wanted, rules.rel_tol, rules.abs_tol)
    if isinstance(found, str) and isinstance(wanted, str) and rules.ignore_case:
        return " ".join(found.split()).casefold() == " ".join(wanted.split()).casefold()
    return type(found) is type(wanted) and bool(found == wanted)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal, Fraction)) and not isinstance(value, bool)
