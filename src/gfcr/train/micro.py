"""Cutting a batch into padded micro-batches. Invariants: a token is forwarded only if some needed log-probability depends on
it (no prompt-only rows, no tail after the last loss token); each needed token names the flat place of the token before it,
chain or tree alike; the cut depends on lengths alone, so it is the same for the same batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gfcr.types.batch import Batch

SPLIT_COST = 256
"""Padding, in tokens, worth one more forward pass: its fixed cost, measured on the lab model (dispatch of small kernels)."""

FEWEST = 1 << 40
"""The same where padding costs next to nothing (`flat_forward`): as few passes as the limit allows."""


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """B rows padded to T tokens, and the n tokens whose log-probability is wanted."""

    input_ids: np.ndarray
    """int64[B, T]; 0 where padded."""
    attention: np.ndarray
    """int64[B, T]: 1 for tokens, 0 for padding (always at the right)."""
    positions: np.ndarray
    """int64[B, T]: position on the token's own path."""
    parents: np.ndarray | None
    """int64[B, T]: index in the row of the token before, -1 at roots and padding; None when every row is a chain."""
    sources: np.ndarray
    """int64[n]: flat index into B * T of the token before each wanted one."""
    tokens: np.ndarray
    """int64[n]: index into the batch's per-token arrays."""

    @property
    def real(self) -> int:
        """Tokens that are not padding."""
        return int(self.attention.sum())


def split_lengths(lengths: np.ndarray, limit: int, cost_of_cut: int = SPLIT_COST) -> list[tuple[int, int]]:
    """Cut points [(start, end)] of rows sorted by falling length that minimise padding plus a fixed cost per cut.

    Rows times longest length stays within `limit` tokens unless one row alone exceeds it.
    """
    n = len(lengths)
    if n and (whole := n * int(lengths[0])) <= limit and whole - int(lengths.sum()) <= cost_of_cut:
        return [(0, n)]  # no cut can save what it costs
    best = np.zeros(n + 1)
    back = np.zeros(n + 1, np.int64)
    for end in range(1, n + 1):
        padded = np.arange(end, 0, -1) * lengths[:end]
        cost = np.where((padded <= limit) | (np.arange(end) == end - 1), best[:end] + padded + cost_of_cut, np.inf)
        back[end] = np.argmin(cost)
        best[end] = cost[back[end]]
    cuts, end = [], n
    while end:
        cuts.append((int(back[end]), end))
        end = int(back[end])
    return cuts[::-1]


def micro_batches(batch: Batch, needed: np.ndarray, limit: int, cost_of_cut: int = SPLIT_COST) -> list[MicroBatch]:
    """Micro-batches that cover the tokens `needed` (bool[N], none of them a root: `check_batch`), longest rows first. `cost_of_cut`:
    padding, in tokens, worth one more of them."""
    wanted = np.flatnonzero(needed)
    if not len(wanted):
        return []
    row_of, start = batch.row_of_token(), batch.offsets[:-1]
    local = np.arange(len(needed)) - start[row_of]
    before = local - 1 if batch.parents is None else batch.parents.astype(np.int64)
    uses = np.zeros(len(batch), np.int64)
    np.maximum.at(uses, row_of[wanted], before[wanted] + 1)
    order = np.argsort(-uses, kind="stable")
    order = order[: np.count_nonzero(uses)]
    positions = batch.position_ids()
    out = []
    for first, last in split_lengths(uses[order], limit, cost_of_cut):
        rows = order[first:last]
        width = int(uses[rows[0]])
        column = np.arange(width)
        inside = column < uses[rows, None]
        flat = np.where(inside, start[rows, None] + column, 0)
        place = np.full(len(batch), -1, np.int64)
        place[rows] = np.arange(len(rows))
        tokens = wanted[place[row_of[wanted]] >= 0]
        out.append(
            MicroBatch(
                input_ids=np.where(inside, batch.input_ids[flat], 0).astype(np.int64),
                attention=inside.astype(np.int64),
                positions=np.where(inside, positions[flat], 0),
                parents=None if batch.parents is None else np.where(inside, before[flat], -1),
                sources=place[row_of[tokens]] * width + before[tokens],
                tokens=tokens,
            )
        )
    return out


def ancestors(parents: np.ndarray) -> np.ndarray:
    """bool[B, T, T]: token q sees token k, that is k is q or lies before it on q's path. Padding sees itself only.

    `parents`: int[B, T], each before its child (`check_batch`), -1 at roots and padding.
    """
    width = parents.shape[1]
    rows = np.arange(len(parents))
    seen = np.zeros((len(parents), width, width), bool)
    for t in range(width):
        parent = parents[:, t]
        seen[:, t] = seen[rows, np.maximum(parent, 0)] & (parent >= 0)[:, None]
        seen[:, t, t] = True
    return seen
