"""A task's solution in the place of one wrong answer.

Invariants: only groups whose fresh members were all judged wrong (unless asked otherwise), one solution a group; it counts only if the
recipe's own verifiers call it right; nobody sampled it, so its ratio starts at 1 (the trainer recomputes) unless loss.demo_shaping
replaces the ratio.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from gfcr.context import Build, View
from gfcr.generate.guidance.solutions import AUTHOR, need_solutions, solution_of
from gfcr.generate.guidance.strength import failures, judged_wrong
from gfcr.generate.words import words_of
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.replay.slots import Injection
from gfcr.run.seeds import generator
from gfcr.types import (
    Artifact,
    ArtifactKind,
    Group,
    LossRole,
    Node,
    Role,
    Rollout,
    Segment,
    SegmentKind,
    StopReason,
    Task,
    derive_id,
)


@method(
    "reference",
    Slot.AUGMENT,
    title="reference injection (LUFFY)",
    arxiv="2504.14945",
    criterion="coverage",
    faithfulness=Faithfulness.PARTLY,
    traits=("injects", "handles: off-policy", "reads solutions", "trains demonstrations", "sees other help"),
)
class Reference:
    """The solution joins the group in the place of a wrong answer and is trained like the others, with log-probabilities of the
    current weights; with loss.demo_shaping as in LUFFY (arXiv:2504.14945: f(p) = p / (p + .1) in the ratio's place, no clip)."""

    class Settings(FrozenModel):
        when: Literal["all_wrong", "always"] = "all_wrong"
        """Which groups get it. LUFFY gives it to every group; then tasks that are solved already have no signal."""
        replace: bool = True
        """It takes the place of a wrong answer; false: it is added."""

        def traits(self) -> frozenset[str]:
            return frozenset({"helps all-wrong groups"} if self.when == "all_wrong" else ())

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.build = settings, build
        need_solutions(build.tasks, "replay.augment 'reference'")

    def augment(self, group: Group, view: View) -> list[Injection]:
        wrong = failures(group)
        if (self.settings.when == "all_wrong" and (not judged_wrong(group) or group.helped)) or solution_of(group.task) is None:
            return []
        rng = generator(self.build.seed, "reference", group.id)
        replaced = wrong[int(rng.integers(len(wrong)))] if wrong and self.settings.replace else None
        rollout = self._rollout(group, replaced)
        artifact = Artifact(
            derive_id("solution", group.task.id), ArtifactKind.TRAJECTORY, group.task.id, rollout, provenance="reference"
        )
        reason = f"all {len(wrong)} wrong; the task's solution" if judged_wrong(group) else "the task's solution"
        return [
            Injection(artifact, reason, replaced, rescore=False, role=Role.DEMO, judge=_spoken(rollout)),
        ]

    def _rollout(self, group: Group, beside: str | None) -> Rollout:
        """The solution after the prompt that the group's plain rollouts had."""
        words, task = words_of(self.build, "replay.augment 'reference'"), group.task
        ids, end = words.after(solution_of(task) or ""), words.end(task)
        if end is not None:
            ids = np.append(ids, np.int32(end))
        prompt = self._prompt(group, beside)
        segment = Segment(SegmentKind.DEMO, ids, author=AUTHOR, role=LossRole.RL)
        node = Node(derive_id("solution", group.id), prompt[-1].id, segment)
        return Rollout(derive_id("solution", group.id), task.id, (*prompt, node), StopReason.EOS)

    def _prompt(self, group: Group, beside: str | None) -> tuple[Node, ...]:
        """Of a plain rollout; rendered anew where all are guided."""
        fresh = [group.members[beside]] if beside else group.fresh()
        for member in fresh:
            if member.rollout.path and member.rollout.path[0].segment.kind is SegmentKind.PROMPT:
                return member.rollout.path[:1]
        task: Task = group.task
        prompt = words_of(self.build, "replay.augment 'reference'").prompt(task)
        return (Node(derive_id("prompt", task.id), None, prompt),)


def _spoken(rollout: Rollout) -> Rollout:
    """The solution as if the policy had said it: what the verifiers are asked about."""
    *before, last = rollout.path
    spoken = Node(last.id, last.parent, Segment(SegmentKind.ACTION, last.segment.ids))
    return Rollout(rollout.id, rollout.task_id, (*before, spoken), rollout.stop)
