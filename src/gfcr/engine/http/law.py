"""Which law a server's log-probabilities belong to, found out by asking.

Invariant: nothing is believed of a server's flags; the difference of two tokens' log-probabilities doubles at temperature .5 if they
are of the law sampled, and stays if they are raw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TOP = 5
"""Most probable tokens whose log-probabilities are asked for."""
ROWS, LENGTH = 2, 8


def probe(vocabulary: int) -> list[list[int]]:
    """2 rows of 8 tokens, the same for every model of that vocabulary (those of the embedded engine's fingerprint)."""
    rows: list[list[int]] = ((np.arange(ROWS * LENGTH, dtype=np.int64) * 7919 + 1).reshape(ROWS, LENGTH) % vocabulary).tolist()
    return rows


def law_of(ones: Sequence[dict[int, float]], halves: Sequence[dict[int, float]]) -> str:
    """`processed`, `raw` or `unclear`, from the log-probabilities of the most probable tokens of several contexts at temperature 1
    and .5. Only the context with the largest difference decides."""
    best, found = 0.0, "unclear"
    for one, half in zip(ones, halves):
        both = sorted(set(one) & set(half), key=lambda t: -one[t])
        for a in both:
            for b in both:
                first, second = one[a] - one[b], half[a] - half[b]
                if first > max(best, 0.05):
                    best = first
                    near = 0.05 * first + 0.01
                    found = (
                        "processed"
                        if abs(second - 2 * first) < 2 * near
                        else "raw"
                        if abs(second - first) < near
                        else "unclear"
                    )
    return found


def mean_gap(a: Sequence[float], b: Sequence[float]) -> float:
    """Mean absolute difference in nats; infinite where one is not finite."""
    gap = float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).mean())
    return gap if np.isfinite(gap) else float("inf")
