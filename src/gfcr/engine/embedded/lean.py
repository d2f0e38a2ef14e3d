"""Small models in few tensor operations: the layers of the families that `known` names, over weights joined beforehand.

A small model's pass costs what its hundred small operations cost to start, not their arithmetic. Here queries, keys and values
are one product, gate and up another; norm gains, the attention scale and the rotary order are worked into the weights; rotations
come from a table, as complex numbers. The same function as transformers' own code up to rounding, which the engine's start-up
check proves; where it fails, or is off, the model runs as transformers has it.

Invariant: the joined weights are copies, made anew whenever the engine's weights change (`renew`), so nothing here answers with
old ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, silu

from gfcr.engine.embedded.passes import Rule
from gfcr.engine.known import known, window_of

LARGEST = 10_000_000
"""Parameters above which a copy of the weights costs more than the operations it saves."""


def lean(module: Any) -> bool:
    """Whether `Lean` can run this causal LM, and is worth its copy of the weights."""
    parameters = list(module.parameters())
    small = sum(p.numel() for p in parameters) <= LARGEST
    return small and {(p.dtype, p.device.type) for p in parameters} == {(torch.float32, "cpu")} and known(module)


@dataclass(slots=True)
class _Layer:
    """One layer's joined weights, as right-hand sides of products [in, out]."""

    attention: Any
    """The module whose attention this is."""
    window: int | None
    qkv: Tensor
    qkv_bias: Tensor | None
    gains: Tensor | None
    """[query and key heads, head dim]: gains of the norms of queries and keys, the scale in the first; None = no such norms."""
    eps: float
    o: Tensor
    o_bias: Tensor | None
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


class Lean:
    """The trunk of a model that `lean` knows."""

    def __init__(self, module: Any) -> None:
        self.config, self.base = module.config, module.base_model
        config = self.config
        self.heads, self.kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
        self.dim = int(getattr(config, "head_dim", None) or config.hidden_size // self.heads)
        self.eps = float(config.rms_norm_eps)
        self._mean = torch.full((int(config.hidden_size), 1), 1.0 / int(config.hidden_size))
        self._eps = torch.tensor(self.eps)
        # a pair that rotates together lies side by side, as the two parts of a complex number
        self._pairs = torch.arange(self.dim).view(2, -1).T.flatten()
        self._turns = torch.empty(0, 1, self.dim // 2, dtype=torch.complex64)
        self._layers: list[_Layer] = []
        self.renew()

    def renew(self) -> None:
        """Join the weights as they are now."""
        with torch.inference_mode():
            self._embedding = self.base.embed_tokens.weight.clone()
            self._gain = self.base.norm.weight.clone()
            self._layers = [self._join(layer) for layer in self.base.layers]

    def _join(self, layer: Any) -> _Layer:
        own, mlp = layer.self_attn, layer.mlp
        scale = float(own.scaling)
        normed = hasattr(own, "q_norm")
        first = 1.0 if normed else scale
        queries, keys = (self._paired(p.weight) for p in (own.q_proj, own.k_proj))
        biases = None
        if own.q_proj.bias is not None:
            biases = torch.cat([self._paired(own.q_proj.bias) * first, self._paired(own.k_proj.bias), own.v_proj.bias])
        gains = None
        if normed:
            q, k = own.q_norm.weight[self._pairs] * scale, own.k_norm.weight[self._pairs]
            gains = torch.cat([q.expand(self.heads, -1), k.expand(self.kv_heads, -1)])
        before, after = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        return _Layer(
            own,
            window_of(self.config, own),
            (torch.cat([queries * first, keys, own.v_proj.weight]) * before).T.contiguous(),
            biases,
            gains,
            float(own.q_norm.variance_epsilon) if normed else 0.0,
            own.o_proj.weight.T.contiguous(),
            _copy(own.o_proj.bias),
            (torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * after).T.contiguous(),
            None if mlp.gate_proj.bias is None else torch.cat([mlp.gate_proj.bias, mlp.up_proj.bias]),
            mlp.down_proj.weight.T.contiguous(),
            _copy(mlp.down_proj.bias),
        )

    def _paired(self, weight: Tensor) -> Tensor:
        """Rows of queries' or keys' heads in pair order."""
        return weight.view(-1, self.dim, *weight.shape[1:])[:, self._pairs].reshape(weight.shape)

    def _turn(self, positions: np.ndarray) -> Tensor:
        """complex64 [n, 1, head dim / 2]: the rotations of n positions."""
        if (most := int(positions.max()) + 1) > len(self._turns):
            at = torch.arange(-(-most // 256) * 256)[None]
            cos, sin = self.base.rotary_emb(self._embedding, at)
            half = self.dim // 2
            self._turns = torch.complex(cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous())[:, None]
        return self._turns.index_select(0, torch.from_numpy(positions.reshape(-1)))

    def _norm(self, x: Tensor) -> Tensor:
        """x / sqrt(mean(x^2) + eps), the gain left to the next weights."""
        return x * torch.addmm(self._eps, x * x, self._mean).rsqrt_()

    def hidden(self, ids: np.ndarray, positions: np.ndarray, work: Any) -> Tensor:
        """Last hidden states [n, length, hidden size], float32; as `Model.hidden`."""
        n, length = ids.shape
        turns = self._turn(positions)
        x = embedding(torch.from_numpy(ids.reshape(-1)), self._embedding)
        rotated, total = self.heads + self.kv_heads, self.heads + 2 * self.kv_heads
        for layer in self._layers:
            mixed = _product(self._norm(x), layer.qkv, layer.qkv_bias).view(n * length, total, self.dim)
            turning = mixed[:, :rotated]
            if layer.gains is not None:
                turning = turning * (turning * turning).mean(-1, keepdim=True).add_(layer.eps).rsqrt_()
                turning.mul_(layer.gains)
            pairs = torch.view_as_complex(turning.unflatten(-1, (-1, 2)))
            turning = torch.view_as_real(pairs * turns).view(n, length, rotated, self.dim)
            query, key = turning[:, :, : self.heads].transpose(1, 2), turning[:, :, self.heads :].transpose(1, 2)
            value = mixed.view(n, length, total, self.dim)[:, :, rotated:].transpose(1, 2)
            work.layers += 1
            seen = work.attend(layer.attention, query, key, value, Rule(1.0, layer.window, None))
            x = _onto(x, seen.reshape(n * length, -1), layer.o, layer.o_bias)
            both = _product(self._norm(x), layer.gate_up, layer.gate_up_bias)
            half = both.shape[1] // 2
            x = _onto(x, silu(both[:, :half]).mul_(both[:, half:]), layer.down, layer.down_bias)
        return (self._norm(x).mul_(self._gain)).view(n, length, -1)


def _copy(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)


def _onto(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x + y @ weight + bias."""
    out = torch.addmm(x, y, weight)
    return out if bias is None else out.add_(bias)
