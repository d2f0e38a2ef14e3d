"""Preference pairs in a minibatch.

Invariants: a pair's rows train in one minibatch; a pair's loss needs both rows whole, and rows may lie in different
micro-batches, so its derivative by each row's log-probability is taken first and the micro-batches carry it on: the gradient
is that of one pass, however the minibatch is cut. The loss is the pairs' weighted mean over the whole minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gfcr.train.losses import preference_loss
from gfcr.train.settings import LossSettings
from gfcr.types.batch import Batch


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """A minibatch's pairs under given log-probabilities."""

    slopes: np.ndarray
    """float64[N]: derivative of the loss by each token's log-probability; 0 outside the pairs."""
    loss: float
    right: int
    """Pairs whose chosen answer gained more over the reference than the rejected one."""
    margin: float
    """Sum over pairs of beta times the difference of the two gains, in nats (DPO's implicit reward)."""


def pair_tokens(batch: Batch) -> np.ndarray:
    """bool[N]: tokens that a pair of this batch compares."""
    if not batch.preferences or batch.pair_mask is None:
        return np.zeros(len(batch.input_ids), bool)
    rows = np.zeros(len(batch), bool)
    for pair in batch.preferences:
        rows[[pair.chosen, pair.rejected]] = True
    return np.asarray(batch.pair_mask & rows[batch.row_of_token()])


def pair_units(batch: Batch, active: np.ndarray) -> list[np.ndarray]:
    """The rows `active` (int[A], rising) in parts that may not be separated: rows joined by pairs, and single rows."""
    if not batch.preferences:
        return [active[i : i + 1] for i in range(len(active))]
    root = np.arange(len(batch))

    def find(row: int) -> int:
        while root[row] != row:
            root[row] = root[root[row]]
            row = int(root[row])
        return row

    for pair in batch.preferences:
        a, b = sorted((find(pair.chosen), find(pair.rejected)))
        root[b] = a
    units: dict[int, list[int]] = {}
    for row in active.tolist():
        units.setdefault(find(row), []).append(row)
    return [np.asarray(rows, np.int64) for rows in units.values()]


def compare(part: Batch, logps: np.ndarray, reference: np.ndarray, settings: LossSettings) -> Pairs:
    """The pairs' loss and its slopes. `logps`, `reference`: float[N], used on `pair_tokens` only."""
    tokens = pair_tokens(part)
    row = part.row_of_token()
    count = np.bincount(row[tokens], minlength=len(part))
    share = 1.0 / np.maximum(count, 1) if settings.mean_of_tokens else np.ones(len(part))

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(row[tokens], values[tokens].astype(np.float64), minlength=len(part)) * share

    policy = torch.tensor(total(logps), requires_grad=True)
    base = torch.tensor(total(reference))
    chosen = torch.tensor([p.chosen for p in part.preferences])
    rejected = torch.tensor([p.rejected for p in part.preferences])
    weight = torch.tensor([p.weight for p in part.preferences], dtype=torch.float64)
    margin, known = policy[chosen] - policy[rejected], base[chosen] - base[rejected]
    each = preference_loss(
        margin, known, beta=settings.beta, squared=settings.kind == "ipo", smoothing=settings.label_smoothing
    )
    loss = (weight * each).sum() / weight.sum()
    loss.backward()
    assert policy.grad is not None
    gain = (margin - known).detach()
    return Pairs(
        np.where(tokens, (policy.grad.numpy() * share)[row], 0.0),
        float(loss.detach()),
        int((gain > 0).sum()),
        float(settings.beta * gain.sum()),
    )
