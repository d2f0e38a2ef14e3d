"""An answer's reward from its steps. Invariant: an answer none of whose steps has a value keeps its reward; correctness never reads
the result.
"""

from __future__ import annotations

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
