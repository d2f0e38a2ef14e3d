"""Meanings of a group's answers: clusters of equal final answers and their entropy.

Invariant: two answers share a cluster iff their verdicts name equal final answers; an answer without one is a cluster of its own, so
unreadable answers never agree with each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from gfcr.types import Member


def clusters(members: Sequence[Member]) -> list[int]:
    """Cluster of each member, numbered in order of appearance."""
    numbers: dict[str | int, int] = {}
    out = []
    for i, member in enumerate(members):
        verdict = member.signals.verdict
        answer = None if verdict is None else verdict.answer
        out.append(numbers.setdefault(i if answer is None else f"={answer}", len(numbers)))
    return out


def cluster_entropy(ids: Sequence[int]) -> float:
    """Discrete semantic entropy in nats, -sum (n_c / n) ln (n_c / n); 0 for one cluster or none (arXiv:2302.09664)."""
    counts = Counter(ids)
    if len(counts) < 2:
        return 0.0
    return -math.fsum(n / len(ids) * math.log(n / len(ids)) for n in counts.values())
