"""Rows of a gfcr batch as the tensors TRL's GRPO loss reads.

Invariants: a row's prompt ends where its first loss token begins, so several turns, injected answers and guidance need no case of
their own; `tool_mask` is the RL mask and nothing else; advantages are by token, already times the off-policy weights; outside
the mask stand zeros, never NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gfcr.types import Batch


def inputs_of(batch: Batch, rows: Sequence[int] | np.ndarray, pad: int, multiple: int | None = None) -> dict[str, Tensor]:
    """`prompt_ids`, `prompt_mask` [B, P] (left-padded), `completion_ids`, `completion_mask`, `tool_mask` (int64) and `advantages`
    (float32) [B, C] (right-padded). `multiple`: pad lengths to a multiple of it."""
    cuts = [_cut(batch, int(row)) for row in rows]
    wide = _up(max((first - start for start, first, _ in cuts), default=1), multiple)
    long = _up(max((end - first for _, first, end in cuts), default=1), multiple)
    shape, n = (len(cuts), long), len(cuts)
    prompt, prompt_mask = np.full((n, wide), pad, np.int64), np.zeros((n, wide), np.int64)
    ids, mask, loss = np.full(shape, pad, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    advantages = np.zeros(shape, np.float32)
    weighted = np.where(batch.rl_mask, batch.advantages * batch.rl_weights, 0.0).astype(np.float32)
    for i, (start, first, end) in enumerate(cuts):
        prompt[i, wide - (first - start) :] = batch.input_ids[start:first]
        prompt_mask[i, wide - (first - start) :] = 1
        ids[i, : end - first] = batch.input_ids[first:end]
        mask[i, : end - first] = 1
        loss[i, : end - first] = batch.rl_mask[first:end]
        advantages[i, : end - first] = weighted[first:end]
    return {
        "prompt_ids": torch.from_numpy(prompt),
        "prompt_mask": torch.from_numpy(prompt_mask),
        "completion_ids": torch.from_numpy(ids),
        "completion_mask": torch.from_numpy(mask),
        "tool_mask": torch.from_numpy(loss),
        "advantages": torch.from_numpy(advantages),
    }


def spread(batch: Batch, rows: Sequence[int] | np.ndarray, values: np.ndarray, like: Tensor) -> Tensor:
    """Per-token `values` float[N] of these rows in the shape of `like` [B, C]; 0 outside the RL mask and where they are NaN."""
    out = np.zeros(like.shape, np.float32)
    for i, row in enumerate(rows):
        _, first, end = _cut(batch, int(row))
        out[i, : end - first] = np.where(batch.rl_mask[first:end] & ~np.isnan(values[first:end]), values[first:end], 0.0)
    return torch.from_numpy(out)


def gather(batch: Batch, rows: Sequence[int] | np.ndarray, padded: Tensor, into: np.ndarray) -> None:
    """Inverse of `spread`: write the padded values of these rows where the RL mask is."""
    values = padded.detach().to("cpu", torch.float32).numpy()
    for i, row in enumerate(rows):
        _, first, end = _cut(batch, int(row))
        into[first:end] = np.where(batch.rl_mask[first:end], values[i, : end - first], into[first:end])


def loss_tokens(batch: Batch) -> int:
    """Tokens with an RL loss: TRL's `num_items_in_batch`."""
    return int(np.count_nonzero(batch.rl_mask))


def trainable(batch: Batch) -> np.ndarray:
    """int64[n]: rows with a loss token."""
    return np.flatnonzero(np.bincount(batch.row_of_token()[batch.rl_mask], minlength=len(batch)))


def like_lengths(lengths: np.ndarray, most: int, least_share: float = 0.7) -> list[np.ndarray]:
    """Row indices in passes of at most `most` rows, the longest first, in each of which the shortest row has `least_share` of the
    longest one's tokens (few rows go along all the same: a pass costs too)."""
    order = np.argsort(-lengths, kind="stable")
    out, start = [], 0
    for at in range(1, len(order) + 1):
        full = at - start >= most
        short = at < len(order) and lengths[order[at]] < least_share * lengths[order[start]] and at - start >= 8
        if at == len(order) or full or short:
            out.append(order[start:at])
            start = at
    return out


def _cut(batch: Batch, row: int) -> tuple[int, int, int]:
    """(start, first loss token, one past the last) of a row that has one."""
    start, stop = int(batch.offsets[row]), int(batch.offsets[row + 1])
    places = np.flatnonzero(batch.rl_mask[start:stop])
    return start, start + int(places[0]), start + int(places[-1]) + 1


def _up(n: int, multiple: int | None) -> int:
    return n if not multiple else -(-n // multiple) * multiple
