"""Scores of a SQL answer beside right and wrong: BIRD's Soft F1 and R-VES, Arctic-Text2SQL-R1's reward (cards F-08, F-09).

Invariants: pure functions; a right answer never scores below a wrong one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from gfcr.filter.verifiers.sql.database import Row

RUNGS = ((2.0, 1.25), (1.0, 1.0), (0.5, 0.75), (0.25, 0.5))
"""R-VES: a time ratio of at least this is worth this."""
SLOWEST = 0.25


def soft_f1(wanted: Sequence[Row], got: Sequence[Row], ordered: bool = True) -> float:
    """BIRD's Soft F1, in [0, 1]: rows without repetitions are laid side by side; per row, the shares of the wanted row's width that
    match, that only `got` has and that only `wanted` has are summed to tp, fp and fn. 1 where both are empty.

    Two traps of the official code are closed. It takes rows in the order of a hash set, so equal results can score anything: here
    rows keep their order, and with `ordered` False equal rows are paired first and the rest is sorted. It counts a repeated value
    of `got` each time it occurs in the wanted row, so repeating a column raises the score: here each value is used once.
    """
    left, right = list(dict.fromkeys(wanted)), list(dict.fromkeys(got))
    if not left and not right:
        return 1.0
    tp = fp = fn = 0.0
    if not ordered:
        both = set(left) & set(right)
        tp = float(len(both))
        left, right = (sorted((r for r in rows if r not in both), key=_order) for rows in (left, right))
    for want, have in zip(left, right):
        common, width = sum((Counter(want) & Counter(have)).values()), max(1, len(want))
        tp += common / width
        fp += (len(have) - common) / width
        fn += (len(want) - common) / width
    fp += max(0, len(right) - len(left))
    fn += max(0, len(left) - len(right))
    return 2 * tp / (2 * tp + fp + fn) if tp else 0.0


def arctic(correct: bool, executes: bool, rung: float) -> float:
    """Arctic-Text2SQL-R1 (arXiv:2505.20315): 1 for the right result, `rung` for a query that runs and gives another, else 0."""
    return 1.0 if correct else rung if executes else 0.0


def time_ratio(wanted: Sequence[float], got: Sequence[float]) -> float:
    """Mean of wanted/got over the runs (how many times faster than the reference), without runs farther than three standard
    deviations from the mean. The official filter is strict, so with one run, or runs that all agree, nothing is left and the answer
    scores 0; here a run on the border stays."""
    ratios = [a / b for a, b in zip(wanted, got)]
    mean = math.fsum(ratios) / len(ratios)
    spread = math.sqrt(math.fsum((r - mean) ** 2 for r in ratios) / len(ratios))
    kept = [r for r in ratios if abs(r - mean) <= 3 * spread] or ratios
    return math.fsum(kept) / len(kept)


def r_ves(ratio: float) -> float:
    """BIRD's reward of a right answer by its time ratio: 1.25, 1, .75, .5 or .25. A data set's R-VES is the mean of
    100 * sqrt(reward)."""
    return next((reward for least, reward in RUNGS if ratio >= least), SLOWEST)


def _order(row: Row) -> list[tuple[str, str]]:
    return [(type(v).__name__ if not isinstance(v, (int, float)) else "", f"{v!r:0>40}") for v in row]
