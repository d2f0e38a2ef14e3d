"""AR3PO response reuse: an all-wrong group gets one of the policy's own earlier right answers.

Invariants: at most one injection per group, only into groups whose fresh members were all judged wrong; the injected answer
replaces one wrong member and is never counted as fresh; posteriors and selectors have seen the group before.
"""

from __future__ import annotations

from typing import Literal

from gfcr.context import Build, View
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method
from gfcr.replay.slots import Injection
from gfcr.run.seeds import generator
from gfcr.types import ArtifactKind, Group


@method(
    "ar3po",
    Slot.AUGMENT,
    title="AR3PO response reuse",
    arxiv="2509.25808",
    criterion="cost",
    faithfulness=Faithfulness.PARTLY,
    needs=("score",),
    traits=("injects", "handles: off-policy", "needs: stored answers", "assumes: binary correctness", "sees other help"),
)
class AR3PO:
    """Option 1: the cached answer is trained like the others, its log-probabilities recomputed under the current weights, so
    its ratio starts at 1 (biased, low variance). Option 2: it only shifts the group's mean and std and carries no loss
    (arXiv:2509.25808; the paper reports option 2 as better)."""

    class Settings(FrozenModel):
        option: Literal[1, 2] = 1
        """1 trains on the injected answer, 2 uses it in the baseline only. On the lab model option 1 is the one that helps."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.seed = settings, build.seed

    def augment(self, group: Group, view: View) -> list[Injection]:
        right, wrong = group.outcomes()
        if right or not wrong or group.helped:
            return []
        known = [
            a
            for a in view.memory.of_task(group.task.id)
            if a.kind is ArtifactKind.TRAJECTORY and a.signals.correct and a.rollout is not None
        ]
        if not known:
            return []
        rng = generator(self.seed, "ar3po", group.id)
        losers = [m.rollout.id for m in group.fresh() if m.signals.correct is False and m.drop is None]
        if not losers:
            return []
        artifact = known[int(rng.integers(len(known)))]
        return [
            Injection(
                artifact,
                f"all {wrong} wrong; own answer of round {artifact.round}",
                replaces=losers[int(rng.integers(len(losers)))],
                in_loss=self.settings.option == 1,
            )
        ]
