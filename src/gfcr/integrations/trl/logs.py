"""A round in TRL's log. Invariant: a figure of nothing is left out, never 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gfcr.integrations.rounds import Fed

if TYPE_CHECKING:
    from gfcr.integrations.trl.trainer import GfcrGRPOTrainer

_NAMES = {
    "reward_mean": "reward",
    "response_length_mean": "completions/mean_length",
    "share_truncated": "completions/clipped_ratio",
    "tokens_generated": "gfcr/tokens_generated",
    "tokens_discarded": "gfcr/tokens_discarded",
    "share_mixed": "gfcr/share_mixed",
    "share_all_wrong": "gfcr/share_all_wrong",
    "share_all_right": "gfcr/share_all_right",
    "share_unscorable": "gfcr/share_unscorable",
    "groups": "gfcr/groups",
    "groups_trained": "gfcr/groups_trained",
    "injected": "gfcr/injected",
    "rows": "gfcr/rows",
}
"""The metrics row's names -> TRL's where it has one."""


def log_round(trainer: GfcrGRPOTrainer, fed: Fed) -> None:
    """Put the round's figures where TRL's `log` finds them, and its answers where `log_completions` does."""
    sink = trainer._metrics["train"]
    for own, name in _NAMES.items():
        if (value := fed.metrics.get(own)) is not None:
            sink[name].append(float(value))
    trainer.state.num_input_tokens_seen = int(fed.metrics["tokens_generated"] + fed.metrics["tokens_prefilled"])
    sink["num_tokens"] = [float(trainer.state.num_input_tokens_seen)]
    if trainer.log_completions:
        _completions(trainer, fed)


def _completions(trainer: Any, fed: Fed) -> None:
    decode = trainer.rounds.parts.renderer.decoder()
    batch = fed.batch
    rewards = next(iter(batch.rewards.values()), np.full(len(batch), np.nan))
    for i in range(len(batch)):
        start, stop = batch.offsets[i], batch.offsets[i + 1]
        mask = batch.rl_mask[start:stop]
        ids = batch.input_ids[start:stop]
        trainer._logs["prompt"].append(decode(ids[: int(np.argmax(mask))]))
        trainer._logs["completion"].append(decode(ids[mask]))
        trainer._logs["advantages"].append(float(batch.advantages[start:stop][mask].mean()))
        trainer._logs["rewards"]["gfcr"].append(float(rewards[i]))
