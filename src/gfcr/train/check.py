"""What a batch must hold before it may change weights. Invariant: a number that would reach the loss is finite, or the error
names the row, the rollout, the token, the value and the remedy; numbers outside the masks are never looked at.
"""

from __future__ import annotations

import numpy as np

from gfcr.errors import ConfigError, DataError
from gfcr.types.batch import Batch, Normalise


def _refuse(batch: Batch, bad: np.ndarray, field: str, value: object, remedy: str) -> None:
    if not len(bad):
        return
    token = int(bad[0])
    row = int(batch.row_of_token()[token])
    raise DataError(
        f"batch.{field} is {value} at token {token - int(batch.offsets[row])} of row {row} (rollout"
        f" {batch.rollout_ids[row]}, round {batch.round}); {len(bad)} such token(s) in the batch",
        remedy,
    )


def check_batch(batch: Batch, vocabulary: int, kl: float = 0.0) -> None:
    """Raise DataError or ConfigError unless every number that reaches the loss is usable.

    `vocabulary`: size of the model's output in tokens; `kl`: coefficient of the KL term.
    """
    if batch.preferences:
        raise ConfigError(
            f"the batch holds {len(batch.preferences)} preference pairs; the reference trainer has no preference loss",
            "train pairs in a trainer that has one, or use a credit method that yields advantages",
        )
    if kl and batch.multiplicity is not None and batch.normalise is Normalise.SEQUENCE_MEAN:
        raise ConfigError(
            f"train.kl = {kl} on packed trees under sequence-mean: a shared token's KL would need the length of each leaf",
            "set loss.normalise = 'token-mean' or 'constant', or hand out trees per leaf instead of packed",
        )
    if batch.media:
        raise ConfigError(
            f"the batch holds media for rows {sorted(batch.media)[:5]}; the reference trainer reads text only",
            "train multimodal rows in a trainer that reads media",
        )
    needed = batch.rl_mask | (batch.ce_weights != 0)
    local = np.arange(len(needed)) - batch.offsets[:-1][batch.row_of_token()]
    before = local - 1 if batch.parents is None else batch.parents
    late = np.flatnonzero((before >= local) | (before < -1))
    _refuse(batch, late, "parents", before[late[0]] if len(late) else None, "store every token after the one it continues")
    orphans = np.flatnonzero(needed & (before < 0))
    _refuse(
        batch,
        orphans,
        "rl_mask or ce_weights",
        "on, without a token before it to give its probability,",
        "start every prompt with at least one token (a beginning-of-text id)",
    )
    for field, mask, remedy in (
        ("advantages", batch.rl_mask, "drop the member or mask its tokens: an undefined advantage is no zero"),
        ("rl_weights", batch.rl_mask, "give every RL token a finite weight; 1 where nothing corrects it"),
        ("ce_weights", batch.ce_weights != 0, "give every token a finite cross-entropy weight; 0 where none"),
    ):
        values = getattr(batch, field)
        bad = np.flatnonzero(mask & ~np.isfinite(values))
        _refuse(batch, bad, field, values[bad[0]] if len(bad) else None, remedy)
    outside = np.flatnonzero((batch.input_ids < 0) | (batch.input_ids >= vocabulary))
    _refuse(
        batch,
        outside,
        "input_ids",
        batch.input_ids[outside[0]] if len(outside) else None,
        f"token ids lie in [0, {vocabulary}); was the batch made with another tokenizer?",
    )
    cold = np.flatnonzero(batch.rl_mask & (batch.temperature <= 0))
    _refuse(
        batch,
        cold,
        "temperature",
        batch.temperature[cold[0]] if len(cold) else None,
        "a greedy law has no gradient: sample at a temperature above 0, or keep greedy tokens out of the RL mask",
    )
