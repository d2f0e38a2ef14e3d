"""Dynamic sampling: refill a round until it holds enough informative groups.

Invariants: bounded by waves (at the bound the round trains on what it has); the test reads the correctness of fresh
members of a whole group, never the shaped reward and never single rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from pydantic import Field

from gfcr.context import Build, View
from gfcr.errors import ConfigError
from gfcr.filter.admission import REWARD_TOLERANCE
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method
from gfcr.types import Drop, Group


def informative(group: Group) -> bool:
    """Whether fresh members differ in outcome: in correctness, or, where no verifier decides that, in unshaped reward."""
    right, wrong = group.outcomes()
    if right or wrong:
        return bool(right and wrong)
    rewards = [m.signals.reward for m in group.fresh() if m.signals.reward is not None]
    return len(rewards) > 1 and max(rewards) - min(rewards) > REWARD_TOLERANCE


@method(
    "dynamic-sampling",
    Slot.REFILL,
    title="DAPO dynamic sampling",
    arxiv="2503.14476",
    criterion="cost",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("refills", "needs: zero-variance test"),
)
class DynamicSampling:
    """Keep groups with 0 < right < G, draw more until the planned number is reached, cut the surplus (DAPO, arXiv:2503.14476,
    eq. 11). The official code raises at its bound; here the round trains on what it has."""

    class Settings(FrozenModel):
        max_waves: int = 10
        """Waves of a round at most (official: max_num_gen_batches 10); a value below 1 is refused, never unlimited."""
        oversample: float = Field(1.0, gt=0)
        """Groups opened per missing group (official: 3)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        if settings.max_waves < 1:
            raise ConfigError(
                f"control.refill 'dynamic-sampling': max_waves = {settings.max_waves} would refill without bound",
                "set max_waves to 1 or more",
            )
        self.settings = settings
        self.max_waves = settings.max_waves

    def wanted(self, closed: Sequence[Group], target: int, view: View) -> int:
        missing = target - sum(map(informative, closed))
        return ceil(missing * self.settings.oversample) if missing > 0 else 0

    def keep(self, closed: Sequence[Group], target: int) -> dict[str, str]:
        out: dict[str, str] = {}
        kept = 0
        for group in closed:
            if not informative(group):
                out[group.id] = Drop.ZERO_VARIANCE
            elif kept == target:
                out[group.id] = Drop.SURPLUS
            else:
                kept += 1
        return out
