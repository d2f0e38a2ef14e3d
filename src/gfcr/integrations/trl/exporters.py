"""What each way into TRL carries. Invariant: no TRL import, so that a recipe can be checked where TRL is not installed."""

from __future__ import annotations

from gfcr.integrations.carry import Exporter, Need
from gfcr.types import Normalise

TRAINER = Exporter(
    "GfcrGRPOTrainer",
    frozenset(Need) - {Need.CROSS_ENTROPY, Need.PREFERENCES, Need.MEDIA, Need.TEMPERATURES},
    frozenset(Normalise),
    "train it with gfcr's own trainer (`gfcr run`): TRL's GRPO loss has no term for it",
)
WORKER = Exporter(
    "TRL's RolloutSample",
    frozenset(Need) - {Need.PER_TOKEN, Need.CROSS_ENTROPY, Need.PREFERENCES, Need.MEDIA, Need.TEMPERATURES},
    frozenset({Normalise.TOKEN_MEAN}),
    "use GfcrGRPOTrainer; a RolloutSample has one advantage for all its tokens, and AsyncGRPO's loss is a mean over tokens",
)
ROLLOUT_FUNC = Exporter(
    "TRL's rollout_func",
    frozenset(),
    frozenset(Normalise),
    "use GfcrGRPOTrainer, whose batches are the recipe's own; here TRL chooses the tasks, every prompt gets the same number of "
    "completions, and TRL computes the advantages from their rewards (recipe trl_grpo is plain GRPO in TRL's convention)",
)
