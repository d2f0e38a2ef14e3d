"""Publication of weights to the engine, and the proof that they answer.

Invariants: after every publication the engine scores a fixed probe, and what it says is held against the trainer's own forward
pass, so an adapter or a tensor that never arrives ends the run with the figure instead of being lost for months (verl 7495,
unsloth 8701); the probe's tokens are in the ledger.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gfcr.engine.contract import Engine, ScoreItem, WeightsRef
from gfcr.errors import GfcrError
from gfcr.types import Sampling

if TYPE_CHECKING:
    from gfcr.train.trainer import Trainer

GAP = {"float32": 1e-3, "float64": 1e-3}
"""Largest mean difference of the probe's log-probabilities down to -10, in nats, relative below; half precisions get `HALF`."""
HALF = 0.25


class StaleWeights(GfcrError):
    """The engine does not answer with the weights that were published."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the engine answered after a publication."""

    fingerprint: str
    """Digest of its log-probabilities on the probe."""
    gap: float | None
    """Mean difference from the trainer's, in nats; None for an engine without a model, and for weights that are not finite."""
    scored: int
    """Tokens the engine put through its model for it."""
    trained: int
    """Tokens the trainer did."""


def publish(trainer: Trainer, engine: Engine, version: int) -> None:
    """Serve the trainer's weights as `version`."""
    engine.load(WeightsRef(version, "memory:"), trainer.weights())


def prove(trainer: Trainer, engine: Engine, version: int) -> Proof:
    """Ask the engine for the probe. Raises StaleWeights when its answers are not those of the trainer's weights."""
    from gfcr.train.probe import probe_ids, probe_logps  # torch

    able, before, counted = engine.capabilities(), engine.usage().scored, trainer.tokens
    ids = probe_ids(trainer.policy.vocabulary)
    spans = ((1, ids.shape[1], Sampling()),)
    scores = engine.score([ScoreItem(f"probe{i}", row, spans) for i, row in enumerate(ids)])
    if len(scores) < len(ids):
        raise StaleWeights(
            f"after the publication of version {version} the engine scored {len(scores)} of {len(ids)} probes",
            "look at the engine's servers, then resume: everything committed is kept",
        )
    answered = np.stack([score.logprobs[1:] for score in scores])
    fingerprint = hashlib.blake2b(answered.astype(np.float32).tobytes(), digest_size=16).hexdigest()
    gap: float | None = None
    if able.name != "scripted":
        wanted = probe_logps(trainer)
        found = float(np.abs(answered - wanted).mean())
        gap = found if np.isfinite(found) else None  # streams under weights that are not finite end FAILED
        scale = max(1.0, float(np.nan_to_num(np.abs(wanted)).max()) / 10)
        allowed = scale * max(GAP.get(str(dtype), HALF) for dtype in (able.details.get("dtype"), trainer.settings.dtype))
        if gap is not None and gap > allowed:
            raise StaleWeights(
                f"after the publication of version {version} the engine's log-probabilities of the probe are {gap:.3g} nats off"
                f" the trainer's on average, allowed is {allowed:.3g}: the weights did not arrive",
                "a bug in publication; report it with the recipe and the model's config.json",
            )
    return Proof(fingerprint, gap, engine.usage().scored - before, trainer.tokens - counted)
