"""A weight for given tokens that are to be imitated. Invariants: only tokens marked CE get one, the policy's own never; a member outside
the loss stays outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from gfcr.context import Build
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group, LossRole


@method(
    "imitation",
    Slot.CREDIT_BATCH,
    title="cross-entropy on hint tokens (UFT)",
    arxiv="2505.16984",
    criterion="coverage",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("weighs imitation", "cross-entropy weights"),
)
class Imitation:
    """Adds coef times the cross-entropy of the hint's tokens to the policy-gradient loss (UFT, arXiv:2505.16984)."""

    class Settings(FrozenModel):
        coef: float = Field(0.001, gt=0)
        """Weight of their cross-entropy (UFT's sft_coef)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, groups: Sequence[Group]) -> None:
        for group in groups:
            for member in group.members.values():
                marked = any(node.segment.role is LossRole.CE for node in member.rollout.trained_path)
                if member.in_loss and member.credit is not None and marked:
                    member.credit = replace(member.credit, ce_weight=self.settings.coef)
