"""The differentiable pieces of `flat_forward`, each one operation to autograd, with its gradient written out.

Invariant: every gradient equals that of the formula in its docstring (`tests/train/test_train_flat.py`, finite differences in
float64); nothing here keeps state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Norm(Function):
    """x / sqrt(mean(x^2) + eps) * gain over the last dimension: RMSNorm, arXiv:1910.07467. x float[n, d], gain float[d]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        factor = (x * x).mean(-1, keepdim=True).add_(eps).rsqrt_()
        unit = x * factor
        ctx.save_for_backward(unit, factor, gain)
        return unit * gain

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        unit, factor, gain = ctx.saved_tensors
        grad = grads[0]
        product = grad * unit
        along = torch.mv(product, gain).mul_(1.0 / len(gain))[:, None]
        return torch.addcmul(grad * gain, unit, along, value=-1.0).mul_(factor), product.sum(0), None


class Turn(Function):
    """Queries' and keys' heads, normalised where the model does, times gains, turned by their positions' angles.

    y = x / sqrt(mean(x^2) + eps) * gain over each head (eps None: y = x * gain), and the pairs of neighbours of y as complex
    numbers times `turns`: rotary positions, arXiv:2104.09864. x float[n, h, d], gain float[h, d], turns complex[n, 1, d / 2].
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float | None, turns: Tensor) -> Tensor:
        factor = None
        if eps is not None:
            factor = (x * x).mean(-1, keepdim=True).add_(eps).rsqrt_()
            x = x * factor
        ctx.save_for_backward(x, factor, gain, turns)
        return _turned(x * gain, turns)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        unit, factor, gain, turns = ctx.saved_tensors
        grad = _turned(grads[0].contiguous(), turns.conj())
        product = grad * unit if factor is not None or ctx.needs_input_grad[1] else None
        along_gain = product.sum(0) if product is not None and ctx.needs_input_grad[1] else None
        out = grad * gain
        if factor is None or product is None:
            return out, along_gain, None, None
        along = product.mul_(gain).mean(-1, keepdim=True)
        return out.sub_(along.mul(unit)).mul_(factor), along_gain, None, None


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)


class Attend(Function):
    """softmax(scale q k^T + mask) v of short rows. q float[b, g t, d], k, v float[b, t, d], mask float[g t, t], additive."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
        seen = torch.softmax(torch.baddbmm(mask, q, k.transpose(1, 2), alpha=scale), -1)
        ctx.save_for_backward(q, k, v, seen)
        ctx.scale = scale
        return torch.bmm(seen, v)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, seen = ctx.saved_tensors
        grad = grads[0].contiguous()
        scores = torch._softmax_backward_data(torch.bmm(grad, v.transpose(1, 2)), seen, -1, seen.dtype)
        scores.mul_(ctx.scale)
        return torch.bmm(scores, k), torch.bmm(scores.transpose(1, 2), q), torch.bmm(seen.transpose(1, 2), grad), None, None


class Gate(Function):
    """silu(gate) * up, arXiv:2002.05202; both float[n, d]."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        open_ = torch.sigmoid(gate)
        through = gate * open_
        ctx.save_for_backward(open_, through, up)
        return through * up

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        open_, through, up = ctx.saved_tensors
        grad = grads[0]
        # d silu = open + silu (1 - open)
        slope = torch.addcmul(open_, through, 1.0 - open_)
        return slope.mul_(up).mul_(grad), grad * through


class Joined(Function):
    """x @ cat(weights)[order].T: one product for several linear layers. x float[n, i], weights float[o_k, i], order int64[sum o_k] or
    None for the weights as they come."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor | None, *weights: Tensor) -> Tensor:
        weight = torch.cat(weights)
        if order is not None:
            weight = weight.index_select(0, order)
        ctx.save_for_backward(x, order, weight)
        ctx.sizes = [len(w) for w in weights]
        return torch.mm(x, weight.T)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, order, weight = ctx.saved_tensors
        grad = grads[0]
        slopes = torch.mm(grad.T, x)
        if order is not None:
            slopes = torch.empty_like(slopes).index_copy_(0, order, slopes)
        return torch.mm(grad, weight), None, *slopes.split(ctx.sizes)
