"""Step scores: where they lie on the trained path, which one is the first wrong one, and what a whole answer is worth by them.

Invariants: a step whose scorer abstained (value None) is no step, never 0; a step of tokens that the trained path does not have is left
out; evidence is no score of a step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Literal

from gfcr.types import Member, StepScore

WRONG = 0.5
"""A step that scores less is a wrong one, unless a setting says otherwise."""
STEP_KINDS = frozenset({"step", "turn"})
_LEAST = 1e-6

Aggregation = Literal["min", "product", "last", "mean", "geometric", "first-drop"]


def on_trained_path(member: Member, kinds: Collection[str] = STEP_KINDS) -> list[tuple[int, int, StepScore]]:
    """(start, end, score) of every score of these kinds, in offsets of the trained path, by their ends; a score has offsets of the
    sampled path."""
    starts, at = {}, 0
    for node in member.rollout.trained_path:
        starts[node.id] = at
        at += len(node.segment)
    moved: list[tuple[int, int, int]] = []  # (start, end, shift) of each node both paths have
    at = 0
    for node in member.rollout.path:
        if node.id in starts and len(node.segment):
            moved.append((at, at + len(node.segment), starts[node.id] - at))
        at += len(node.segment)
    out = []
    for score in member.signals.steps:
        if score.kind in kinds:
            first = next((score.start + shift for a, b, shift in moved if a <= score.start < b), None)
            last = next((score.end + shift for a, b, shift in moved if a < score.end <= b), None)
            if first is not None and last is not None and first < last:
                out.append((first, last, score))
    return sorted(out, key=lambda found: (found[1], found[0]))


def scored_steps(member: Member, kinds: Collection[str] = STEP_KINDS) -> list[tuple[int, int, float]]:
    """(start, end, value) of the steps that have a value, in offsets of the trained path, in order."""
    return [(start, end, score.value) for start, end, score in on_trained_path(member, kinds) if score.value is not None]


def first_wrong(values: Iterable[float], below: float = WRONG) -> int:
    """Index of the first step that scores less than `below`; -1 when there is none (ProcessBench, arXiv:2412.06559)."""
    return next((i for i, value in enumerate(values) if value < below), -1)


def has_wrong_step(member: Member, below: float = WRONG) -> bool | None:
    """Whether a scored step is wrong; None when no step has a value."""
    values = [s.value for s in member.signals.steps if s.kind in STEP_KINDS and s.value is not None]
    return first_wrong(values, below) >= 0 if values else None


def process_f1(wrong: float, right: float) -> float:
    """ProcessBench's figure of a judge: the harmonic mean of its accuracy on answers with a wrong step (the index exactly) and on
    those without, in per cent; 0 when both are 0 (arXiv:2412.06559)."""
    return 2 * wrong * right / (wrong + right) if wrong + right else 0.0


def aggregate(values: Sequence[float], how: Aggregation, drop: float = 0.2) -> float | None:
    """An answer's score from those of its steps, each clamped to [1e-6, 1]; None without steps.

    `min` (Math-Shepherd, arXiv:2312.08935), `product` (PRM800K, arXiv:2305.20050; falls with the number of steps), `geometric` (its
    mean per step), `last`, `mean`, `first-drop`: the step after the first fall of more than `drop`, the last one without a fall
    (UNCONFIRMED: the name is common, its definition is not).
    """
    clamped = [min(max(v, _LEAST), 1.0) for v in values]
    if not clamped:
        return None
    if how == "min":
        return min(clamped)
    if how in ("product", "geometric"):
        return math.exp(math.fsum(map(math.log, clamped)) / (len(clamped) if how == "geometric" else 1))
    if how == "mean":
        return math.fsum(clamped) / len(clamped)
    falls = (after for before, after in pairwise(clamped) if before - after > drop) if how == "first-drop" else iter(())
    return next(falls, clamped[-1])
