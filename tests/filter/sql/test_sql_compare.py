"""When two results are the same: values, multiplicity, order, columns, rounding; against a second, slower way to say it."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.filter.verifiers.sql import compare
from gfcr.filter.verifiers.sql.compare import Comparison, Mode, TooMany, canonical
from gfcr.filter.verifiers.sql.database import Row, Table


def table(*rows: Row, columns: int | None = None) -> Table:
    return Table(len(rows[0]) if columns is None else columns, list(rows))


def same(left: Table, right: Table, mode: Mode = Mode.BAG, tolerance: float = 1e-9, permute: bool = False) -> bool:
    there = Comparison(mode, tolerance, permute).same(left, right)
    assert Comparison(mode, tolerance, permute).same(right, left) is there
    return there


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (0, -0.0, True),
        (1, "1", False),
        (None, None, True),
        (None, 0, False),
        (None, "", False),
        ("a", "A", False),
        ("é", "e\u0301", False),
        (b"a", "a", False),
        (b"a", b"a", True),
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.0 + 2e-9, False),
        (2**53 + 1, 2**53, False),
        (2**53 + 1, float(2**53), True),
        (3, 3.0000000001, True),
        (float("inf"), float("inf"), True),
        (float("inf"), -float("inf"), False),
        (float("inf"), 1e308, False),
        (1e-300, 2e-300, False),
        (0.0, 1e-12, False),
    ],
)
def test_cells(left: object, right: object, equal: bool) -> None:
    for mode in Mode:
        assert same(table((left,)), table((right,)), mode) is equal
    assert same(table((left,)), table((right,)), tolerance=0.0) is (left == right)


def test_multiplicity_order_and_columns() -> None:
    one, two = table((1, "a"), (2, "b"), (1, "a")), table((2, "b"), (1, "a"), (1, "a"))
    assert same(one, two) and not same(one, two, Mode.ORDERED) and same(one, one, Mode.ORDERED)
    assert not same(one, table((1, "a"), (2, "b"))) and same(one, table((1, "a"), (2, "b")), Mode.SET)
    swapped = table(("b", 2), ("a", 1), ("a", 1))
    assert not same(one, swapped) and same(one, swapped, permute=True) and not same(one, swapped, Mode.ORDERED, permute=True)
    assert not same(one, table((1,), (2,), (1,)), permute=True)


def test_empty_results() -> None:
    none, other = table(columns=1), table(columns=2)
    assert same(none, none) and not same(none, other) and same(none, other, Mode.SET)  # the last as BIRD's EX has it
    assert not same(none, table((1,))) and not same(none, table((None,)), Mode.SET)


def test_a_permutation_must_hold_for_whole_rows() -> None:
    """Each column agrees with one of the other table, and no permutation makes the rows agree."""
    left, right = table((1, 2, 3), (2, 1, 4)), table((1, 2, 4), (2, 1, 3))
    assert not same(left, right) and same(left, right, permute=True)  # exchange the first two
    assert not same(table((1, 1, 5), (2, 2, 6)), table((1, 2, 5), (2, 1, 6)), permute=True)
    wide = table(*(tuple((i * 7 + c * c) % 11 for c in range(9)) for i in range(11)))
    turned = Table(9, [tuple(row[c] for c in (8, 1, 0, 7, 6, 5, 2, 3, 4)) for row in wide.rows])
    assert same(wide, turned, permute=True)


def test_near_rows_are_matched_one_to_one() -> None:
    """1.0 is near both, 1 + 1.5e-9 only near the second: a greedy pairing would fail."""
    left = table((1.0, "x"), (1.0 + 0.8e-9, "x"))
    right = table((1.0 + 1.5e-9, "x"), (1.0 + 0.7e-9, "x"))
    assert same(left, right)
    assert not same(table((1.0,), (1.0,)), table((1.0 + 0.5e-9,), (2.0,)))
    assert not same(table((1.0, "x"), (2.0, "y")), table((1.0 + 1e-12, "y"), (2.0 + 1e-12, "x")))


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "MOST_PAIRS", 10_000)
    near = [(1.0 + i * 1e-15,) for i in range(300)]
    with pytest.raises(TooMany):
        Comparison(Mode.BAG).same(Table(1, near), Table(1, [(v + 5e-14,) for (v,) in near]))
    twins = [tuple([i % 2] * 12) for i in range(4)]
    assert same(Table(12, twins), Table(12, twins[::-1]), permute=True)


CELL = st.sampled_from([None, 0, 1, 2, 1.0, 1.0 + 5e-10, 1.0 + 9e-10, 2.5, "a", "", b"a"])


@given(st.lists(st.tuples(CELL, CELL), max_size=5), st.lists(st.tuples(CELL, CELL), max_size=5))
def test_a_bag_is_equal_iff_some_pairing_is(left: list[Row], right: list[Row]) -> None:
    close = Comparison(Mode.BAG).close
    wanted = len(left) == len(right) and any(all(map(close, left, turned)) for turned in permutations(right))
    assert same(table(*left, columns=2), table(*right, columns=2)) is wanted
    covered = all(any(close(a, b) for b in right) for a in left) and all(any(close(a, b) for a in left) for b in right)
    assert same(table(*left, columns=2), table(*right, columns=2), Mode.SET) is covered


@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=4), st.permutations(range(3)), st.randoms())
def test_columns_in_any_order(rows: list[Row], turn: list[int], random: object) -> None:
    turned = [tuple(row[c] for c in turn) for row in rows][::-1]
    assert same(table(*rows), table(*turned), permute=True)


@given(st.lists(st.tuples(CELL, CELL), max_size=5), st.permutations(range(5)))
def test_the_canonical_text_does_not_depend_on_the_order(rows: list[Row], turn: list[int]) -> None:
    turned = [rows[i] for i in turn if i < len(rows)]
    assert canonical(table(*rows, columns=2), Mode.BAG) == canonical(table(*turned, columns=2), Mode.BAG)


def test_canonical_texts() -> None:
    assert canonical(table((2, "b"), (1.0, None)), Mode.BAG) == '[[1,null],[2,"b"]]'
    assert canonical(table((2, "b"), (1.0, None)), Mode.ORDERED) == '[[2,"b"],[1,null]]'
    assert canonical(table((1,), (1,)), Mode.SET) == "[[1]]" != canonical(table(("1",)), Mode.SET)
    assert canonical(table((0.1 + 0.2,)), Mode.BAG) == canonical(table((0.3,)), Mode.BAG) == "[[0.3]]"
    long = [(i,) for i in range(1000)]
    assert canonical(Table(1, long), Mode.BAG) == canonical(Table(1, long[::-1]), Mode.BAG)
    assert canonical(Table(1, long), Mode.BAG).startswith("1000x1:")
    assert canonical(Table(1, long), Mode.BAG) != canonical(Table(1, [*long[1:], (1000,)]), Mode.BAG)


@pytest.mark.parametrize(
    ("wanted", "got", "mode", "words"),
    [
        (table((1,)), table((1, 2)), Mode.BAG, "2 columns, wanted 1"),
        (table((1,), (2,)), table((1,)), Mode.BAG, "1 row, wanted 2: 2 is missing"),
        (table((1,)), table((2,)), Mode.SET, "other rows: 1 is missing, 2 is not wanted"),
        (table((1,), (2,)), table((2,), (1,)), Mode.ORDERED, "row 1 is 2, wanted 1 (the rows are right, their order is not)"),
        (table(("x" * 200,)), table((0,)), Mode.BAG, "..."),
    ],
)
def test_the_difference_in_words(wanted: Table, got: Table, mode: Mode, words: str) -> None:
    assert words in Comparison(mode).difference(wanted, got)
