"""SEED-GRPO: smaller updates where a group's answers disagree.

Invariants: a group whose answers all agree is credited as by Dr.GRPO; the factor lies in [0, 1] and is one for the whole group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build
from gfcr.filter.credit.group import GROUP_TRAITS, GroupBaseline, centred, rewards_of
from gfcr.filter.semantic import cluster_entropy, clusters
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Member


@method(
    "seed-grpo",
    Slot.CREDIT,
    title="SEED-GRPO",
    arxiv="2505.12346",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=(*GROUP_TRAITS, "damps uncertainty", "counts independent answers"),
)
class SeedGRPO(GroupBaseline):
    """A = (r - mean) f(alpha SE / ln n): SE is the entropy of the group's final answers as the verdicts name them (SEED-GRPO,
    arXiv:2505.12346; second-hand). A verifier that names no final answer makes every answer a cluster of its own."""

    class Settings(FrozenModel):
        alpha: float = Field(0.02, ge=0)
        """Strength. UNCONFIRMED (about .02 for `linear`)."""
        shape: Literal["linear", "exp", "focal"] = "linear"
        """f(x): 1 - x, not below 0; exp(-x); (1 - x)^gamma."""
        gamma: float = Field(2.0, gt=0)
        """Exponent of `focal`. UNCONFIRMED."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def of(self, members: Sequence[Member]) -> np.ndarray:
        x = self.settings.alpha * cluster_entropy(clusters(members)) / math.log(len(members))
        return centred(rewards_of(members)) * self.factor(x)

    def factor(self, x: float) -> float:
        """f of the scaled entropy."""
        if self.settings.shape == "exp":
            return math.exp(-x)
        return max(1.0 - x, 0.0) ** (self.settings.gamma if self.settings.shape == "focal" else 1.0)
