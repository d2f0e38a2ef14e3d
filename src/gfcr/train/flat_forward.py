"""The trunk of a model of the families that `known` names, over the distinct tokens of a micro-batch instead of a padded rectangle.

A shared prompt goes through the layers once, padding never does (only attention, which needs rows, pads rows of like length), and
what surrounds the products (norms, rotations, gates) is written in few operations with their gradients (`flat_ops`). The same
function as transformers' own pass up to rounding; `PolicyForward` compares the two on a probe before it relies on this.

Invariants: the parameters are the model's own, read at every call, so nothing is kept that a step could make stale; a model somebody
hooked into since runs as transformers has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, scaled_dot_product_attention

from gfcr.engine.known import hooked, known, window_of
from gfcr.train.flat import Block, Flat, flatten
from gfcr.train.flat_ops import Attend, Gate, Joined, Norm, Turn
from gfcr.train.micro import MicroBatch

SHORT = 160
"""Longest rows whose attention weights are kept for the backward pass; longer ones recompute them (torch's own attention)."""

GAP = 1e-5
"""Largest difference of the probe's hidden states, as a share of the largest of them."""


class FlatForward:
    """Last hidden states of a known model (`serves`)."""

    def __init__(self, model: Any) -> None:
        config = model.config
        self.model, self.base, self.config = model, model.base_model, config
        self.heads, self.kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
        self.dim = int(getattr(config, "head_dim", None) or config.hidden_size // self.heads)
        device, rotated = next(model.parameters()).device, self.heads + self.kv_heads
        # a pair that rotates together lies side by side, as the two parts of a complex number
        self._pairs = torch.arange(self.dim, device=device).view(2, -1).T.flatten()
        self._order = (torch.arange(rotated, device=device)[:, None] * self.dim + self._pairs).flatten()

    @staticmethod
    def serves(model: Any) -> bool:
        """Whether this code knows every part of the model, in a number type and on a device it was proven on."""
        kinds = {(p.dtype, p.device.type) for p in model.parameters()}
        return kinds in ({(torch.float32, "cpu")}, {(torch.float64, "cpu")}) and known(model)

    @property
    def free(self) -> bool:
        """Whether nobody has hooked into the model, or asked it to recompute its layers."""
        return not (hooked(self.model) or any(getattr(m, "gradient_checkpointing", False) for m in self.model.modules()))

    def __call__(self, micro: MicroBatch) -> tuple[Tensor, int]:
        """(hidden states, float[n, hidden size] with gradient, of the tokens before the n wanted ones; tokens that went through the
        layers). The micro-batch's rows are chains."""
        flat = flatten(micro)
        device = self._pairs.device
        turns = self._turns(flat)
        places = [(b, _send(b.index, device), _send(b.owned, device)) for b in flat.blocks]
        masks: dict[tuple[int, int | None], Tensor] = {}
        table = self.base.embed_tokens  # a padding token inside the text trains no embedding, as in transformers
        x = embedding(_send(flat.ids, device), table.weight, table.padding_idx)
        for layer in self.base.layers:
            x = self._layer(layer, x, turns, places, masks)
        last = x.index_select(0, _send(flat.sources, device))
        return Norm.apply(last, self.base.norm.weight, self.base.norm.variance_epsilon), len(flat.ids)  # type: ignore[no-untyped-call]

    def _turns(self, flat: Flat) -> Tensor:
        """complex[u, 1, head dim / 2]: the rotation of each token."""
        weight = self.base.embed_tokens.weight
        with torch.no_grad():
            cos, sin = self.base.rotary_emb(weight, _send(flat.positions, weight.device)[None])
            half = self.dim // 2
            return torch.complex(cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous())[:, None]

    def _layer(self, layer: Any, x: Tensor, turns: Tensor, places: list[Any], masks: dict[Any, Tensor]) -> Tensor:
        own, mlp, norm = layer.self_attn, layer.mlp, layer.input_layernorm
        unit = Norm.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
        mixed = Joined.apply(unit, self._order, own.q_proj.weight, own.k_proj.weight)  # type: ignore[no-untyped-call]
        if own.q_proj.bias is not None:
            mixed = mixed + torch.cat([own.q_proj.bias, own.k_proj.bias]).index_select(0, self._order)
        value = linear(unit, own.v_proj.weight, own.v_proj.bias)
        gain, eps = self._gain(own, x)
        turned = Turn.apply(mixed.view(len(x), -1, self.dim), gain, eps, turns)  # type: ignore[no-untyped-call]
        seen = self._attend(own, turned, value, places, masks)
        x = _onto(x, seen, own.o_proj)
        norm = layer.post_attention_layernorm
        unit = Norm.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
        gate = linear(unit, mlp.gate_proj.weight, mlp.gate_proj.bias)
        up = linear(unit, mlp.up_proj.weight, mlp.up_proj.bias)
        return _onto(x, Gate.apply(gate, up), mlp.down_proj)  # type: ignore[no-untyped-call]

    def _gain(self, own: Any, x: Tensor) -> tuple[Tensor, float | None]:
        """Gains of the norms of queries and keys [heads, head dim], in pair order, and their eps; ones and None without."""
        if not hasattr(own, "q_norm"):
            return x.new_ones(self.heads + self.kv_heads, self.dim), None
        q, k = own.q_norm.weight[self._pairs], own.k_norm.weight[self._pairs]
        return torch.cat([q.expand(self.heads, -1), k.expand(self.kv_heads, -1)]), own.q_norm.variance_epsilon

    def _attend(self, own: Any, turned: Tensor, value: Tensor, places: list[Any], masks: dict[Any, Tensor]) -> Tensor:
        """float[u, heads * head dim] of turned queries and keys [u, heads, head dim] and values [u, kv heads * head dim]."""
        both, window = turned.flatten(1), window_of(self.config, own)
        parts = []
        for block, index, owned in places:
            mixed = both.index_select(0, index).view(block.rows, block.width, -1, self.dim).transpose(1, 2)
            values = value.index_select(0, index).view(block.rows, block.width, -1, self.dim).transpose(1, 2)
            query, key = mixed[:, : self.heads], mixed[:, self.heads :]
            out = self._rows(own, block, query, key, values, window, masks)
            parts.append(out.index_select(0, owned))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rows(
        self, own: Any, block: Block, query: Tensor, key: Tensor, value: Tensor, window: int | None, masks: dict[Any, Tensor]
    ) -> Tensor:
        """float[b * t, heads * head dim] of a block's [b, heads, t, head dim]."""
        rows, width, groups = block.rows, block.width, self.heads // self.kv_heads
        if (width, window) not in masks:
            ahead = torch.arange(width, device=query.device) - torch.arange(width, device=query.device)[:, None]
            hidden = ahead > 0 if window is None else (ahead > 0) | (ahead <= -window)
            masks[width, window] = query.new_zeros(width, width).masked_fill_(hidden, torch.finfo(query.dtype).min)
        mask = masks[width, window]
        if width > SHORT:
            out = scaled_dot_product_attention(query, key, value, mask, scale=float(own.scaling), enable_gqa=groups > 1)
        else:
            flat = (rows * self.kv_heads, -1, self.dim)
            one, two, three = query.reshape(flat), key.reshape(flat), value.reshape(flat)
            short = mask if groups == 1 else mask.repeat(groups, 1)
            out = Attend.apply(one, two, three, short, float(own.scaling))  # type: ignore[no-untyped-call]
            out = out.view(rows, self.heads, width, self.dim)
        return out.transpose(1, 2).reshape(rows * width, -1)


def proven(model: Any) -> tuple[FlatForward | None, int]:
    """(what runs this model, once it has agreed with the model's own trunk on a probe, else None; tokens that went through the
    model for it)."""
    if not FlatForward.serves(model):
        return None, 0
    vocabulary, places = int(model.config.vocab_size), getattr(model.config, "max_position_embeddings", None) or 12
    n = min(12, int(places))
    ids = (np.arange(3 * n).reshape(3, n) * 7919 + 1) % vocabulary
    ids[1, : n // 2] = ids[0, : n // 2]
    where, flat = np.arange(3 * n), FlatForward(model)
    with torch.no_grad():
        ours, through = flat(MicroBatch(ids, np.ones_like(ids), np.tile(np.arange(n), (3, 1)), None, where, where))
        theirs = model.base_model(input_ids=torch.from_numpy(ids), use_cache=False).last_hidden_state.flatten(0, 1)
    gap, scale = (ours - theirs).abs().max(), theirs.abs().max()
    right = bool(gap <= GAP * scale) or not bool(torch.isfinite(scale))
    return flat if right else None, through + ids.size


def _send(array: Any, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)


def _onto(x: Tensor, y: Tensor, layer: Any) -> Tensor:
    """x + layer(y)."""
    out = torch.addmm(x, y, layer.weight.T)
    return out if layer.bias is None else out + layer.bias
