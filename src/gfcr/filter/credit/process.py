"""GRPO over step rewards.

Invariants: a step without a value is in no statistic; a token gets the sum over the steps that end at or after it, so its own step
counts; an answer without a scored step has no process credit and leaves the loss, unless its outcome counts too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build
from gfcr.filter.credit.batch import rl_tokens
from gfcr.filter.credit.group import GROUP_TRAITS, rewards_of, standardised
from gfcr.filter.steps import scored_steps
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Credit, Group, Member


@method(
    "grpo-process",
    Slot.CREDIT,
    title="GRPO with process supervision",
    arxiv="2402.03300",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=(*GROUP_TRAITS, "divides by std", "per-token advantages", "needs: step scores"),
)
class ProcessGRPO:
    """A_t = sum over the steps that end at or after t of (r - mean) / (std + eps), mean and std over all steps of the group
    (DeepSeekMath, arXiv:2402.03300, section 4.1.3, as remembered)."""

    class Settings(FrozenModel):
        std: Literal["population", "sample"] = "population"
        """ddof 0 or 1. UNCONFIRMED for steps."""
        eps: float = Field(1e-4, ge=0)
        """Added to the std."""
        outcome: float = Field(0.0, ge=0)
        """Factor of the answer's own GRPO advantage, added to every token; 0 = steps alone, as published."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, group: Group, members: Sequence[Member]) -> dict[str, Credit | None]:
        s = self.settings
        cohorts: dict[str, list[Member]] = {}
        for member in members:
            cohorts.setdefault(member.cohort, []).append(member)
        out: dict[str, Credit | None] = {}
        for cohort in cohorts.values():
            steps = [scored_steps(m) for m in cohort]
            values = np.array([value for found in steps for _, _, value in found], np.float64)
            normal = iter(standardised(values, s.std, s.eps) if len(values) > 1 else np.zeros(len(values)))
            outcomes = standardised(rewards_of(cohort), s.std, s.eps) if len(cohort) > 1 else np.zeros(1)
            for member, found, outcome in zip(cohort, steps, outcomes):
                credit = np.full(len(own := rl_tokens(member.rollout)), s.outcome * outcome)
                for _, end, _ in found:
                    credit[:end] += next(normal)
                kept = Credit(np.where(own, credit, 0.0).astype(np.float32))
                out[member.rollout.id] = kept if found or s.outcome else None
        return out
