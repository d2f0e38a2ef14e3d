"""The key/value pool: fixed-size blocks of positions, allocated as streams grow, kept dense.

Invariants: blocks `[0, active)` belong to running streams and nothing else, so decoding reads one contiguous slice per
layer; blocks of finished streams kept for forks lie behind; a block not allocated holds finite numbers (a masked NaN
would still poison a sum); capacity x block <= 2 x held tokens + the longest slot, as long as contexts are on average no
shorter than half a block. The hidden state behind every position is kept with its keys, so a fork has its first
logits without computing a prefix token again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

FREE = -1
LARGEST = 32


def block_size(lengths: Sequence[int], limit: int) -> int:
    """Tokens per block, 2 to 32: the most that holds these contexts within `limit` positions."""
    size = LARGEST
    while size > 2 and sum(-(-n // size) for n in lengths) * size > limit:
        size //= 2
    return size


class BlockPool:
    """Storage of all layers; block tables live on the host as numpy arrays."""

    def __init__(self, block: int, device: torch.device) -> None:
        self.block = block
        self.device = device
        self.capacity = 0
        """Blocks allocated."""
        self.active = 0
        self.used = 0
        """Blocks held by running and kept streams."""
        self.keys: list[Tensor] = []
        """Per layer [capacity, kv heads, head dim, block]: positions last, so that scores are one batched product."""
        self.values: list[Tensor] = []
        """Per layer [capacity, kv heads, block, head dim]."""
        self.hidden: Tensor | None = None
        """[capacity, block, hidden size]: last hidden state of every position."""
        self.owner = np.empty(0, np.int64)
        """[capacity]: slot that holds the block, FREE if none."""
        self.ordinal = np.empty(0, np.int64)
        """[capacity]: which block of its slot it is."""
        self.table = np.zeros((0, 4), np.int64)
        """[slots, blocks]: block of (slot, ordinal)."""

    def write(self, layer: int, keys: Tensor, values: Tensor, blocks: Tensor, offsets: Tensor) -> None:
        """Store [n, kv heads, head dim] at n (block, offset) places of a layer."""
        if layer == len(self.keys):
            heads, dim, dim_v = keys.shape[1], keys.shape[2], values.shape[2]
            self.keys.append(keys.new_zeros(self.capacity, heads, dim, self.block))
            self.values.append(values.new_zeros(self.capacity, heads, self.block, dim_v))
        self.keys[layer][blocks, :, :, offsets] = keys
        self.values[layer][blocks, :, offsets] = values

    def write_hidden(self, hidden: Tensor, blocks: Tensor, offsets: Tensor) -> None:
        """Store [n, hidden size] at n places."""
        if self.hidden is None:
            self.hidden = hidden.new_zeros(self.capacity, self.block, hidden.shape[1])
        self.hidden[blocks, offsets] = hidden

    def read_hidden(self, slots: np.ndarray, positions: np.ndarray) -> Tensor:
        """[n, hidden size] of n (slot, position) pairs."""
        assert self.hidden is not None
        blocks = torch.from_numpy(self.table[slots, positions // self.block]).to(self.device)
        return self.hidden[blocks, torch.from_numpy(positions % self.block).to(self.device)]

    def extend(self, slots: np.ndarray, ordinals: np.ndarray, limit: int) -> None:
        """Give each (slot, ordinal) a block; `limit`: blocks the pool may have, exceeded only when it must be."""
        n = len(slots)
        if self.used + n > self.capacity:
            self._resize(max(self.used + n, min(self.used + n + (self.used + n) // 2, limit)))
        if slots.max() >= len(self.table) or ordinals.max() >= self.table.shape[1]:
            rows, columns = max(len(self.table), int(slots.max()) + 1), self.table.shape[1]
            while columns <= ordinals.max():
                columns *= 2
            table = np.zeros((rows, columns), np.int64)
            table[: len(self.table), : self.table.shape[1]] = self.table
            self.table = table
        blocks = np.arange(self.active, self.active + n)
        if self.used > self.active:  # kept blocks make room
            busy = blocks[self.owner[blocks] != FREE]
            free = np.flatnonzero(self.owner[self.active + n :] == FREE)[: len(busy)] + self.active + n
            self._relocate(busy, free)
        self.owner[blocks], self.ordinal[blocks], self.table[slots, ordinals] = slots, ordinals, blocks
        self.active += n
        self.used += n

    def copy(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> None:
        """Copy the first `lengths[i]` positions, rounded up to blocks, of slot `sources[i]` to slot `targets[i]`."""
        counts = -(-lengths // self.block)
        pair = np.repeat(np.arange(len(counts)), counts)
        ordinals = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
        self._move(self.table[sources[pair], ordinals], self.table[targets[pair], ordinals])

    def retire(self, drop: np.ndarray, keep: np.ndarray) -> None:
        """Streams end: free the blocks of `drop`, move those of `keep` behind the running ones, close the holes."""
        owner = self.owner[: self.active]
        dropped, kept = np.isin(owner, drop), np.isin(owner, keep)
        left = self.active - int(dropped.sum()) - int(kept.sum())
        holes = np.concatenate([np.flatnonzero(kept[:left]), np.flatnonzero(dropped[:left])])
        movers = np.flatnonzero(~(dropped | kept)[left:]) + left
        swapped = int(kept[:left].sum())
        self.owner[: self.active][dropped] = FREE
        self.used -= int(dropped.sum())
        self.active = left
        self._relocate(np.concatenate([movers, holes[:swapped]]), np.concatenate([holes, movers[:swapped]]))

    def drop_kept(self, slot: int) -> None:
        """Free the blocks of a finished stream that was kept."""
        blocks = np.flatnonzero(self.owner[self.active :] == slot) + self.active
        self.owner[blocks] = FREE
        self.used -= len(blocks)

    def shrink(self, limit: int) -> None:
        """Give memory back when the pool has more than `limit` blocks."""
        if self.capacity <= limit or self.capacity == self.used:
            return
        if self.used > self.active:
            tail = np.flatnonzero(self.owner[self.used :] != FREE) + self.used
            holes = np.flatnonzero(self.owner[self.active : self.used] == FREE)[: len(tail)] + self.active
            self._relocate(tail, holes)
        self._resize(max(self.used, min(limit, self.used + self.used // 8)))

    @torch.inference_mode()
    def zero(self, slot: int) -> None:
        """Wipe a slot's blocks, so that non-finite numbers of a failed stream reach no later one."""
        blocks = torch.from_numpy(np.flatnonzero(self.owner == slot)).to(self.device)
        for tensor in self._tensors():
            tensor[blocks] = 0

    def _tensors(self) -> list[Tensor]:
        return [*self.keys, *self.values, *([] if self.hidden is None else [self.hidden])]

    def _relocate(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Move blocks with their bookkeeping; sources and targets may overlap."""
        if not len(sources):
            return
        self._move(sources, targets)
        owner, ordinal = self.owner[sources], self.ordinal[sources]
        self.owner[sources] = FREE
        self.owner[targets], self.ordinal[targets] = owner, ordinal
        self.table[owner, ordinal] = targets

    @torch.inference_mode()
    def _move(self, sources: np.ndarray, targets: np.ndarray) -> None:
        src, dst = torch.from_numpy(sources).to(self.device), torch.from_numpy(targets).to(self.device)
        for tensor in self._tensors():
            tensor[dst] = tensor[src]  # the gather is done before the scatter

    @torch.inference_mode()
    def _resize(self, capacity: int) -> None:
        """Change the number of blocks, one tensor after the other so that only one is held twice."""
        keep = min(self.capacity, capacity)

        def fit(tensor: Tensor) -> Tensor:
            new = tensor.new_empty(capacity, *tensor.shape[1:])
            new[:keep] = tensor[:keep]
            new[keep:] = 0
            return new

        for tensors in (self.keys, self.values):
            for i, tensor in enumerate(tensors):
                tensors[i] = fit(tensor)
        if self.hidden is not None:
            self.hidden = fit(self.hidden)
        owner, ordinal = np.full(capacity, FREE, np.int64), np.zeros(capacity, np.int64)
        owner[:keep], ordinal[:keep] = self.owner[:keep], self.ordinal[:keep]
        self.owner, self.ordinal, self.capacity = owner, ordinal, capacity
