"""An answer's reward from its steps or turns. Invariant: an answer none of whose steps has a value keeps its reward; correctness never
reads the result.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from gfcr.context import Build, View
from gfcr.filter.admission import baseline
from gfcr.filter.steps import Aggregation, aggregate, scored_steps
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group


@method(
    "step-score",
    Slot.SHAPE,
    title="step scores as the answer's reward",
    arxiv="2312.08935",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=("shapes reward", "needs: step scores"),
)
class StepScoreShape:
    """(1 - weight) r + weight * score, the score put together from those of the steps (`min` is Math-Shepherd's, arXiv:2312.08935;
    `product` PRM800K's, arXiv:2305.20050). Sums are not offered: more steps would pay."""

    class Settings(FrozenModel):
        how: Aggregation = "min"
        """How the steps' scores, clamped to [1e-6, 1], become one. `product` falls with the number of steps, `geometric` is its
        mean; `first-drop` is UNCONFIRMED."""
        weight: float = Field(0.5, ge=0, le=1)
        """Share of the step score; 1 = the outcome no longer counts."""
        drop: float = Field(0.2, gt=0)
        """Of `first-drop`: a fall by more than this."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def shape(self, group: Group, view: View) -> dict[str, float]:
        s, out = self.settings, {}
        for member in baseline(group):
            score = aggregate([value for _, _, value in scored_steps(member)], s.how, s.drop)
            if score is not None and member.signals.reward is not None:
                out[member.rollout.id] = (1 - s.weight) * member.signals.reward + s.weight * score
        return out


@method(
    "turn-rewards",
    Slot.SHAPE,
    title="the environment's turn rewards in the reward",
    arxiv="2504.20073",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("shapes reward", "sums turn rewards", "needs: environment"),
)
class TurnRewards:
    """r + weight * the sum of the rollout's turn rewards (RAGEN, arXiv:2504.20073: the return of a trajectory, its format penalty of -.1
    per turn without a valid action among them). Filters and zero-variance tests go on reading r."""

    class Settings(FrozenModel):
        weight: float = 1.0
        """Factor of the sum."""
        which: Literal["all", "penalties"] = "all"
        """Which turns count: all, or those with a negative reward (an environment that pays for steps would pay for more of them)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def shape(self, group: Group, view: View) -> dict[str, float]:
        s, out = self.settings, {}
        for member in baseline(group):
            found = [v for _, _, v in scored_steps(member, {"turn"}) if v < 0 or s.which == "all"]
            if found and member.signals.reward is not None:
                out[member.rollout.id] = member.signals.reward + s.weight * math.fsum(found)
        return out
