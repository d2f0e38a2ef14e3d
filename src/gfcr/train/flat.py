"""A micro-batch without padding and without repetition: every token of every distinct path once.

Invariants: two places of a micro-batch share a token exactly when everything up to them is equal, so they have the same hidden
state; tokens are numbered in the order of the places that own them; padding owns nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gfcr.train.micro import MicroBatch

LEAST = 8
"""Rows of a block at least, as long as the longest is not that long: a block costs a dozen operations."""
SHARE = 0.75
"""A block's shortest row has at least this share of its longest one's tokens, beyond LEAST rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """b rows of like length, padded to t tokens: who attends to whom."""

    rows: int
    width: int
    index: np.ndarray
    """int64[b * t]: the token at each place; where padded any token, which no other place of the row can see."""
    owned: np.ndarray
    """int64[m]: places that own their token, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """u distinct tokens, and where each micro-batch place finds its own."""

    ids: np.ndarray
    """int64[u]."""
    positions: np.ndarray
    """int64[u]."""
    blocks: tuple[Block, ...]
    """The owned places of all blocks together are the tokens in order."""
    sources: np.ndarray
    """int64[n]: the token before each wanted one."""


def flatten(micro: MicroBatch) -> Flat:
    """The micro-batch's distinct tokens; its rows are chains, the longest first (`micro_batches`)."""
    ids, inside = micro.input_ids, micro.attention.astype(bool)
    rows, width = ids.shape
    lengths = inside.sum(1)
    padded = np.where(inside, ids, -1).astype(np.int32)
    keys = [row.tobytes() for row in padded]
    order = np.array(sorted(range(rows), key=keys.__getitem__))  # equal beginnings lie next to each other
    ordered = padded[order]
    same = np.zeros((rows, width), bool)
    np.logical_and.accumulate((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0), axis=1, out=same[1:])
    owner_row = np.maximum.accumulate(np.where(same, 0, np.arange(rows)[:, None]), axis=0)
    back = np.empty(rows, np.int64)
    back[order] = np.arange(rows)
    owners = order[owner_row[back]]
    owned = inside & ~same[back]
    number = np.cumsum(owned.ravel()).reshape(rows, width) - 1
    token = np.where(inside, number[owners, np.arange(width)], 0)
    place = np.flatnonzero(owned)
    blocks = []
    for first, last in like(lengths):
        wide = int(lengths[first])
        part = slice(first, last)
        blocks.append(
            Block(last - first, wide, token[part, :wide].ravel(), np.flatnonzero(owned[part, :wide])),
        )
    return Flat(ids.ravel()[place], micro.positions.ravel()[place], tuple(blocks), token.ravel()[micro.sources])


def like(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Cut rows, the longest first, into blocks of like length."""
    cuts, start, n = [], 0, len(lengths)
    for at in range(1, n + 1):
        if at == n or (at - start >= LEAST and n - at >= LEAST and lengths[at] < SHARE * lengths[start]):
            cuts.append((start, at))
            start = at
    return cuts
