"""GDPO: several rewards, each normalised by itself before they are summed.

Invariants: a reward that an answer does not have (its verifier abstained, or never spoke) is in no statistic of that reward and
adds nothing to the answer's advantage; a reward that is equal throughout the group adds exactly 0; an answer that a gate refused
has the reward of a refused answer in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.credit.group import GROUP_TRAITS, GroupBaseline, standardised
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Member, Status


@method(
    "gdpo",
    Slot.CREDIT,
    title="GDPO",
    arxiv="2601.05242",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=(*GROUP_TRAITS, "divides by std", "ignores shaped reward", "weighs rewards by verifier"),
)
class GDPO(GroupBaseline):
    """A = sum over rewards of weight * (r - mean) / (std + eps) (arXiv:2601.05242); the sum of rewards, normalised once, would
    give different combinations one advantage. The paper then whitens over the batch: filter.credit_batch = {name = "whiten",
    over = "answers", eps = 1e-4, eps_on = "std"}."""

    class Settings(FrozenModel):
        weights: dict[str, float] = Field(default_factory=dict)
        """Weight of each reward, by its verifier's name; empty = 1 for every verifier that scored an answer of the group. A
        verifier that decides correctness ends the cascade, so those that only score stand before it in filter.verifiers."""
        std: Literal["population", "sample"] = "sample"
        """`sample` (ddof 1) is the official code's."""
        eps: float = Field(1e-4, ge=0)
        """Added to each reward's std."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def of(self, members: Sequence[Member]) -> np.ndarray:
        total = np.zeros(len(members))
        for name, weight in self._weights(members).items():
            rewards = [_reward(m, name) for m in members]
            has = np.array([r is not None for r in rewards])
            if np.count_nonzero(has) > 1:
                known = np.array([r for r in rewards if r is not None], np.float64)
                total[has] += weight * standardised(known, self.settings.std, self.settings.eps)
        return total

    def _weights(self, members: Sequence[Member]) -> dict[str, float]:
        judged = [m for m in members if m.signals.status is not Status.INVALID]
        if not self.settings.weights:
            return dict.fromkeys(sorted({n for m in judged for n in m.signals.rewards}), 1.0) or {"": 1.0}
        spoke = sorted({name for m in judged for name in m.signals.verdicts})
        if judged and (silent := [name for name in self.settings.weights if name not in spoke]):
            raise ConfigError(
                f"filter.credit 'gdpo' weights {silent[0]!r}, and no verifier of that name judged an answer of the group "
                f"{members[0].rollout.task_id} (those that did: {', '.join(spoke)})",
                "correct the name, or move that verifier before the one that decides correctness",
            )
        return self.settings.weights


def _reward(member: Member, name: str) -> float | None:
    """The answer's reward of this name; None = it has none."""
    if member.signals.status is Status.INVALID:
        return member.signals.reward
    return member.signals.rewards.get(name)
