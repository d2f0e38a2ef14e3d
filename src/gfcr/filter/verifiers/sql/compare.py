"""Whether two results are the same.

Invariants: equality is Python's (1 = 1.0, 1 is not '1', NULL equals NULL only) and, where a float is on one side, within a relative
tolerance; two integers are compared exactly; the number of columns must agree; work is bounded, and beyond the bound nobody is
right or wrong (TooMany). With a tolerance rows are matched one to one (augmenting paths), so a near tie cannot hide a missing row.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from gfcr.filter.verifiers.sql.database import Row, Table

MOST_PAIRS = 5_000_000
"""Pairs of rows looked at for nearness in one comparison."""
MOST_TRIES = 200
"""Partial column permutations tried."""
LONGEST_ANSWER = 200
"""Characters of a result that is its own canonical text; a longer one is told by its digest."""


class Mode(StrEnum):
    BAG = "bag"
    """Rows with their multiplicity, in any order."""
    SET = "set"
    """Distinct rows, in any order: BIRD's EX."""
    ORDERED = "ordered"
    """Rows in their order."""


class TooMany(Exception):
    """More near rows than can be told apart within the bound."""


class Comparison:
    """Compares under one rule; `pairs` counts the work."""

    def __init__(self, mode: Mode, tolerance: float = 1e-9, permute: bool = False) -> None:
        self.mode, self.tolerance, self.permute, self.pairs = mode, tolerance, permute, 0

    def same(self, wanted: Table, got: Table) -> bool:
        """Raises TooMany."""
        if self.mode is Mode.SET and not wanted.rows and not got.rows:
            return True  # as BIRD has it, whatever the columns
        if wanted.columns != got.columns:
            return False
        if self._rows(wanted.rows, got.rows):
            return True
        return self.permute and self._permuted(wanted, got)

    def _rows(self, left: Sequence[Row], right: Sequence[Row]) -> bool:
        if self.mode is Mode.SET:
            a, b = set(left), set(right)
            if a == b or not self.tolerance:
                return a == b
            return bool(self._near(a - b, b)) and bool(self._near(b - a, a))
        if len(left) != len(right):
            return False
        if self.mode is Mode.ORDERED:
            return all(self.close(a, b) for a, b in zip(left, right))
        first, second = Counter(left), Counter(right)
        if first == second:
            return True
        a_rest, b_rest = list((first - second).elements()), list((second - first).elements())
        return bool(self.tolerance) and self._matched(a_rest, b_rest)

    def same_in_runs(self, wanted: Table, got: Table, runs: Sequence[int]) -> bool:
        """Whether the rows agree run by run, each run a bag. Raises TooMany."""
        bag, at = Comparison(Mode.BAG, self.tolerance), 0
        for n in runs:
            part = slice(at, at + n)
            if not bag.same(Table(wanted.columns, wanted.rows[part]), Table(got.columns, got.rows[part])):
                return False
            at += n
        return at == len(got.rows) == len(wanted.rows)

    def close(self, left: Row, right: Row) -> bool:
        return left == right or (len(left) == len(right) and all(self._cells(a, b) for a, b in zip(left, right)))

    def _cells(self, a: Any, b: Any) -> bool:
        if a == b:
            return True
        if isinstance(a, (int, float)) and isinstance(b, (int, float)) and (isinstance(a, float) or isinstance(b, float)):
            return math.isclose(a, b, rel_tol=self.tolerance, abs_tol=0.0)
        return False

    def _matched(self, left: list[Row], right: list[Row]) -> bool:
        """Whether equally many rows pair off, each with a near one."""
        found = self._near(left, right)
        if found is None:
            return False
        partner: dict[int, int] = {}
        place_of: dict[int, int] = {}
        for start in range(len(left)):
            came: dict[int, int] = {}
            queue, free = [start], -1
            for u in queue:
                self._count(len(found[u]))
                for v in found[u]:
                    if v not in came:
                        came[v] = u
                        if v not in partner:
                            free = v
                            break
                        queue.append(partner[v])
                if free >= 0:
                    break
            if free < 0:
                return False
            while free >= 0:
                u = came[free]
                partner[free], place_of[u], free = u, free, place_of.get(u, -1)
        return True

    def _near(self, left: Sequence[Row] | set[Row], right: Sequence[Row] | set[Row]) -> list[list[int]] | None:
        """For each row of `left` the places of near rows in `right`; None when one has none."""
        groups: dict[Row, list[int]] = defaultdict(list)
        others = list(right)
        for place, row in enumerate(others):
            groups[_shape(row)].append(place)
        windows: dict[Row, tuple[int, list[int], list[float]]] = {}
        out = []
        for row in left:
            shape = _shape(row)
            if shape not in groups:
                return None
            if shape not in windows:
                windows[shape] = _window(others, groups[shape])
            column, places, values = windows[shape]
            lowest, highest = 0, len(places)
            if column >= 0 and math.isfinite(row[column]):
                slack = 2 * self.tolerance * abs(row[column])
                lowest, highest = bisect_left(values, row[column] - slack), bisect_right(values, row[column] + slack)
            self._count(highest - lowest)
            near = [place for place in places[lowest:highest] if self.close(row, others[place])]
            if not near:
                return None
            out.append(near)
        return out or [[]]

    def _permuted(self, wanted: Table, got: Table) -> bool:
        """Whether some order of the columns makes the rows the same: columns whose contents agree, tried with the rarest first."""
        width = wanted.columns
        sides = [[[(row[c],) for row in table.rows] for c in range(width)] for table in (wanted, got)]
        fits = {c: [p for p in range(width) if self._rows(sides[0][c], sides[1][p])] for c in range(width)}
        order = sorted(range(width), key=lambda c: len(fits[c]))
        if not width or not fits[order[0]]:
            return False
        tries = 0
        stack: list[list[int]] = [[]]
        while stack:
            chosen = stack.pop()
            if len(chosen) == width:
                return True
            column = order[len(chosen)]
            seen: list[int] = []
            for p in reversed(fits[column]):
                if p in chosen or any(sides[1][p] == sides[1][q] for q in seen):
                    continue  # taken, or the same as one tried
                seen.append(p)
                tries += 1
                if tries > MOST_TRIES:
                    raise TooMany(f"more than {MOST_TRIES} column orders to try")
                picked = [*chosen, p]
                columns = order[: len(picked)]
                if self._rows(
                    [tuple(r[c] for c in columns) for r in wanted.rows], [tuple(r[c] for c in picked) for r in got.rows]
                ):
                    stack.append(picked)
        return False

    def _count(self, pairs: int) -> None:
        self.pairs += pairs
        if self.pairs > MOST_PAIRS:
            raise TooMany("too many rows that differ by rounding only to be told apart")

    # ---- words -------------------------------------------------------------------------------------------------

    def difference(self, wanted: Table, got: Table) -> str:
        """What differs first, in words; for results that are not the same."""
        if wanted.columns != got.columns:
            return f"{_many(got.columns, 'column')}, wanted {wanted.columns}"
        if self.mode is not Mode.SET and len(wanted.rows) != len(got.rows):
            return f"{_many(len(got.rows), 'row')}, wanted {len(wanted.rows)}{self._example(wanted, got)}"
        if self.mode is Mode.ORDERED:
            place = next((i for i, (a, b) in enumerate(zip(wanted.rows, got.rows)) if not self.close(a, b)), 0)
            words = f"row {place + 1} is {shown(got.rows[place])}, wanted {shown(wanted.rows[place])}"
            return words + (" (the rows are right, their order is not)" if Counter(wanted.rows) == Counter(got.rows) else "")
        return f"other rows{self._example(wanted, got)}"

    def _example(self, wanted: Table, got: Table) -> str:
        missing, extra = Counter(wanted.rows) - Counter(got.rows), Counter(got.rows) - Counter(wanted.rows)
        words = [
            f"{shown(next(iter(rows)))} {what}" for rows, what in ((missing, "is missing"), (extra, "is not wanted")) if rows
        ]
        return f": {', '.join(words)}" if words else ""


