"""How sure one can be of a difference.

Invariants: differences are paired by seed; every interval is a percentile bootstrap over seeds with a fixed random stream, so
that the same runs give the same interval; with fewer than two seeds there is no interval (None), never a zero-width one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 10_000
BOOTSTRAP_SEED = 20261129


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds; None where nothing was measured, sd None for a single seed."""

    mean: float | None
    sd: float | None
    """Sample standard deviation (ddof 1)."""
    n: int


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % bootstrap interval; bounds are None with fewer than two seeds."""

    value: float | None
    low: float | None
    high: float | None
    n: int


def spread(values: Sequence[float | None]) -> Spread:
    """Mean and sd of what was measured."""
    known = np.array([v for v in values if v is not None], float)
    if not len(known):
        return Spread(None, None, 0)
    return Spread(float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else None, len(known))


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Mean of ours - theirs over seeds."""
    return _bootstrap(np.array([ours, theirs], float), lambda x: x[..., 0, :].mean(-1) - x[..., 1, :].mean(-1))


def gain_share(base: Sequence[float], arm: Sequence[float], best: Sequence[float]) -> Interval:
    """(mean arm - mean base) / (mean best - mean base): the share of a yardstick's gain that an arm recovers.

    None when the yardstick gains nothing. Draws in which it gains nothing count as ±infinity, so they widen the interval.
    """

    def ratio(x: np.ndarray) -> np.ndarray:
        base_mean, arm_mean, best_mean = np.moveaxis(x.mean(-1), -1, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return (arm_mean - base_mean) / (best_mean - base_mean)

    data = np.array([base, arm, best], float)
    if data.shape[1] == 0 or data[2].mean() - data[0].mean() <= 0:
        return Interval(None, None, None, data.shape[1])
    return _bootstrap(data, ratio)


def _bootstrap(data: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]) -> Interval:
    """`data`: float64[rows, seeds]; seeds are drawn with replacement, rows stay paired.

    `statistic` reduces [..., rows, seeds].
    """
    n = data.shape[1]
    if n == 0:
        return Interval(None, None, None, 0)
    value = float(statistic(data))
    if n < 2:
        return Interval(value, None, None, n)
    rng = np.random.Generator(np.random.Philox(BOOTSTRAP_SEED))
    draws = statistic(np.moveaxis(data[:, rng.integers(0, n, (DRAWS, n))], 0, -2))
    low, high = np.nanpercentile(draws, [2.5, 97.5], method="linear" if np.isfinite(draws).all() else "nearest")
    return Interval(value, float(low), float(high), n)
