"""REINFORCE++ and its baseline form: what they hand to the whitening of the batch (filter/credit/batch.py).

Invariant: neither is a whole method without `filter.credit_batch`, so the composition check refuses it alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from gfcr.context import Build
from gfcr.filter.credit.batch import rl_tokens
from gfcr.filter.credit.group import GROUP_TRAITS, GroupBaseline, centred
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method
from gfcr.types import Credit, Group, Member


@method(
    "reinforce-pp",
    Slot.CREDIT,
    title="REINFORCE++",
    arxiv="2501.03262",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=("baseline: batch", "needs: batch normalisation", "handles: uneven groups", "handles: group of one"),
)
class ReinforcePlusPlus:
    """Each token's return, R_t = r_t + gamma R_t+1 with the reward on the last RL token (arXiv:2501.03262); the batch's mean and
    std are the baseline and the scale. Groups play no part, so one answer per task is enough. The paper's KL penalty is part of
    the reward; here it is `train.kl`, in the loss."""

    class Settings(FrozenModel):
        gamma: float = Field(1.0, ge=0, le=1)
        """Discount per RL token; 1 gives every token of an answer its reward. Tokens of others discount nothing."""

        def traits(self) -> frozenset[str]:
            return frozenset({"per-token advantages"} if self.gamma != 1 else ())

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, group: Group, members: Sequence[Member]) -> dict[str, Credit]:
        return {m.rollout.id: Credit(self._returns(m)) for m in members}

    def _returns(self, member: Member) -> float | np.ndarray:
        reward = member.signals.credit_reward
        assert reward is not None  # members in the baseline have one
        if self.settings.gamma == 1:
            return float(reward)
        mask = rl_tokens(member.rollout)
        out = np.zeros(len(mask))
        out[mask] = reward * self.settings.gamma ** np.arange(np.count_nonzero(mask) - 1, -1, -1.0)
        return out.astype(np.float32)


@method(
    "reinforce-pp-baseline",
    Slot.CREDIT,
    title="REINFORCE++-baseline",
    arxiv="2501.03262",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=(*GROUP_TRAITS, "needs: batch normalisation"),
)
class ReinforcePlusPlusBaseline(GroupBaseline):
    """A = r - mean of the group, then whitened over the batch's tokens (arXiv:2501.03262)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def advantages(self, rewards: np.ndarray) -> np.ndarray:
        return centred(rewards)
