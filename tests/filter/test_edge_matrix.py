"""Every way of scoring a group against the edge cases that have broken published code: no members, one, equal ones, unscorable ones,
rewards of another scale, cut answers, answers that say the same.

Each built-in credit is under it by its registry entry, so a new one is tested the day it is named there.
"""

from dataclasses import replace

import numpy as np
import pytest

from gfcr.context import Build, View
from gfcr.errors import ConfigError
from gfcr.filter.admission import AdmissionSettings, admit, baseline
from gfcr.filter.assemble import build_batch
from gfcr.registry import INDEX, Slot, find, settings_of
from gfcr.types import Credit, Normalise, StepScore, StopReason, masked_sum
from group_cases import group, member
from lifecycle_cases import lab

BUILD = Build(0, (), 1, 4, 16)
KEEP = AdmissionSettings(drop_zero_variance=False)
VIEW = View(0, 0, 0, None, None)
SETTINGS = {"pass-at-k": {"k": 2}, "treerpo": {"spread": "std"}, "noise-correction": {"false_negative": 0.2}}
each_credit = pytest.mark.parametrize("name", sorted(INDEX[Slot.CREDIT]))
REFUSE_NEGATIVE = {"maxrl"}
"""Credits that say no to rewards of -1 and 1."""
NEEDS_GROUP = sorted(n for n in INDEX[Slot.CREDIT] if "needs: group baseline" in find(Slot.CREDIT, n).traits)


def made(slot, name):
    found = find(slot, name)
    return found.cls(settings_of(found, SETTINGS.get(name, {})), BUILD)


def of(rewards, steps=True):
    """A group with correctness; two scored steps per answer, one of another kind."""
    out = group(rewards, binary=True)
    for one in out.members.values():
        right = (one.signals.reward or 0) > 0
        for name, verdict in one.signals.verdicts.items():
            if verdict.correct is not None:
                verdict = replace(verdict, correct=right)
            one.signals = replace(one.signals, verdicts={name: verdict})
        found = (StepScore(2, 3, "step", 1.0), StepScore(3, 5, "step", float(right)), StepScore(2, 4, "evidence", None))
        one.signals = replace(one.signals, steps=found if steps else ())
    return out


def scored(name, of_group, settings=KEEP):
    """Credits by member after admission; None = out of the loss. Everything in them is a number."""
    admit(of_group, settings)
    inside = baseline(of_group)
    credits = made(Slot.CREDIT, name).credit(of_group, inside)
    assert set(credits) == {m.rollout.id for m in inside}
    for one in of_group.members.values():
        one.credit = credits.get(one.rollout.id) if one.in_loss else None
        if one.credit is not None:
            for part in (one.credit.advantage, one.credit.rewards, one.credit.ce_weight, one.credit.weight):
                assert part is None or np.isfinite(part).all()
    return [m.credit for m in of_group.members.values()]


def pushes(credit: Credit | None) -> np.ndarray:
    """The credit's numbers in one array: what would move the policy."""
    if credit is None:
        return np.zeros(1)
    own = credit.advantage if credit.rewards is None else credit.rewards
    return np.atleast_1d(np.asarray(credit.ce_weight if own is None else own, float))


@each_credit
def test_no_members(name):
    assert scored(name, group([])) == []


@pytest.mark.parametrize("name", NEEDS_GROUP)
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_one_member_has_no_baseline_and_never_its_raw_reward(name, reward):
    (credit,) = scored(name, of([reward]))
    if name != "awr":  # weights are positive by construction: exp(0) = 1
        single_steps = name == "grpo-process"  # its baseline are the steps of the group, of which one answer has two
        assert single_steps or not pushes(credit).any()


@pytest.mark.parametrize("name", NEEDS_GROUP)
@pytest.mark.parametrize("rewards", [[1.0] * 2, [0.0] * 5, [1.0] * 7], ids=str)
def test_equal_members_push_nowhere(name, rewards):
    found = scored(name, of(rewards))
    if name == "grpo-process":
        assert len({pushes(c).tobytes() for c in found}) == 1  # all alike; within an answer its steps differ
    elif name != "awr":
        assert not any(pushes(c).any() for c in found)


