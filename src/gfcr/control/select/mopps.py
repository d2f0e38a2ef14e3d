"""`mopps`: Thompson sampling of difficulty among random candidates, nearest to a target (MoPPS).

Invariants: reads the run's posterior table and keeps no difficulty of its own; every candidate set is a fresh uniform draw, so
that no task is excluded for good.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from math import ceil
from typing import Any, Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build, View
from gfcr.control.slots import Pick
from gfcr.errors import ConfigError
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.run.seeds import generator
from gfcr.types import Group


@method(
    "mopps",
    Slot.SELECT,
    title="MoPPS",
    arxiv="2507.04632",
    criterion="cost",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("selects by difficulty", "assumes: binary correctness", "seeks uncertainty"),
)
class MoPPS:
    """Draw candidates uniformly, draw each one's success probability from its Beta posterior, take those nearest to `target`
    (arXiv:2507.04632). The published posterior, Beta(1, 1) and decay toward it, is control.posterior = {bucket = "flat", strength
    = 2, forgetting = 1.0}; the paper forgets nothing on MATH and half (0.5) on Countdown."""

    class Settings(FrozenModel):
        target: float = Field(0.5, gt=0, lt=1)
        """Success probability wanted."""
        candidates: float = Field(16.0, ge=1)
        """Candidates per task taken (paper: 16 on MATH, 8 on Countdown); a smaller task set is a candidate as a whole."""
        rule: Literal["nearest", "band"] = "nearest"
        """`nearest`: the smallest (draw - target)^2. `band`: uniformly among draws in [low, high], then the nearest to it."""
        low: float = Field(0.3, ge=0, le=1)
        """Lower end of the band."""
        high: float = Field(0.7, ge=0, le=1)
        """Upper end of the band."""

    def __init__(self, settings: Settings, build: Build) -> None:
        if settings.low > settings.high:
            raise ConfigError(
                f"control.select 'mopps': low = {settings.low} exceeds high = {settings.high}", "exchange low and high"
            )
        self.settings, self.tasks, self.seed = settings, build.tasks, build.seed
        self._calls = 0

    def select(self, n: int, exclude: Set[str], view: View) -> list[Pick]:
        rng = generator(self.seed, "select", "mopps", view.round, self._calls)
        self._calls += 1
        free = [i for i, task in enumerate(self.tasks) if task.id not in exclude]
        wanted = self.settings.candidates * n  # may be beyond every integer
        size = len(free) if wanted >= len(free) else ceil(wanted)
        if size <= 0:
            return []
        candidates = rng.choice(np.array(free, np.int64), size, replace=False)  # in random order: ties fall at random
        theta = rng.beta(*view.difficulty.beta([self.tasks[i].id for i in candidates]))
        order = np.argsort(self._distance(theta), kind="stable")[:n]
        return [
            Pick(self.tasks[candidates[i]], f"thompson, {self.settings.rule} of {size}", {"theta": float(theta[i])})
            for i in order
        ]

    def _distance(self, theta: np.ndarray) -> np.ndarray:
        if self.settings.rule == "nearest":
            return (theta - self.settings.target) ** 2
        return np.maximum(np.maximum(self.settings.low - theta, theta - self.settings.high), 0.0)

    def observe(self, groups: Sequence[Group], view: View) -> None:
        """The posterior table has learnt already."""

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self._calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._calls = int(state["calls"])
