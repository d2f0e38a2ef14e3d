"""Group statistics: which rewards enter them, and that no float noise becomes a gradient (invariants 3, 4, 12)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.filter.admission import AdmissionSettings, admit
from gfcr.filter.credit.gdpo import GDPO
from gfcr.filter.credit.gigpo import GiGPO
from gfcr.filter.credit.group import GRPO, RLOO, DrGRPO
from gfcr.filter.credit.reinforce import ReinforcePlusPlusBaseline
from gfcr.filter.credit.seed import SeedGRPO
from gfcr.filter.credit.tree import TreeGRPO, TreePO, TreeRL
from gfcr.registry import INDEX, Settings, Slot
from gfcr.types import Drop, StopReason
from group_cases import advantages, group, member

KEEP = AdmissionSettings(drop_zero_variance=False)
CREDITS = [
    GRPO(GRPO.Settings(), None),
    GRPO(GRPO.Settings(std="sample"), None),
    GRPO(GRPO.Settings(eps=0), None),
    DrGRPO(Settings(), None),
    RLOO(Settings(), None),
    GDPO(GDPO.Settings(), None),
    ReinforcePlusPlusBaseline(Settings(), None),
    TreeRL(TreeRL.Settings(), None),
    TreePO(TreePO.Settings(), None),
    TreeGRPO(TreeGRPO.Settings(), None),
    GiGPO(GiGPO.Settings(), None),
    SeedGRPO(SeedGRPO.Settings(alpha=0.5), None),
]
DR = CREDITS[3]
each_credit = pytest.mark.parametrize(
    "credit",
    CREDITS,
    ids=lambda c: c.method.name + "".join(f"-{v}" for v in c.settings.model_dump(exclude_defaults=True).values()),
)


@each_credit
@pytest.mark.parametrize(
    "rewards", [[0.1] * 3, [0.2] * 8, [0.35] * 7, [1e8 + 0.1] * 5, [float(np.float32(0.1)), 0.1, 0.1], [5.0] * 3]
)
def test_an_all_equal_group_has_advantage_exactly_zero(credit, rewards):
    assert advantages(group(rewards), credit, KEEP) == [0.0] * len(rewards)


@each_credit
@given(value=st.floats(-1e3, 1e3, width=32), n=st.integers(2, 64))
def test_an_all_equal_group_has_advantage_exactly_zero_at_any_size_and_value(credit, value, n):
    assert advantages(group([value] * n), credit, KEEP) == [0.0] * n


@pytest.mark.parametrize("rewards", [[0.1] * 3, [0.2] * 8, [0.5] * 8])
def test_an_all_equal_group_leaves_the_batch(rewards):
    made = group(rewards)
    assert advantages(made, DR) == [None] * len(rewards)
    assert {m.drop for m in made.members.values()} == {Drop.ZERO_VARIANCE}


@each_credit
def test_seven_of_35_hundredths_and_one_zero_stay_bounded(credit):
    values = advantages(group([0.35] * 7 + [0.0]), credit)
    assert all(abs(v) <= math.sqrt(7) + 1e-6 for v in values)
    assert values[7] < 0 < values[0] == values[6]


@each_credit
def test_a_lone_loser_is_kept_with_its_seven_winners(credit):
    values = advantages(group([0.0] + [0.95] * 7), credit)
    assert None not in values
    assert values[0] < 0 < values[1]
    assert sum(values) == pytest.approx(0, abs=1e-6)


@each_credit
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12))
def test_advantages_sum_to_zero_and_are_finite(credit, rewards):
    values = advantages(group(rewards), credit, KEEP)
    assert np.isfinite(values).all()
    assert sum(values) == pytest.approx(0, abs=1e-5)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=12), st.randoms())
def test_credit_follows_the_member_not_its_place(rewards, random):
    order = list(range(len(rewards)))
    random.shuffle(order)
    straight = advantages(group(rewards), DR, KEEP)
    shuffled = advantages(group([rewards[i] for i in order]), DR, KEEP)
    assert shuffled == pytest.approx([straight[i] for i in order])


@given(st.lists(st.floats(0, 1), min_size=3, max_size=8), st.floats(0.1, 10), st.floats(-3, 3))
def test_grpo_does_not_see_an_affine_change_of_rewards(rewards, a, b):
    credit = CREDITS[2]
    if max(rewards) - min(rewards) < 1e-3:
        return
    one, two = advantages(group(rewards), credit, KEEP), advantages(group([a * r + b for r in rewards]), credit, KEEP)
    assert two == pytest.approx(one, rel=1e-6, abs=1e-6)


def test_rloo_is_dr_grpo_times_n_over_n_minus_one():
    rewards = [1.0, 0.25, 0.0, 0.5, 0.0]
    assert advantages(group(rewards), CREDITS[4]) == pytest.approx([v * 5 / 4 for v in advantages(group(rewards), DR)])


@each_credit
def test_an_unscorable_member_is_in_no_statistic(credit):
    with_it, without = group([1.0, None, 0.0, 0.0]), group([1.0, 0.0, 0.0])
    values = advantages(with_it, credit)
    assert values[1] is None
    assert [v for v in values if v is not None] == advantages(without, credit)
    assert list(with_it.members.values())[1].drop is Drop.UNSCORABLE


def test_a_group_of_equal_rewards_and_an_unscorable_one_has_no_signal():
    made = group([1.0, None, 1.0])  # counted as 0, the unscorable one would make a signal
    assert advantages(made, DR) == [None] * 3
    assert made.composition == "unscored"


@each_credit
def test_deleting_a_member_outside_the_baseline_changes_no_credit(credit):
    """Invariant 12, for every way out of the baseline."""
    settings = AdmissionSettings(overlong="mask")
    base = advantages(group([1.0, 0.0, 0.0, 1.0, 0.0]), credit, settings)
    for extra in (
        member("x", None),
        member("x", 100.0, stop=StopReason.MAX_TOKENS),
        member("x", 100.0, drop=Drop.REPLACED),
        member("x", -100.0, drop=Drop.PRUNED),
    ):
        made = group([1.0, 0.0, 0.0, 1.0, 0.0])
        made.members["x"] = extra
        assert advantages(made, credit, settings) == [*base, None]


@given(st.floats(-100, 100), st.floats(-100, 100))
def test_a_masked_members_reward_moves_nobody(first, second):
    settings = AdmissionSettings(overlong="mask")
    values = []
    for reward in (first, second):
        made = group([1.0, 0.0, 0.5])
        made.members["x"] = member("x", reward, stop=StopReason.MAX_TOKENS)
        values.append(advantages(made, DR, settings))
    assert values[0] == values[1]


def test_groups_of_4_3_4_are_credited_each_by_itself():
    groups = [group([1, 0, 0, 0], "a"), group([5, 5, 5], "b"), group([0, 0, 1, 1], "c")]
    values = [advantages(g, DR, KEEP) for g in groups]
    assert values == [[0.75, -0.25, -0.25, -0.25], [0.0, 0.0, 0.0], [-0.5, -0.5, 0.5, 0.5]]


def test_a_missing_member_shifts_no_other_group():
    whole, short = group([1, 0, 0, 0], "a"), group([1, 0, 0, 0], "b")
    del short.members["b3"]
    assert advantages(short, DR) == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert advantages(whole, DR) == [0.75, -0.25, -0.25, -0.25]


def test_cohorts_are_normalised_apart():
    made = group([1, 0, 10, 30])
    for name in ("g2", "g3"):
        made.members[name].cohort = "old"
    assert advantages(made, DR) == [0.5, -0.5, -10.0, 10.0]


def test_a_cohort_of_one_has_no_baseline_and_no_gradient():
    made = group([1, 0, 1])
    made.members["g2"].cohort = "old"
    assert advantages(made, DR) == [0.5, -0.5, 0.0]


def test_a_member_in_the_baseline_only_moves_the_mean_and_gets_no_credit():
    made = group([0.0, 0.0, 1.0])
    made.members["g2"].in_loss = False
    assert advantages(made, DR) == pytest.approx([-1 / 3, -1 / 3, None])
    assert made.members["g2"].drop is Drop.NO_LOSS


def test_shaping_never_makes_an_all_wrong_group_look_informative():
    """Invariant 5 at admission: the length penalty differs, the reward does not."""
    made = group([0.0, 0.0, 0.0], binary=True)
    for i, one in enumerate(made.members.values()):
        one.signals = type(one.signals)(one.signals.verdicts, "v", one.signals.rewards, 0.0, shaped=-0.1 * i)
    admit(made, AdmissionSettings())
    assert {m.drop for m in made.members.values()} == {Drop.ZERO_VARIANCE}


def test_credit_reads_the_shaped_reward_where_there_is_one():
    made = group([1.0, 0.0])
    made.members["g0"].signals = type(made.members["g0"].signals)(made.members["g0"].signals.verdicts, "v", {}, 1.0, shaped=0.6)
    assert advantages(made, DR) == pytest.approx([0.3, -0.3])


@pytest.mark.parametrize("slot", [Slot.CREDIT])
def test_every_group_credit_is_under_these_tests(slot):
    elsewhere = {"maxrl", "pass-at-k", "reinforce-pp"}  # test_success_credit.py, test_batch_credit.py
    elsewhere |= {"treerpo", "grpo-process"}  # test_tree_credit.py (rewards from 0 to 1), test_step_credit.py
    labels = {"gae", "pairs", "rejection", "awr"}  # they yield no advantages: test_credit_kinds.py
    here = {type(credit).method.name for credit in CREDITS}
    assert set(INDEX[slot]) == here | elsewhere | labels, "add the new credit to CREDITS"
