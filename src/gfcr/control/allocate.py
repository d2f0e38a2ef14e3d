"""Allocation: how many rollouts a group gets, stage by stage. Invariant: every open group gets an answer at every call."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from gfcr.context import Build, View
from gfcr.control.slots import Allocation
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method
from gfcr.types import Group


@method(
    "uniform",
    Slot.ALLOCATE,
    title="K rollouts for every task",
    arxiv="2402.03300",
    criterion="coverage",
    faithfulness=Faithfulness.CONFIRMED,
)
class UniformAllocation:
    """K rollouts in one stage."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.k = build.k

    def allocate(self, groups: Sequence[Group], view: View) -> dict[str, Allocation]:
        return {g.id: Allocation(self.k, "K") if g.stage == 0 else Allocation(0, "planned") for g in groups}


@method(
    "staged",
    Slot.ALLOCATE,
    title="AR3PO adaptive rollout",
    arxiv="2509.25808",
    criterion="cost",
    faithfulness=Faithfulness.PARTLY,
    traits=("breaks: iid group", "assumes: binary correctness", "allocates in stages"),
)
class StagedAllocation:
    """S stages of k rollouts; a group leaves once one answer is right (AR3PO, arXiv:2509.25808, adaptive rollout)."""

    class Settings(FrozenModel):
        stages: int = Field(2, ge=1)
        """S. UNCONFIRMED: the paper does not print S and k; S * k = 8 fits its figures."""
        k: int = Field(4, ge=1)
        """Rollouts per stage. UNCONFIRMED, see `stages`."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def allocate(self, groups: Sequence[Group], view: View) -> dict[str, Allocation]:
        return {g.id: self._next(g) for g in groups}

    def _next(self, group: Group) -> Allocation:
        right, _ = group.outcomes()
        if right:
            return Allocation(0, "solved")
        if group.stage >= self.settings.stages:
            return Allocation(0, "stages")
        return Allocation(self.settings.k, f"stage {group.stage + 1} of {self.settings.stages}")
