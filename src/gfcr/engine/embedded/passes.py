"""What one forward pass attends to: the attention function registered with transformers, and its kinds of passes.

The models run unchanged: transformers' AttentionInterface hands every layer's queries, keys and values to
`block_attention`, which stores keys and values in the block pool and attends. That is chosen over a Cache layer class
with a 4-D mask over a rectangle because running streams differ in length by a factor of ten: a rectangle wastes more than
half of its memory and work, while blocks of 32 positions stay within a quarter. A decode step computes one partial
softmax per block and joins the partials of each stream (the split-KV form of flash attention, arXiv:2205.14135,
exact up to rounding). Masks are float and additive, prepared once per pass and shared by the layers.

Invariants: a pass attends only to positions at or before each query's own, within the layer's window; padding is right of the
real tokens and is never stored; softmax runs in float32; a term of attention that no pass computes is an error, never left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask

from gfcr.engine.embedded.pool import BlockPool
from gfcr.errors import ConfigError

NAME = "gfcr_blocks"
MASKED = torch.finfo(torch.float32).min
VANISHING = -80.0
"""exp of it is lost in any float32 sum that holds a 1, and unlike exp of less it is no denormal, which are slow."""
SCORES = 1 << 26
"""Most capped scores that exist at once, 256 MiB in float32."""
UNSERVED = {"s_aux": "attention sinks", "position_bias": "a learned position bias", "alibi": "a bias by distance (ALiBi)"}
"""Arguments by which transformers' models ask for more than scaling, window and soft cap."""


class Rule(NamedTuple):
    """How one layer attends."""

    scaling: float | None
    """Factor of the scores; None = 1 / sqrt(head dimension)."""
    window: int | None
    """A query sees this many positions, its own included; None = all before it."""
    softcap: float | None
    """Scores become softcap * tanh(score / softcap) before the mask (Gemma 2, arXiv:2408.00118, section 2); None = as they are."""


class FullPass:
    """Whole sequences from position 0, right-padded, nothing stored: scoring."""

    def __init__(self) -> None:
        self.layers = 0
        """Layers that came by; `Model` checks that all did."""
        self.hidden: dict[int | None, Tensor] = {}
        """By window: bool [1, length, length], which keys a query does not see."""

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> Tensor:
        length, window = query.shape[2], rule.window
        if rule.softcap is None and (window is None or length <= window):
            return sdpa_attention_forward(module, query, key, value, None, scaling=rule.scaling, is_causal=True)[0]
        if window not in self.hidden:
            at = torch.arange(length, device=query.device)
            self.hidden[window] = _unseen(at[None] - at[:, None], window)[None]
        return _attend(module, query, key, value, self.hidden[window], rule)


class PrefillPass(FullPass):
    """Contexts from position 0, right-padded, stored in the pool."""

    def __init__(self, pool: BlockPool, places: Places) -> None:
        super().__init__()
        self.pool, self.places = pool, places

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> Tensor:
        self.places.store(self.pool, module.layer_idx, key, value)
        return super().attend(module, query, key, value, rule)


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
        self.hidden: dict[int | None, Tensor] = {}

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> Tensor:
        self.places.store(self.pool, module.layer_idx, key, value)
        keys = self.pool.keys[module.layer_idx][self.table].permute(0, 2, 1, 4, 3).flatten(2, 3)
        values = self.pool.values[module.layer_idx][self.table].permute(0, 2, 1, 3, 4).flatten(2, 3)
        if rule.window not in self.hidden:
            self.hidden[rule.window] = _unseen(self.ahead, rule.window)
        return _attend(module, query, keys, values, self.hidden[rule.window], rule)


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
            self.masks[window] = _additive(_unseen(-self.behind, window), torch.float32)[:, None, None]
        return self.masks[window]

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> Tensor:
        pool, layer, rows = self.pool, module.layer_idx, self.rows
        pool.write(layer, key[:, :, 0], value[:, :, 0], self.blocks, self.offsets)
        keys, values = pool.keys[layer][: pool.active], pool.values[layer][: pool.active]
        n, heads, _, dim = query.shape
        kv_heads = keys.shape[1]
        shape = (n, kv_heads, heads // kv_heads)
        scale = dim**-0.5 if rule.scaling is None else rule.scaling
        scores = _product((query * scale).reshape(*shape, dim).index_select(0, rows), keys).float()
        scores = _cap(scores, rule.softcap).add_(self.mask(rule.window))
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


def _unseen(ahead: Tensor, window: int | None) -> Tensor:
    """Where a key lies after its query, or outside its window; `ahead`: key position minus query position."""
    return ahead > 0 if window is None else (ahead > 0) | (ahead <= -window)


def _cap(scores: Tensor, softcap: float | None) -> Tensor:
    return scores if softcap is None else scores.div_(softcap).tanh_().mul_(softcap)


def _attend(module: Any, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, rule: Rule) -> Tensor:
    """Attention [n, length, heads, dim] with a mask `hidden` bool [1 or n, length, keys]; capped scores, which torch's fused
    attention does not have, are made some queries at a time."""
    if rule.softcap is None:
        mask = _additive(hidden, query.dtype)[:, None]
        return sdpa_attention_forward(module, query, key, value, mask, scaling=rule.scaling)[0]
    n, heads, length, dim = query.shape
    kv_heads = key.shape[1]
    scale = dim**-0.5 if rule.scaling is None else rule.scaling
    queries = (query * scale).reshape(n, kv_heads, heads // kv_heads, length, dim)
    keys, values = key[:, :, None].transpose(-1, -2), value[:, :, None]
    step = max(1, SCORES // (n * heads * key.shape[2]))
    parts = []
    for start in range(0, length, step):
        piece = slice(start, start + step)
        scores = _cap(torch.matmul(queries[..., piece, :], keys).float(), rule.softcap)
        scores.masked_fill_(hidden[:, None, None, piece], MASKED)
        parts.append(torch.matmul(scores.softmax(-1).to(value.dtype), values))
    return torch.cat(parts, 3).flatten(1, 2).transpose(1, 2).contiguous()


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
    softcap: float | None = None,
    gfcr_pass: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface; without a `gfcr_pass` it is its `sdpa`. Raises ConfigError for what it lacks."""
    if gfcr_pass is None:
        more = {**kwargs, "softcap": softcap, "sliding_window": sliding_window}
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **more)
    for name, what in UNSERVED.items():
        if kwargs.get(name) is not None:
            raise ConfigError(
                f"the embedded engine cannot serve a {module.config.model_type!r} model: it attends with {what}",
                "use a model with plain attention (Llama, Qwen3, Gemma, ...) or the HTTP engine",
            )
    gfcr_pass.layers += 1
    return gfcr_pass.attend(module, query, key, value, Rule(scaling, sliding_window, softcap)), None


AttentionInterface.register(NAME, block_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)  # outside the engine the module keeps its padding masks
