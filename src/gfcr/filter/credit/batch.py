"""Credit across the batch: whitening.

Invariants: statistics are over the RL tokens of members in the loss, of this batch alone; a batch whose credits differ by no
more than float noise, or that has one credit only, gets advantages of exactly 0; weights and labels stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build
from gfcr.filter.admission import REWARD_TOLERANCE
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Credit, Group, LossRole, Member, Rollout


def rl_tokens(rollout: Rollout) -> np.ndarray:
    """bool[n] over the trained path's tokens: which have an RL loss."""
    parts = [np.full(len(n.segment), n.segment.role is LossRole.RL) for n in rollout.trained_path]
    return np.concatenate(parts) if parts else np.empty(0, bool)


@method(
    "whiten",
    Slot.CREDIT_BATCH,
    title="batch whitening",
    arxiv="2501.03262",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("normalises batch", "divides by std"),
)
class Whiten:
    """(A - mean) / std over the batch (REINFORCE++, arXiv:2501.03262; the last step of GDPO, arXiv:2601.05242). Over `tokens`, long
    answers dominate mean and std: that is the published form of REINFORCE++. std is the sample's (ddof 1)."""

    class Settings(FrozenModel):
        over: Literal["tokens", "answers"] = "tokens"
        """One value per RL token (REINFORCE++, verl's masked whitening), or per answer (GDPO), the mean of its tokens."""
        eps: float = Field(1e-8, ge=0)
        """verl: 1e-8 on the variance; GDPO: 1e-4 on the std."""
        eps_on: Literal["variance", "std"] = "variance"
        """What `eps` is added to: sqrt(variance + eps), or std + eps."""
        centre: bool = True
        """Subtract the batch's mean; false divides only, so that an advantage of 0 stays 0."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, groups: Sequence[Group]) -> None:
        found: list[tuple[Member, Credit, np.ndarray, np.ndarray]] = []
        for group in groups:
            for member in group.members.values():
                if not member.in_loss or member.credit is None:
                    continue
                mask = rl_tokens(member.rollout)
                if mask.any():
                    advantage = member.credit.advantage
                    values = advantage if isinstance(advantage, np.ndarray) else np.full(len(mask), advantage)
                    found.append((member, member.credit, mask, values[mask].astype(np.float64)))
        if not found:
            return
        mean, scale = self._statistics([values for *_, values in found])
        for member, credit, mask, values in found:
            white = (values - mean) * scale
            if isinstance(credit.advantage, np.ndarray):
                out = np.zeros(len(mask), np.float32)
                out[mask] = white
                member.credit = replace(credit, advantage=out)
            else:
                member.credit = replace(credit, advantage=float(white[0]))

    def _statistics(self, values: Sequence[np.ndarray]) -> tuple[float, float]:
        """(mean, factor): the factor is 0 where nothing varies."""
        all_ = np.concatenate(values) if self.settings.over == "tokens" else np.array([v.mean() for v in values])
        shifted = all_ - all_[0]  # before any mean, so that equal values have variance exactly 0
        mean = float(all_[0] + shifted.mean()) if self.settings.centre else 0.0
        if np.ptp(shifted) <= REWARD_TOLERANCE:
            return mean, 0.0
        variance = float(shifted.var(ddof=1))
        eps = self.settings.eps
        return mean, 1.0 / (np.sqrt(variance + eps) if self.settings.eps_on == "variance" else np.sqrt(variance) + eps)