def _window(rows: list[Row], places: list[int]) -> tuple[int, list[int], list[float]]:
    """(the numeric column with most distinct values or -1, places sorted by it, its values)."""
    numeric = [c for c, v in enumerate(rows[places[0]]) if isinstance(v, (int, float))]
    if not numeric:
        return -1, places, []
    column = max(numeric, key=lambda c: len({rows[p][c] for p in places}))
    ordered = sorted(places, key=lambda p: rows[p][column])
    return column, ordered, [rows[p][column] for p in ordered]


def _shape(row: Row) -> Row:
    """A row with its numbers left out: only rows of the same shape can be near."""
    return tuple((0,) if isinstance(v, (int, float)) else v for v in row)


def shown(row: Row) -> str:
    text = repr(row[0]) if len(row) == 1 else repr(row)
    return text if len(text) <= 80 else text[:77] + "..."


def _many(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def canonical(table: Table, mode: Mode) -> str:
    """A result as text: equal results, equal text (floats to twelve digits); a long one by its size and digest."""
    rows: list[Row] = [tuple(map(_plain, row)) if float in map(type, row) else row for row in table.rows]
    if mode is Mode.SET:
        rows = list(dict.fromkeys(rows))
    if len(rows) * table.columns <= LONGEST_ANSWER:  # each cell takes a character at least
        told = rows if mode is Mode.ORDERED else sorted(rows, key=_rank)
        text = json.dumps(
            [[f"x'{v.hex()}'" if isinstance(v, bytes) else v for v in row] for row in told], separators=(",", ":")
        )
        if len(text) <= LONGEST_ANSWER:
            return text
    if mode is Mode.ORDERED:
        digest = blake2b(digest_size=12)
        for row in rows:
            digest.update(ascii(row).encode())
        return f"{len(rows)}x{table.columns}:{digest.hexdigest()}"
    # A sum of digests does not depend on the order, and costs no sorting.
    total = sum(int.from_bytes(blake2b(ascii(row).encode(), digest_size=12).digest(), "little") for row in rows)
    return f"{len(rows)}x{table.columns}:{total % 2**96:024x}"


def _plain(value: Any) -> Any:
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    rounded = value if value.is_integer() else float(f"{value:.12g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**63 else rounded


_RANK: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (type(None), lambda v: 0),
    ((int, float), lambda v: v),
    (str, lambda v: v),
    (bytes, lambda v: v),
)


def _rank(row: Row) -> list[tuple[int, Any]]:
    return [next((i, key(v)) for i, (kind, key) in enumerate(_RANK) if isinstance(v, kind)) for v in row]