@each_credit
def test_one_unscorable_member_changes_nobody(name):
    with_it = scored(name, of([1.0, None, 0.0, 1.0, 0.0]))
    without = scored(name, of([1.0, 0.0, 1.0, 0.0]))
    assert with_it[1] is None
    for one, two in zip([with_it[0], *with_it[2:]], without, strict=True):
        assert (one is None) == (two is None)
        assert np.array_equal(pushes(one), pushes(two))


@each_credit
def test_only_unscorable_members_are_no_group(name):
    assert scored(name, of([None, None, None])) == [None] * 3


@each_credit
def test_rewards_of_minus_one_and_one(name):
    """Either as good as 0 and 1 (binary methods read correctness), or said to be refused."""
    if name in REFUSE_NEGATIVE:
        with pytest.raises(ConfigError, match="reward -1"):
            scored(name, of([1.0, -1.0, -1.0, -1.0]))
        return
    signs = [np.sign(pushes(c)) for c in scored(name, of([1.0, -1.0, -1.0, -1.0]))]
    wanted = [np.sign(pushes(c)) for c in scored(name, of([1.0, 0.0, 0.0, 0.0]))]
    if "needs: group baseline" in find(Slot.CREDIT, name).traits:
        assert all(map(np.array_equal, signs, wanted))


@each_credit
def test_a_cut_member_is_judged_or_masked_whole(name):
    cut = of([1.0, 0.0, 0.0, 1.0])
    last = list(cut.members)[3]
    cut.members[last].rollout = replace(cut.members[last].rollout, stop=StopReason.MAX_TOKENS)
    masked = scored(name, cut, AdmissionSettings(drop_zero_variance=False, overlong="mask"))
    without = scored(name, of([1.0, 0.0, 0.0]))
    assert masked[3] is None and [pushes(c).tolist() for c in masked[:3]] == [pushes(c).tolist() for c in without]


@pytest.mark.parametrize("name", NEEDS_GROUP)
def test_answers_that_say_the_same_get_the_same(name):
    """Every answer of the case has the same tokens; those with one reward have one credit."""
    found = scored(name, of([1.0, 0.0, 1.0, 0.0]))
    assert np.array_equal(pushes(found[0]), pushes(found[2])) and np.array_equal(pushes(found[1]), pushes(found[3]))


@each_credit
@pytest.mark.parametrize("batch", sorted(INDEX[Slot.CREDIT_BATCH]))
def test_no_number_that_is_none_reaches_a_batch(name, batch):
    """All credits with all changes across the batch, on a group with one of each."""
    made_group = of([1.0, None, 0.0, 1.0, 0.0])
    made_group.members["x"] = member("x", 0.0, False, stop=StopReason.MAX_TOKENS)
    scored(name, made_group)
    yields = [t for t in find(Slot.CREDIT, name).traits if t.startswith("yields: ")]
    if not yields:
        made(Slot.CREDIT_BATCH, batch).credit([made_group, of([])])
    found = build_batch([made_group], Normalise.TOKEN_MEAN, None, 0, 0)
    if not yields:
        assert np.isfinite(found.advantages[found.rl_mask]).all() and np.isnan(found.advantages[~found.rl_mask]).all()
        assert np.isfinite(masked_sum(found.advantages * found.token_weights(), found.rl_mask))


@pytest.mark.parametrize("name", sorted(INDEX[Slot.SHAPE]))
@pytest.mark.parametrize("rewards", [[], [1.0], [1.0, 1.0], [1.0, None, 0.0], [None, None]], ids=str)
def test_shapes_give_numbers_to_members_of_the_baseline_alone(name, rewards):
    case = of(rewards)
    admit(case, KEEP)
    found = made(Slot.SHAPE, name).shape(case, VIEW)
    assert set(found) <= {m.rollout.id for m in baseline(case)} and np.isfinite(list(found.values())).all()


@pytest.mark.parametrize("name", ["treerl", "treerpo", "tree-grpo", "gigpo", "seed-grpo"])
def test_through_the_recipe_unscorable_and_equal_groups_end_without_a_batch(name):
    for answers in ("rrrr", "wwww", "ffff"):
        batch = lab(answers, filter={"credit": {"name": name}}).drive().ready()
        assert batch is None or len(batch) == 0
