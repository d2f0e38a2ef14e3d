"""Group baselines: GRPO, Dr.GRPO, RLOO.

Invariants: an all-equal group has advantage exactly 0 at any size (differences from the first reward are taken before any
mean, so float noise cannot survive); rewards are float64 throughout; a group of one has no baseline and is refused by the
composition check, not credited with its raw reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build
from gfcr.filter.admission import REWARD_TOLERANCE
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method
from gfcr.types import Credit, Group, Member

GROUP_TRAITS = ("needs: group baseline", "handles: uneven groups")


def centred(rewards: np.ndarray) -> np.ndarray:
    """float64[n]: rewards minus their mean; exactly 0 when they differ by no more than float noise."""
    shifted = rewards - rewards[0]
    if np.ptp(shifted) <= REWARD_TOLERANCE:
        return np.zeros_like(shifted)
    return shifted - shifted.mean()


def standardised(rewards: np.ndarray, std: Literal["population", "sample"], eps: float) -> np.ndarray:
    """float64[n]: (r - mean) / (std + eps); exactly 0 when the rewards differ by no more than float noise."""
    centre = centred(rewards)
    if not centre.any():
        return centre
    return centre / (np.sqrt((centre**2).sum() / (len(centre) - (std == "sample"))) + eps)


def rewards_of(members: Sequence[Member]) -> np.ndarray:
    """float64[n]: the rewards that credit reads."""
    return np.array([m.signals.credit_reward for m in members], np.float64)


class GroupBaseline:
    """Advantages from the baseline's members, by cohort: what credits within a group build on. A cohort of one gets 0."""

    def advantages(self, rewards: np.ndarray) -> np.ndarray:
        """float64[n] from float64[n], n >= 2."""
        raise TypeError("a group baseline defines its advantages")

    def of(self, members: Sequence[Member]) -> np.ndarray:
        """float64[n], one advantage for each of a cohort's n >= 2 members."""
        return self.advantages(rewards_of(members))

    def credits(self, members: Sequence[Member]) -> list[Credit]:
        """One credit for each of a cohort's n >= 2 members."""
        return [Credit(float(a)) for a in self.of(members)]

    def credit(self, group: Group, members: Sequence[Member]) -> dict[str, Credit]:
        cohorts: dict[str, list[Member]] = {}
        for member in members:
            cohorts.setdefault(member.cohort, []).append(member)
        out: dict[str, Credit] = {}
        for cohort in cohorts.values():
            credits = self.credits(cohort) if len(cohort) > 1 else [Credit(0.0)]
            out.update((m.rollout.id, credit) for m, credit in zip(cohort, credits))
        return out


@method(
    "grpo",
    Slot.CREDIT,
    title="GRPO",
    arxiv="2402.03300",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=(*GROUP_TRAITS, "divides by std"),
)
class GRPO(GroupBaseline):
    """A = (r - mean) / (std + eps) (DeepSeekMath, arXiv:2402.03300, section 4.1)."""

    class Settings(FrozenModel):
        std: Literal["population", "sample"] = "population"
        """`population` (ddof 0) or `sample` (ddof 1; TRL, verl). The choice changes every advantage by sqrt((n-1)/n)."""
        eps: float = Field(1e-4, ge=0)
        """Added to the std (TRL 1e-4, verl 1e-6)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def advantages(self, rewards: np.ndarray) -> np.ndarray:
        return standardised(rewards, self.settings.std, self.settings.eps)


@method(
    "dr-grpo",
    Slot.CREDIT,
    title="Dr.GRPO",
    arxiv="2503.20783",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=GROUP_TRAITS,
)
class DrGRPO(GroupBaseline):
    """A = r - mean (arXiv:2503.20783, eq. 2); pair it with constant normalisation."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def advantages(self, rewards: np.ndarray) -> np.ndarray:
        return centred(rewards)


@method(
    "rloo",
    Slot.CREDIT,
    title="RLOO",
    arxiv="2402.14740",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=GROUP_TRAITS,
)
class RLOO(GroupBaseline):
    """A = r - mean of the others = (r - mean) n / (n - 1) (arXiv:2402.14740, eq. 5)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def advantages(self, rewards: np.ndarray) -> np.ndarray:
        return centred(rewards) * (len(rewards) / (len(rewards) - 1))
