"""What of a closed group enters replay (R_store)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from gfcr.context import Build, View
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method
from gfcr.types import Artifact, ArtifactKind, Group, derive_id


@method(
    "correct",
    Slot.STORE,
    title="cache of verified answers",
    arxiv="2509.25808",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=("stores: verified answers",),
)
class CorrectAnswers:
    """Fresh answers that a program verified as right (AR3PO's response cache, arXiv:2509.25808)."""

    class Settings(FrozenModel):
        per_group: int = Field(4, ge=1)
        """Right answers taken from one group at most. UNCONFIRMED: the paper stores them all."""
        hard_only: float = Field(1.0, ge=0, le=1)
        """Store only from groups whose share of right answers is at most this; 1 = from every group."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def store(self, group: Group, view: View) -> Sequence[Artifact]:
        right, wrong = group.outcomes()
        if not right or right / (right + wrong) > self.settings.hard_only:
            return ()
        chosen = [m for m in group.fresh() if m.signals.correct][: self.settings.per_group]
        return [
            Artifact(
                derive_id("artifact", m.rollout.id),
                ArtifactKind.TRAJECTORY,
                group.task.id,
                m.rollout,
                signals=m.signals,
                round=view.round,
                version=view.version,
            )
            for m in chosen
        ]
