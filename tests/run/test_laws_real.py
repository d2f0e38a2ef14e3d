"""Laws that change, through shipped recipes on the lab model: the law on record is the one sampled from, and the trainer's
log-probabilities under it are those on record, to 1e-4."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gfcr.build import build
from gfcr.context import View
from gfcr.drivers.wave import WaveDriver
from gfcr.recipe import load
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.types import Group, Member, Sampling, Segment, SegmentKind

SMALL = ["control.groups=4", "filter.admission.drop_zero_variance=false", "tasks.pool=D"]
BY_TURN = (
    "control.configure=[{name='schedule',what='min_p',start=0.02,end=0.02},{name='by-turn',turns=[{turn=1,temperature=0.7},"
    "{turn=2,top_p=0.8},{turn=4,temperature=1.3,top_k=4,max_tokens=3}]}]"
)
WITHIN = "control.configure={name='within',points=[[0,1.2],[5,0.6],[9,0.9]]}"
CATEGORY = "control.configure={name='by-category',laws={L3={temperature=0.6},L5={temperature=1.2,min_p=0.1}}}"
Expected = Callable[[Group, Segment, int], Sampling]


def by_turn(group: Group, segment: Segment, own: int) -> Sampling:
    base = Sampling(min_p=0.02)
    later = Sampling(top_p=0.8, min_p=0.02) if segment.turn < 4 else Sampling(1.3, top_k=4, min_p=0.02)
    return base if segment.turn == 0 else Sampling(0.7, min_p=0.02) if segment.turn == 1 else later


def within(group: Group, segment: Segment, own: int) -> Sampling:
    return Sampling(1.2 if own < 5 else 0.6 if own < 9 else 0.9)


def by_category(group: Group, segment: Segment, own: int) -> Sampling:
    return {"L3": Sampling(0.6), "L5": Sampling(1.2, min_p=0.1)}.get(group.task.category, Sampling())


def uncertain(group: Group, segment: Segment, own: int) -> Sampling:
    """Nothing is known of any task: h = 1 - E[p] = 1 / 2."""
    return Sampling(0.75)


CASES: dict[str, tuple[str, str, Expected, int]] = {
    "turns": ("registers_turns", BY_TURN, by_turn, 4),
    "trees of turns": ("tree_grpo", BY_TURN, by_turn, 4),
    "within an episode": ("registers_turns", WITHIN, within, 3),
    "second attempts": ("reflect", WITHIN, within, 3),
    "trees": ("treepo", WITHIN, within, 3),
    "by kind of task": ("grpo", CATEGORY, by_category, 2),
    "by difficulty": ("grpo", "control.configure={name='uncertain',low=0.5,high=1.0}", uncertain, 1),
}
"""Recipe, what configures it, the law of an own token by its turn or its place in its answer, laws that must occur."""


@pytest.mark.parametrize("name", CASES)
def test_the_law_on_record_is_the_one_sampled_from(name: str) -> None:
    recipe, configure, expected, several = CASES[name]
    parts = build(load(recipe, [*SMALL, configure]), 3)
    view = View(0, 0, 3, parts.slots.posterior, parts.slots.memory)
    round_ = Round(0, parts.slots, parts.round_settings, view, Budget(None), parts.renderer, parts.stop)
    WaveDriver(parts.engine, parts.cascade, parts.slots.judge, parts.host).drive(round_)
    seen = set()
    for group in round_.groups.values():
        for member in group.members.values():
            for segment, own in actions(member):
                assert segment.sampling is not None
                assert {expected(group, segment, own + i) for i in range(len(segment))} == {segment.sampling}
                assert configure != BY_TURN or len(segment) <= (4 if segment.turn < 4 else 3)
                seen.add(segment.sampling)
    assert len(seen) == several

    batch = round_.ready()
    assert batch is not None and not np.isnan(batch.behaviour[batch.rl_mask]).any()
    want = parts.trainer._logps(parts.trainer.policy, batch, batch.rl_mask)
    assert np.abs(batch.behaviour - want)[batch.rl_mask].max() < 1e-4
    if parts.host is not None:
        parts.host.close()


def actions(member: Member) -> list[tuple[Segment, int]]:
    """Sampled segments and the own tokens of their answer before them; what comes after a wrong attempt is an answer of its own."""
    out, own = [], 0
    for node in member.rollout.path:
        if node.segment.kind is SegmentKind.ACTION:
            out.append((node.segment, own))
            own += len(node.segment)
        elif node.id.endswith(".told"):
            own = 0
    return out
