"""TRL's log-probabilities from the trunk over distinct tokens (`gfcr.train.flat_forward`).

Invariants: the same numbers as TRL's own pass up to rounding, with its temperature and its shapes; a mask with holes, a model that is
not known part by part, other precisions and whoever watches the model send a pass back to TRL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfcr.train.flat_forward import FlatForward, proven
from gfcr.train.micro import MicroBatch


class Flats:
    """By model: what runs it, found at its first pass."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self._known: dict[int, tuple[Any, FlatForward | None]] = {}

    def of(self, model: Any) -> FlatForward | None:
        """What runs this model now; None = TRL itself."""
        if id(model) not in self._known:
            self._known[id(model)] = model, proven(model)[0] if hasattr(model, "base_model") else None
        flat = self._known[id(model)][1]
        return flat if flat is not None and flat.free else None

    def logps(
        self, flat: FlatForward, ids: Tensor, mask: Tensor, keep: int, entropy: bool
    ) -> tuple[Tensor, Tensor | None] | None:
        """Log-probabilities (with gradient) and entropies [B, keep] of the last `keep` columns, 0 where padded; None where a row's
        mask has holes or nothing before its first token. `ids`, `mask` int64 [B, T], prompts padded at the left, answers at the right."""
        found = _rows(ids.numpy(), mask.numpy(), keep)
        if found is None:
            return None
        micro, places, targets = found
        states, _ = flat(micro)
        head = flat.model.get_output_embeddings()
        logits = head(states)
        if self.temperature != 1.0:
            logits = logits / self.temperature
        logs = torch.log_softmax(logits, -1)
        picked = logs.gather(1, torch.from_numpy(targets)[:, None])[:, 0]
        at, size = torch.from_numpy(places), len(ids) * keep
        spread = picked.new_zeros(size).index_copy(0, at, picked).view(-1, keep)
        if not entropy:
            return spread, None
        with torch.no_grad():
            law = -(logs.exp() * logs).sum(-1)
            return spread, law.new_zeros(size).index_copy_(0, at, law).view(-1, keep)


def _rows(ids: np.ndarray, mask: np.ndarray, keep: int) -> tuple[MicroBatch, np.ndarray, np.ndarray] | None:
    """The rows without padding, the longest first; where each answer's token goes in [B, keep], and its id."""
    real = mask.astype(bool)
    lengths, start = real.sum(1), real.argmax(1)
    answers = real[:, -keep:].sum(1)
    column = np.arange(ids.shape[1])
    whole = (column >= start[:, None]) & (column < (start + lengths)[:, None])
    if not len(ids) or not np.array_equal(whole, real) or (answers >= lengths).any() or not answers.any():
        return None
    passed = lengths - 1  # a row's last token needs no pass
    order = np.argsort(-passed, kind="stable")
    width = int(passed[order[0]])
    place = np.arange(width)
    inside = place < passed[order, None]
    source = np.minimum(start[order, None] + place, ids.shape[1] - 1)
    counts = answers[order]
    row = np.repeat(np.arange(len(order)), counts)
    within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    target = lengths[order][row] - counts[row] + within
    flat_target = start[order][row] + target
    micro = MicroBatch(
        input_ids=np.where(inside, ids[order[:, None], source], 0),
        attention=inside.astype(np.int64),
        positions=np.where(inside, place, 0),
        parents=None,
        sources=row * width + target - 1,
        tokens=np.arange(len(row)),
    )
    return micro, order[row] * keep + flat_target - (ids.shape[1] - keep), ids[order[row], flat_target]
