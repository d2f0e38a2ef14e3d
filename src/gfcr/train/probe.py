"""Log-probabilities of a fixed probe under the weights in training, to hold an engine's answers against.

Invariant: they are computed by the very forward pass that the loss uses, adapter and all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gfcr.train.micro import MicroBatch

ROWS, LENGTH = 2, 8


def probe_ids(vocabulary: int) -> np.ndarray:
    """int32[2, 8]: the same random tokens for every model of that vocabulary."""
    return np.random.default_rng(0).integers(0, vocabulary, (ROWS, LENGTH)).astype(np.int32)


def probe_logps(trainer: Any) -> np.ndarray:
    """float32[2, 7]: log-probabilities (temperature 1) of each row's tokens but the first. Counted in `trainer.tokens`."""
    ids = probe_ids(trainer.policy.vocabulary)
    places = np.arange(ids.size).reshape(ids.shape)
    micro = MicroBatch(
        input_ids=ids.astype(np.int64),
        attention=np.ones_like(ids, np.int64),
        positions=np.broadcast_to(np.arange(LENGTH), ids.shape).copy(),
        parents=None,
        sources=places[:, :-1].ravel(),
        tokens=places[:, 1:].ravel(),
    )
    with torch.no_grad():
        logp, _ = trainer.policy(micro, ids[:, 1:].ravel(), np.ones(ids[:, 1:].size), entropy=False)
    return logp.float().cpu().numpy().reshape(ROWS, LENGTH - 1)
