"""StarPO-S: groups by the spread of their raw rewards."""

import math
from dataclasses import replace

import pytest

from gfcr.context import Build
from gfcr.control.spread import RewardSpread, spread
from gfcr.recipe import load
from gfcr.types import Drop, Task
from group_cases import group
from interactive_cases import turns
from lifecycle_cases import batch_of, lab, row_advantages

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


A, B = (Task("programs", prompt, {"final": final}, category="one") for prompt, final in (("a+?12", "32"), ("a+?11", "21")))
TABLE = {
    "a+?12": ["a+32", "aaaa", "aaaa", "aaaa"],
    "a+?12a+32": "#32$",
    "a+?12aaaa?12": "aaaa",
    "a+?12aaaa?12aaaa?12": "aaaa",
    "a+?11": ["a+21", "a+21", "#11$", "#11$"],
    "a+?11a+21": "#21$",
}
"""A is right once and fails three times with three turns that do not parse (-.1 each); B is right twice and wrong twice."""


def starpo(keep):
    """Two groups of four with the filter and the reward of the recipe `starpo`."""
    made = turns(
        TABLE,
        [A, B],
        {"name": "registers", "tries": 3, "invalid_reward": -0.1},
        {"k": 4, "turns": 6, "turn_tokens": 4},
        filter={
            "shape": {"name": "turn-rewards", "which": "penalties"},
            "credit": {"name": "grpo", "std": "population", "eps": 1e-4},
        },
        control={"groups": 2, "refill": {"name": "reward-spread", "keep": keep}},
    )
    return made.drive()


def test_starpo_through_the_interactive_recipe_filters_by_raw_rewards():
    """Golden, by hand: raw spreads .433 (A) and .5 (B), so B is kept; with the penalties A's would be the larger one, .563."""
    round_ = starpo(0.5)
    groups = {str(g.task.prompt): list(g.members.values()) for g in round_.groups.values()}
    assert sorted(m.signals.reward for m in groups["a+?12"]) == [0, 0, 0, 1]
    assert {m.drop for m in groups["a+?12"]} == {Drop.LOW_SPREAD} and {m.drop for m in groups["a+?11"]} == {None}
    assert sorted(row_advantages(batch_of(round_))) == pytest.approx([-0.5 / 0.5001] * 2 + [0.5 / 0.5001] * 2)


def test_starpo_reads_the_penalties_in_its_credit():
    round_ = starpo(1.0)
    found = {str(g.task.prompt): [m.signals.shaped for m in g.members.values()] for g in round_.groups.values()}
    assert sorted(v or 1.0 for v in found["a+?12"]) == [*[pytest.approx(-0.3)] * 3, 1.0] and found["a+?11"] == [None] * 4
    std = 1.3 * math.sqrt(3 / 16) + 1e-4
    advantages = row_advantages(batch_of(round_))
    assert sorted(advantages)[:5] == pytest.approx([-0.5 / 0.5001] * 2 + [-0.325 / std] * 3)
    assert max(advantages) == pytest.approx(0.975 / std)


def test_the_shipped_recipe_has_filter_penalty_and_credit():
    recipe = load("starpo")
    assert recipe.generate.environment.model_dump()["invalid_reward"] == -0.1
    assert recipe.filter.shape.name == "turn-rewards" and recipe.control.refill.name == "reward-spread"
