"""Contexts and steps through the model over the block pool; no sampling, no queue.

Invariants: a position's keys, values and hidden state are computed once and then copied, never computed again; the memory
bound of `pool` holds after every call of `settle`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gfcr.engine.embedded.model import Model, batches, pad
from gfcr.engine.embedded.passes import DecodePass, ExtendPass, Places, PrefillPass
from gfcr.engine.embedded.plan import Part, plan_wave
from gfcr.engine.embedded.pool import BlockPool, block_size


class Core:
    """The model with its pool. Slots are numbered by the caller."""

    def __init__(self, model: Model, block: int | None, batch_tokens: int, min_shared: int) -> None:
        self.model, self.block, self.batch_tokens, self.min_shared = model, block, batch_tokens, min_shared
        self.pool: BlockPool | None = None
        self.kv_peak = self.live_peak = 0
        """Positions allocated and held at most."""
        self.worst = 0.0
        """Largest (allocated - longest slot) / held seen; the bound is 2."""

    def prefill(
        self,
        slots: Sequence[int],
        contexts: Sequence[np.ndarray],
        sources: Sequence[tuple[int, int] | None],
        limit: int,
    ) -> tuple[Tensor, list[int]]:
        """Put contexts into slots. `sources[i]`: (slot, tokens) of a stored prefix to copy; `limit`: positions the pool
        may have. Returns the hidden states [n, hidden size] of the last positions, and how many tokens each context computed.
        """
        if self.pool is None:
            self.pool = BlockPool(self.block or block_size([len(c) for c in contexts], limit), self.model.device)
        pool, slot = self.pool, np.asarray(slots, np.int64)
        lengths = np.array([len(c) for c in contexts])
        counts = -(-lengths // pool.block)
        owner = np.repeat(slot, counts)
        pool.extend(owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts), limit // pool.block)
        ready = [0 if s is None else s[1] for s in sources]
        self._copy([(s[0], slots[i], s[1]) for i, s in enumerate(sources) if s is not None])
        computed = [0] * len(contexts)
        for level in plan_wave(contexts, ready, self.min_shared):
            self._copy([(slots[p.source], slots[p.index], p.start) for p in level if p.source is not None])
            work = [p for p in level if p.start < lengths[p.index]]
            for part in work:
                computed[part.index] = int(lengths[part.index]) - part.start
            for some in ([p for p in work if not p.start], [p for p in work if p.start]):
                for group in batches([computed[p.index] for p in some], self.batch_tokens):
                    self._compute([some[i] for i in group], slot, contexts)
        return pool.read_hidden(slot, lengths - 1), computed

    def _copy(self, copies: list[tuple[int, int, int]]) -> None:
        if copies and self.pool is not None:
            source, target, length = (np.array(a, np.int64) for a in zip(*copies))
            self.pool.copy(source, target, length)

    def _compute(self, parts: list[Part], slots: np.ndarray, contexts: Sequence[np.ndarray]) -> None:
        pool = self.pool
        assert pool is not None
        rows = [contexts[p.index][p.start :] for p in parts]
        slot = slots[[p.index for p in parts]]
        starts = np.array([p.start for p in parts])
        ids, positions = pad(rows, starts.tolist())
        places = Places(pool, slot, starts, np.array([len(r) for r in rows]))
        work = ExtendPass(pool, places, slot, starts, ids.shape[1]) if starts.any() else PrefillPass(pool, places)
        places.store_hidden(pool, self.model.hidden(ids, positions, work))

    def decode(self, slots: np.ndarray, positions: np.ndarray, tokens: np.ndarray, limit: int) -> Tensor:
        """One token each: hidden states [n, hidden size] of `tokens` at `positions`. `slots` are all the running ones."""
        pool, device = self.pool, self.model.device
        assert pool is not None
        ordinals, offsets = np.divmod(positions, pool.block)
        new = offsets == 0
        if new.any():
            pool.extend(slots[new], ordinals[new], limit // pool.block)
        row_of = np.empty(len(pool.table), np.int64)
        row_of[slots] = np.arange(len(slots))
        rows = row_of[pool.owner[: pool.active]]
        reach = positions[rows] - pool.ordinal[: pool.active] * pool.block
        to = (torch.from_numpy(a).to(device) for a in (pool.table[slots, ordinals], offsets, rows, reach))
        blocks, offset, row, reach_ = to
        hidden = self.model.hidden(tokens[:, None], positions[:, None], DecodePass(pool, blocks, offset, row, reach_))[:, 0]
        pool.write_hidden(hidden, blocks, offset)
        return hidden

    def settle(self, held: int, longest: int) -> None:
        """Note the memory in use and give back what exceeds the bound. Both in positions."""
        if self.pool is None:
            return
        if not self.pool.used:
            self.pool = None
            return
        self.pool.shrink((2 * held + longest) // self.pool.block)
        allocated = self.pool.capacity * self.pool.block
        self.kv_peak, self.live_peak = max(self.kv_peak, allocated), max(self.live_peak, held)
        if held:
            self.worst = max(self.worst, (allocated - longest) / held)
