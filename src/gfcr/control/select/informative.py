"""`informative`: Thompson sampling on the chance that a group of K has both right and wrong answers.

Invariants: reads the run's posterior table and keeps no difficulty of its own; a task without observations draws from its
bucket's prior, so nothing is ever excluded for good.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np
from pydantic import Field

from gfcr.context import Build, View
from gfcr.control.slots import Pick
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method
from gfcr.run.seeds import generator
from gfcr.types import Group


def informative_probability(theta: np.ndarray, k: int) -> np.ndarray:
    """P(a group of k i.i.d. answers is neither all right nor all wrong) = 1 - theta^k - (1 - theta)^k."""
    return 1.0 - theta**k - (1.0 - theta) ** k


@method(
    "informative",
    Slot.SELECT,
    title="informative-group Thompson selection",
    criterion="cost",
    faithfulness=Faithfulness.OURS,
    traits=("selects by difficulty", "assumes: binary correctness", "seeks uncertainty"),
)
class Informative:
    """Draw theta of every task from its posterior; weight (P(informative group of K) + floor)^power; draw the round's tasks
    in proportion, without replacement. (Related: VADE, arXiv:2511.18902, and MoPPS, arXiv:2507.04632, which draw theta but
    rank by theta (1 - theta) or the distance to 1/2.)"""

    class Settings(FrozenModel):
        power: float = Field(2.0, ge=0)
        """Exponent of the weight; 0 = uniform."""
        floor: float = Field(1e-3, gt=0)
        """Added before the power, so that every task keeps a chance."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.tasks, self.seed, self.k = settings, build.tasks, build.seed, build.k
        self._ids = [t.id for t in build.tasks]
        self._calls = 0

    def select(self, n: int, exclude: Set[str], view: View) -> list[Pick]:
        rng = generator(self.seed, "select", "thompson", view.round, self._calls)
        self._calls += 1
        theta = rng.beta(*view.difficulty.beta(self._ids))
        chance = informative_probability(theta, self.k)
        weight = (chance + self.settings.floor) ** self.settings.power
        weight[[i for i, task_id in enumerate(self._ids) if task_id in exclude]] = 0.0
        n = min(n, int(np.count_nonzero(weight)))
        # Exponential races: the n smallest arrivals are a draw without replacement in proportion to the weights.
        with np.errstate(divide="ignore"):
            arrivals = rng.exponential(size=len(weight)) / weight
        order = np.argsort(arrivals, kind="stable")[:n]
        return [Pick(self.tasks[i], "thompson", {"theta": float(theta[i]), "informative": float(chance[i])}) for i in order]

    def observe(self, groups: Sequence[Group], view: View) -> None:
        """The posterior table has learnt already."""

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self._calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._calls = int(state["calls"])
