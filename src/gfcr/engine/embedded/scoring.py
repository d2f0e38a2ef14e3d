"""Scoring: log-probabilities and entropies of given tokens under given laws, by full forward passes.

Invariants: scoring touches no running stream; the token at offset t is scored by the logits at t - 1, under the same law
code that samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gfcr.engine.contract import Score, ScoreItem
from gfcr.engine.embedded.law import Laws, entropy, log_law
from gfcr.engine.embedded.model import Model, batches, pad
from gfcr.engine.embedded.passes import FullPass

LOGITS = 1 << 24
"""Most numbers of a block of logits."""


def score(model: Model, laws: Laws, items: Sequence[ScoreItem], max_length: int, batch_tokens: int) -> list[Score]:
    """One Score per item, in order. Raises ValueError for a span outside its item or an item longer than the model."""
    for item in items:
        _check(item, max_length, model.vocabulary)
    offsets = np.concatenate([[0], np.cumsum([len(item.ids) for item in items])]).astype(np.int64)
    flat = np.concatenate([item.ids for item in items]) if items else np.empty(0, np.int32)
    logprobs, entropies = np.full(len(flat), np.nan, np.float32), np.full(len(flat), np.nan, np.float32)
    # Tokens after the last span need no pass.
    lengths = [max((end for _, end, _ in item.spans), default=0) - 1 for item in items]
    todo = [i for i, n in enumerate(lengths) if n > 0]
    for group in batches([lengths[i] for i in todo], batch_tokens):
        picked = [todo[j] for j in group]
        some = [items[i] for i in picked]
        ids, positions = pad([item.ids[: lengths[i]] for item, i in zip(some, picked)], [0] * len(picked))
        hidden = model.hidden(ids, positions, FullPass())
        row, at, law = _targets(some, laws)
        step = max(1, LOGITS // model.vocabulary)
        for a in range(0, len(row), step):
            r, t, numbers = row[a : a + step], at[a : a + step], law[a : a + step]
            path, sampled = _counts(some, r, t, numbers, laws)
            logits = model.head(hidden[torch.from_numpy(r).to(model.device), torch.from_numpy(t - 1).to(model.device)])
            logp, _ = log_law(logits, laws.rows(numbers), path, sampled)
            place = offsets[picked][r] + t
            tokens = torch.from_numpy(flat[place].astype(np.int64)).to(model.device)
            logprobs[place] = logp.gather(1, tokens[:, None])[:, 0].cpu().numpy()
            entropies[place] = entropy(logp).cpu().numpy()
    cuts = offsets[1:-1]
    return [Score(i.id, p, h) for i, p, h in zip(items, np.split(logprobs, cuts), np.split(entropies, cuts))]


def _check(item: ScoreItem, max_length: int, vocabulary: int) -> None:
    n = len(item.ids)
    if n > max_length:
        raise ValueError(f"score item {item.id!r} has {n} tokens; the model takes {max_length}")
    if n and not (item.ids.min() >= 0 and item.ids.max() < vocabulary):
        raise ValueError(f"score item {item.id!r} holds a token outside the vocabulary of {vocabulary}")
    for start, end, _ in item.spans:
        if not 1 <= start < end <= n:
            raise ValueError(f"score item {item.id!r}: span ({start}, {end}) must lie in [1, {n}]; token 0 has no context")


def _targets(items: Sequence[ScoreItem], laws: Laws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, offset and law number of every token to score."""
    rows, offsets, numbers = [], [], []
    for i, item in enumerate(items):
        for start, end, law in item.spans:
            rows.append(np.full(end - start, i))
            offsets.append(np.arange(start, end))
            numbers.append(np.full(end - start, laws.number(law)))
    return np.concatenate(rows), np.concatenate(offsets), np.concatenate(numbers)


def _counts(
    items: Sequence[ScoreItem],
    rows: np.ndarray,
    offsets: np.ndarray,
    numbers: np.ndarray,
    laws: Laws,
) -> tuple[Tensor | None, Tensor | None]:
    """Token counts before each position, of the path and of the spans; None when no law penalises."""
    if not any(laws.penalised(i) for i in np.unique(numbers)):
        return None, None
    path = np.zeros((len(rows), laws.vocabulary), np.int32)
    sampled = np.zeros_like(path)
    for k, (i, t) in enumerate(zip(rows, offsets)):
        item = items[i]
        np.add.at(path[k], item.ids[:t], 1)
        for start, end, _ in item.spans:
            np.add.at(sampled[k], item.ids[start : min(end, t)], 1)
    return torch.from_numpy(path).to(laws.device), torch.from_numpy(sampled).to(laws.device)
