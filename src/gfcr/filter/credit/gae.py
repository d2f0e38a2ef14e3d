"""Rewards for a critic: what PPO's value head and GAE make advantages of.

Invariants: a reward lies on one of the member's own tokens; the outcome on the last one, so an answer without tokens of its
own has no place for it and leaves the loss; a step whose scorer abstained has no reward, not 0 by accident of the mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gfcr.context import Build
from gfcr.filter.credit.batch import rl_tokens
from gfcr.filter.credit.supervised import reward_of
from gfcr.filter.steps import scored_steps
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Credit, Group, Member


@method(
    "gae",
    Slot.CREDIT,
    title="PPO with generalised advantage estimation",
    arxiv="1506.02438",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("yields: rewards", "per-token advantages", "handles: uneven groups", "baseline: batch"),
)
class GAE:
    """The outcome's reward on the last own token; the trainer's value head turns rewards into advantages (arXiv:1506.02438;
    gamma, lambda and the head stand in [train.value]). Needs no group: fit for generate.topology = "linear"."""

    class Settings(FrozenModel):
        steps: float = 0.0
        """Factor of step scores (filter.steps), each on the last own token of its step (Math-Shepherd, arXiv:2312.08935);
        0 = the outcome only."""

        def traits(self) -> frozenset[str]:
            return frozenset({"needs: step scores"} if self.steps else ())

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, group: Group, members: Sequence[Member]) -> dict[str, Credit | None]:
        return {m.rollout.id: self._rewards(m) for m in members}

    def _rewards(self, member: Member) -> Credit | None:
        own = rl_tokens(member.rollout)
        places = np.flatnonzero(own)
        if not len(places):
            return None
        rewards = np.zeros(len(own), np.float32)
        rewards[places[-1]] = reward_of(member)
        if self.settings.steps:
            for _, end, value in scored_steps(member):
                before = places[places < end]
                if len(before):
                    rewards[before[-1]] += self.settings.steps * value
        return Credit(None, rewards=rewards)
