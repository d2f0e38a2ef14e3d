"""What one forward pass attends to: the attention function registered with transformers, and its kinds of passes.

The models run unchanged: transformers' AttentionInterface hands every layer's queries, keys and values to
`block_attention`, which stores keys and values in the block pool and attends. That is chosen over a Cache layer class
with a 4-D mask over a rectangle because running streams differ in length by a factor of ten: a rectangle wastes more than
half of its memory and work, while blocks of 32 positions stay within a quarter. A decode step computes one partial
softmax per block and joins the partials of each stream (the split-KV form of flash attention, arXiv:2205.14135,
exact up to rounding). Masks are float and additive, prepared once per pass and shared by the layers.

Invariants: a pass attends only to positions at or before each query's own; padding is right of the real tokens and is
never stored; softmax runs in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask

from gfcr.engine.embedded.pool import BlockPool

NAME = "gfcr_blocks"
MASKED = torch.finfo(torch.float32).min
VANISHING = -80.0
"""exp of it is lost in any float32 sum that holds a 1, and unlike exp of less it is no denormal, which are slow."""


class FullPass:
    """Whole sequences from position 0, right-padded, nothing stored: scoring."""

    layers = 0
    """Layers that came by; `Model` checks that all did."""

    def attend(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float | None,
        window: int | None,
    ) -> Tensor:
        mask = None
        if window is not None and query.shape[2] > window:
            at = torch.arange(query.shape[2], device=query.device)
            mask = _additive((at[None] > at[:, None]) | (at[None] <= at[:, None] - window), query.dtype)[None, None]
        return sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, is_causal=mask is None)[0]


class PrefillPass(FullPass):
    """Contexts from position 0, right-padded, stored in the pool."""

    def __init__(self, pool: BlockPool, places: Places) -> None:
        self.pool, self.places = pool, places

    def attend(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float | None,
        window: int | None,
    ) -> Tensor:
        self.places.store(self.pool, module.layer_idx, key, value)
        return super().attend(module, query, key, value, scaling, window)


class ExtendPass:
    """Continuations of stored prefixes, right-padded: row i holds positions `starts[i]`, ... of its slot."""

    layers = 0

    def __init__(self, pool: BlockPool, places: Places, slots: np.ndarray, starts: np.ndarray, width: int) -> None:
        self.pool, self.places = pool, places
        blocks = int(-(-(starts.max() + width) // pool.block))
        table = pool.table[slots, : min(blocks, pool.table.shape[1])]
        self.table = torch.from_numpy(np.minimum(table, pool.capacity - 1)).to(pool.device)
        at = torch.from_numpy(starts).to(pool.device)[:, None] + torch.arange(width, device=pool.device)
        keys = torch.arange(self.table.shape[1] * pool.block, device=pool.device)
        self.ahead = keys[None, None] - at[..., None]
        """[n, width, keys]: how far each key lies after each query."""

    def attend(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float | None,
        window: int | None,
    ) -> Tensor:
        self.places.store(self.pool, module.layer_idx, key, value)
        keys = self.pool.keys[module.layer_idx][self.table].permute(0, 2, 1, 4, 3).flatten(2, 3)
        values = self.pool.values[module.layer_idx][self.table].permute(0, 2, 1, 3, 4).flatten(2, 3)
        hidden = self.ahead > 0 if window is None else (self.ahead > 0) | (self.ahead <= -window)
        mask = _additive(hidden, query.dtype)[:, None]
        return sdpa_attention_forward(module, query, keys, values, mask, scaling=scaling)[0]


class DecodePass:
    """One token of every running stream."""

    layers = 0

    def __init__(self, pool: BlockPool, blocks: Tensor, offsets: Tensor, rows: Tensor, reach: Tensor) -> None:
        """`blocks`, `offsets` [n]: where each row's token goes; `rows` [active]: the row each block belongs to;
        `reach` [active]: the row's position minus the block's first."""
        self.pool, self.blocks, self.offsets, self.rows = pool, blocks, offsets, rows
        self.behind = reach[:, None] - torch.arange(pool.block, device=pool.device)
        self.masks: dict[int | None, Tensor] = {}

    def mask(self, window: int | None) -> Tensor:
        """[active, 1, 1, block], float32, additive."""
        if window not in self.masks:
            hidden = self.behind < 0 if window is None else (self.behind < 0) | (self.behind >= window)
            self.masks[window] = _additive(hidden, torch.float32)[:, None, None]
        return self.masks[window]

    def attend(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float | None,
        window: int | None,
    ) -> Tensor:
        pool, layer, rows = self.pool, module.layer_idx, self.rows
        pool.write(layer, key[:, :, 0], value[:, :, 0], self.blocks, self.offsets)
        keys, values = pool.keys[layer][: pool.active], pool.values[layer][: pool.active]
        n, heads, _, dim = query.shape
        kv_heads = keys.shape[1]
        shape = (n, kv_heads, heads // kv_heads)
        scale = dim**-0.5 if scaling is None else scaling
        scores = _product((query * scale).reshape(*shape, dim).index_select(0, rows), keys).float().add_(self.mask(window))
        best = scores.amax(-1)
        top = best.new_full(shape, MASKED).scatter_reduce_(0, rows[:, None, None].expand_as(best), best, "amax")
        scores.sub_(top.index_select(0, rows)[..., None]).clamp_(min=VANISHING).exp_()
        total = best.new_zeros(shape).index_add_(0, rows, scores.sum(-1))
        part = _product(scores.to(values.dtype), values).float()
        out = part.new_zeros(*shape, part.shape[-1]).index_add_(0, rows, part)
        return out.div_(total[..., None]).to(query.dtype).reshape(n, 1, heads, -1)


class Places:
    """Where the real tokens of a right-padded batch go in the pool."""

    def __init__(self, pool: BlockPool, slots: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> None:
        row = np.repeat(np.arange(len(counts)), counts)
        column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        position = starts[row] + column
        to = [row, column, pool.table[slots[row], position // pool.block], position % pool.block]
        self.row, self.column, self.blocks, self.offsets = (torch.from_numpy(a).to(pool.device) for a in to)

    def store(self, pool: BlockPool, layer: int, key: Tensor, value: Tensor) -> None:
        pool.write(layer, key[self.row, :, self.column], value[self.row, :, self.column], self.blocks, self.offsets)

    def store_hidden(self, pool: BlockPool, hidden: Tensor) -> None:
        pool.write_hidden(hidden[self.row, self.column], self.blocks, self.offsets)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b. torch multiplies many matrices of under 400 numbers one element at a time, so those go as one sum."""
    if a.shape[-2] == 1 and b.shape[-1] * b.shape[-2] < 400:
        return (a.transpose(-1, -2) * b).sum(-2, keepdim=True)
    return torch.matmul(a, b)


def _additive(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, torch.finfo(dtype).min)


def block_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    gfcr_pass: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface; without a `gfcr_pass` it is its `sdpa`."""
    if gfcr_pass is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
    gfcr_pass.layers += 1
    return gfcr_pass.attend(module, query, key, value, scaling, sliding_window), None


AttentionInterface.register(NAME, block_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)  # outside the engine the module keeps its padding masks
