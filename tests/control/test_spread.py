"""StarPO-S: groups by the spread of their raw rewards."""

import math
from dataclasses import replace

import pytest

from gfcr.context import Build
from gfcr.control.spread import RewardSpread, spread
from gfcr.types import Drop
from group_cases import group
from lifecycle_cases import batch_of, lab

BUILD = Build(0, (), 4, 4, 16)
REWARDS = {"a": [0, 0, 0, 0], "b": [0, 0, 0, 1], "c": [0, 0, 1, 1], "d": [1, 1, 1, 1]}


def kept(**settings):
    made = RewardSpread(RewardSpread.Settings(**settings), BUILD)
    closed = [group([float(r) for r in rewards], name) for name, rewards in REWARDS.items()]
    return made.keep(closed, 4)


def test_the_share_with_the_largest_std_is_kept():
    assert spread(group([0.0, 0.0, 0.0, 1.0])) == pytest.approx(math.sqrt(3 / 16))
    assert kept(keep=0.25) == {"a": Drop.ZERO_VARIANCE, "d": Drop.ZERO_VARIANCE, "b": Drop.LOW_SPREAD}
    assert kept(keep=0.5) == {"a": Drop.ZERO_VARIANCE, "d": Drop.ZERO_VARIANCE}
    assert kept(keep=0.25, which="lowest") == {"a": Drop.ZERO_VARIANCE, "d": Drop.ZERO_VARIANCE, "c": Drop.LOW_SPREAD}


def test_a_share_of_less_than_one_group_keeps_one():
    assert "c" not in kept(keep=0.1) and kept(keep=0.1)["b"] == Drop.LOW_SPREAD


def test_the_raw_reward_decides_and_unscorable_members_say_nothing():
    shaped = group([0.0, 0.0])
    for i, member in enumerate(shaped.members.values()):
        member.signals = replace(member.signals, shaped=float(i))
    assert spread(shaped) == 0.0
    assert spread(group([1.0, None])) is None and spread(group([1.0, None, 0.0])) == 0.5


def test_from_recipe_to_batch():
    made = lab(
        {"a+?00": "rwww", "a+?01": "rrww", "a+?02": "rrrr", "a+?03": "wwww"},
        n_tasks=4,
        control={"refill": {"name": "reward-spread", "keep": 0.25}},
    )
    round_ = made.drive()
    batch = batch_of(round_)
    drops = [sorted({str(m.drop) for m in g.members.values()}) for g in round_.groups.values()]
    by_prompt = {str(g.task.prompt): d for g, d in zip(round_.groups.values(), drops)}
    assert by_prompt == {"a+?00": ["low_spread"], "a+?01": ["None"], "a+?02": ["zero_variance"], "a+?03": ["zero_variance"]}
    assert len(batch) == 4


@pytest.mark.parametrize("wrong", [0.0, 1.5, float("nan")])
def test_a_share_outside_its_range_is_refused(wrong):
    with pytest.raises(ValueError):
        RewardSpread.Settings(keep=wrong)
