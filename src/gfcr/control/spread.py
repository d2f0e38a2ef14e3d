"""StarPO-S: train on the groups whose rewards differ most.

Invariants: reads the raw reward of sampled members, never the shaped or the normalised one (in the official repository the normaliser
writes into the array that the filter reads, so with it every group has a spread of about 1); at least one group is kept; ties go to
the group that was opened first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build, View
from gfcr.filter.admission import REWARD_TOLERANCE
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Drop, Group


def spread(group: Group) -> float | None:
    """Population std of the raw rewards of members that were sampled and could be scored; None for fewer than two."""
    rewards = [m.signals.reward for m in group.members.values() if m.sampled and m.signals.reward is not None]
    return float(np.std(rewards)) if len(rewards) > 1 else None


@method(
    "reward-spread",
    Slot.REFILL,
    title="StarPO-S uncertainty filter",
    arxiv="2504.20073",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("needs: zero-variance test",),
)
class RewardSpread:
    """Keep the share of groups with the largest std of rewards, U = Std[R] (RAGEN, arXiv:2504.20073, StarPO-S); a collapse into repeated
    templates (echo trap) shows in this std before it shows in the mean. Opens no further groups."""

    class Settings(FrozenModel):
        keep: float = Field(0.25, gt=0, le=1)
        """Share of the closed groups that is trained on, rounded down, at least one (paper: .25 halves the time of an update)."""
        which: Literal["highest", "lowest"] = "highest"
        """`lowest` is the control (the official code's `std_rev`)."""

    max_waves = 1

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def wanted(self, closed: Sequence[Group], target: int, view: View) -> int:
        return 0

    def keep(self, closed: Sequence[Group], target: int) -> dict[str, str]:
        """Groups without a spread leave as such; of the others those beyond the share as `low_spread`."""
        found = [(spread(group) or 0.0, group.id) for group in closed]
        out: dict[str, str] = {name: Drop.ZERO_VARIANCE for value, name in found if value <= REWARD_TOLERANCE}
        sign = -1.0 if self.settings.which == "highest" else 1.0
        ranked = sorted(((sign * value, i, name) for i, (value, name) in enumerate(found) if name not in out))
        most = max(1, int(self.settings.keep * len(closed)))
        return out | {name: Drop.LOW_SPREAD for _, _, name in ranked[most:]}
