"""What TRL's AsyncGRPOTrainer needs to run without a GPU.

Two things in it assume one: its attention (samples packed into a prefix tree, a FlashAttention-3 kernel), and a question for the GPU's
name when it is made. `tree_attention` is the same function in plain torch: every segment of the tree attends, causally, to the keys
on its own path to the root.
Invariants: gradients flow; what a sample sees is exactly what it saw alone (tests compare with the unpacked forward pass).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from trl.experimental.async_grpo import async_grpo_trainer
from trl.experimental.async_grpo.packing import TREE_ATTENTION

from gfcr.errors import ConfigError


def tree_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    *,
    tree_kv_index: Tensor,
    tree_cu_seqlens_q: Tensor,
    tree_cu_seqlens_k: Tensor,
    tree_max_seqlen_q: int,
    tree_max_seqlen_k: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """As TRL's: `query` [1, H, N, D], `key` and `value` [1, Hkv, N, D] -> [1, N, H, D]. Segment s holds the queries
    [cu_q[s], cu_q[s+1]) and sees the keys kv_index[cu_k[s]:cu_k[s+1]], of which its own tokens are the last."""
    if softcap:
        raise ConfigError(
            f"attention with a soft cap ({softcap}) is not supported by the CPU tree attention",
            "train on a GPU, or another model",
        )
    n_q, n_k = tree_cu_seqlens_q.diff(), tree_cu_seqlens_k.diff()
    q_at, q_real = _padded(tree_cu_seqlens_q[:-1], n_q, int(tree_max_seqlen_q))
    k_at, k_real = _padded(tree_cu_seqlens_k[:-1], n_k, int(tree_max_seqlen_k))
    place = tree_kv_index[k_at]
    # the last of a segment's own tokens stands at the end of its path: query i is the key at n_k - n_q + i
    own = (n_k - n_q)[:, None] + torch.arange(int(tree_max_seqlen_q))
    keys = torch.arange(int(tree_max_seqlen_k))
    allowed = k_real[:, None, :] & (keys <= own[:, :, None])
    if sliding_window:
        allowed &= keys > own[:, :, None] - sliding_window
    allowed |= ~q_real[:, :, None]  # rows of padding see something, so that their softmax is finite
    out = scaled_dot_product_attention(
        query[0].transpose(0, 1)[q_at].transpose(1, 2),
        key[0].transpose(0, 1)[place].transpose(1, 2),
        value[0].transpose(0, 1)[place].transpose(1, 2),
        attn_mask=allowed[:, None],
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out.transpose(1, 2)[q_real].unsqueeze(0), None


def _padded(starts: Tensor, lengths: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """(index, whether it is real) [S, longest] of ragged runs; padding points at each run's first entry."""
    offsets = torch.arange(longest)
    real = offsets < lengths[:, None]
    return (starts[:, None] + torch.where(real, offsets, 0)).long(), real


def adapt_constructor() -> None:
    """Without CUDA the trainer asks no GPU for its name; its MFU figures are left out, as for an unknown device."""
    if not torch.cuda.is_available():
        async_grpo_trainer.get_peak_flops_per_device = lambda accelerator, dtype: None


def adapt_attention() -> None:
    """Without CUDA, put `tree_attention` in the place of TRL's kernel, which TRL registers when the trainer is made."""
    if not torch.cuda.is_available():
        AttentionInterface.register(TREE_ATTENTION, tree_attention)
