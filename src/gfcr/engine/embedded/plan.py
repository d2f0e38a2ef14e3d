"""Which context computes what: prefix sharing within one admission wave.

Invariants: every token of a shared prefix is computed by exactly one of the contexts that share it; a source lies in an
earlier level than its users; equal contexts are computed once whatever their length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Part:
    """What one context does: take `start` tokens from `source`, compute the rest."""

    index: int
    source: int | None
    """Index of another context of the wave; None = nothing to take, or the prefix is there already."""
    start: int
    """Tokens not computed."""


def plan_wave(contexts: Sequence[np.ndarray], ready: Sequence[int], min_shared: int) -> list[list[Part]]:
    """Levels of parts, to be done one after the other. `ready[i]` leading tokens of context i are already computed
    elsewhere; such contexts share only with equal ones."""
    first: dict[tuple[bytes, int], int] = {}
    copies: list[Part] = []
    keys: dict[int, bytes] = {}
    for i, context in enumerate(contexts):
        key = context.tobytes()
        if ready[i] == len(context):
            copies.append(Part(i, None, len(context)))
        elif (seen := first.setdefault((key, ready[i]), i)) != i:
            copies.append(Part(i, seen, len(context)))
        else:
            keys[i] = key
    levels: list[list[Part]] = [[Part(i, None, ready[i]) for i in keys if ready[i]]]
    fresh = sorted((i for i in keys if not ready[i]), key=lambda i: contexts[i].tolist())
    level_of: dict[int, int] = {}
    part_of: dict[int, Part] = {}
    before: int | None = None
    for i in fresh:  # sorted: the longest prefix shared with any earlier one is that shared with the one before
        part = Part(i, None, 0)
        level = 0
        if before is not None:
            shared = min(common(contexts[before], contexts[i]), len(contexts[i]) - 1)
            if shared >= min_shared:
                source = before  # walk to the context that computes token shared - 1
                while (up := part_of[source]).source is not None and up.start >= shared:
                    source = up.source
                part, level = Part(i, source, shared), level_of[source] + 1
        part_of[i], level_of[i] = part, level
        while len(levels) <= level:
            levels.append([])
        levels[level].append(part)
        before = i
    levels.append(copies)
    return [level for level in levels if level]


def common(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n
