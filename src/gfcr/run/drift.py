"""How a step's rollouts compare with their template's full rendering (`generate.prompt.check_drift`).

Invariant: a rollout that cannot be checked (no chat, or turns that nobody labelled) is not counted, neither as clean nor as anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gfcr.generate.drift import Course, label
from gfcr.generate.render import TokenizerRenderer
from gfcr.generate.turns import Conversation
from gfcr.types import Group, Rollout, SegmentKind, Task


def drift_metrics(groups: Sequence[Group], renderer: TokenizerRenderer, most: int) -> dict[str, Any]:
    """Counts over the first `most` fresh rollouts that can be checked: `checked`, then each course, then each kind of mismatch (a
    rollout counts once per kind)."""
    counts: Counter[str] = Counter(checked=0, **{str(course): 0 for course in Course})
    members = ((group.task, member.rollout) for group in groups for member in group.fresh())
    for task, rollout in members:
        if counts["checked"] >= most:
            break
        found = rollout.meta.get("drift") or _single_turn(task, rollout, renderer)
        if found:
            counts.update(["checked", *found.split()])
    return dict(counts)


def _single_turn(task: Task, rollout: Rollout, renderer: TokenizerRenderer) -> str:
    """The label of one answer to a chat; empty for anything else."""
    first = next((i for i, node in enumerate(rollout.path) if node.segment.kind is SegmentKind.ACTION), None)
    kinds = {node.segment.kind for node in rollout.path}
    if first is None or kinds != {SegmentKind.PROMPT, SegmentKind.ACTION} or rollout.path[0].segment.template is None:
        return ""
    dialogue = renderer.dialogue(task, rollout.path[:first])
    return label(dialogue.said(rollout)) if isinstance(dialogue, Conversation) else ""
