"""Credits that aim at something else than the mean reward: MaxRL at the log-likelihood of success, pass@k at one right answer of k.

Invariants: an all-equal group has advantage exactly 0; both estimate from independent draws, so groups that stop on outcomes and
injected answers are refused by the composition check; pass@k reads correctness alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np
from pydantic import Field

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.credit.group import GROUP_TRAITS, GroupBaseline, centred
from gfcr.filter.outcome import right
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Member


@method(
    "maxrl",
    Slot.CREDIT,
    title="MaxRL",
    arxiv="2602.02710",
    criterion="coverage",
    faithfulness=Faithfulness.CONFIRMED,
    traits=(*GROUP_TRAITS, "assumes: iid group", "assumes: rewards not negative"),
)
class MaxRL(GroupBaseline):
    """A = (r - mean) / (mean + eps): the gradient of log P(right), truncated at order n (arXiv:2602.02710), which weights tasks by
    1 / mean and so the hard ones most (up to n - 1 for a lone right answer of n)."""

    class Settings(FrozenModel):
        eps: float = Field(1e-6, ge=0)
        """Added to the mean (official code: 1e-6)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def advantages(self, rewards: np.ndarray) -> np.ndarray:
        if rewards.min() < 0:
            raise ConfigError(
                f"filter.credit 'maxrl' divides by the group's mean reward, and an answer has the reward {rewards.min():.6g}",
                "use rewards of 0 and more (filter.admission.invalid_reward, filter.shape, the verifier's score), or another credit",
            )
        centre = centred(rewards)
        return centre / (rewards.mean() + self.settings.eps) if centre.any() else centre


@method(
    "pass-at-k",
    Slot.CREDIT,
    title="pass@k training",
    arxiv="2508.10751",
    criterion="coverage",
    faithfulness=Faithfulness.PARTLY,
    traits=(*GROUP_TRAITS, "assumes: iid group", "assumes: binary correctness", "ignores shaped reward"),
)
class PassAtK(GroupBaseline):
    """Advantages of pass@k over all subsets of k of a group's n answers, f of them wrong (arXiv:2508.10751, analytical form):
    R = 1 - C(f, k) / C(n, k), s = sqrt(R (1 - R)); right answers (1 - R) / s, wrong ones (1 - R - C(f - 1, k - 1) / C(n - 1, k - 1))
    / s. Once fewer than k are wrong every subset holds a right one and all advantages are 0. k = 1 is GRPO."""

    class Settings(FrozenModel):
        k: int = Field(4, ge=1)
        """Answers of which one must be right; less than the group's size. UNCONFIRMED: the paper varies it."""
        eps: float = Field(1e-6, ge=0)
        """Added to s (official code: 1e-6)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        if settings.k >= build.k:
            raise ConfigError(
                f"filter.credit 'pass-at-k': k = {settings.k} of groups of {build.k}: every subset of a group with a right answer "
                "holds one, so that all advantages are 0",
                "set its k below generate.topology's k",
            )
        self.settings = settings

    def of(self, members: Sequence[Member]) -> np.ndarray:
        correct = np.array([right(m, "filter.credit 'pass-at-k'") for m in members])
        n, k, wrong = len(members), self.settings.k, int(np.count_nonzero(~correct))
        if n <= k or wrong in (0, n):  # too few answers left to have subsets, or all alike
            return np.zeros(n)
        missed = comb(wrong, k) / comb(n, k)
        spread = np.sqrt(missed * (1 - missed))
        if not spread:
            return np.zeros(n)
        return np.where(correct, missed, missed - comb(wrong - 1, k - 1) / comb(n - 1, k - 1)) / (spread + self.settings.eps)
