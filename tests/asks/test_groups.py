"""What users of such systems report about groups and advantages: each kind of fault, by its smallest input.

The numbers are those of the project's list of user reports; the report each kind was first seen in stands in its docstring.
"""

from dataclasses import replace

import numpy as np
import pytest

from gfcr.build import check_recipe
from gfcr.context import Build
from gfcr.filter.admission import AdmissionSettings, admit, has_signal
from gfcr.filter.assemble import build_batch
from gfcr.recipe import parse
from gfcr.registry import Slot, all_methods, find, settings_of
from gfcr.types import Drop, GroupState, Normalise, StopReason
from group_cases import advantages, finite, group, member
from lifecycle_cases import batch_of, lab, letters, row_advantages

BASELINES = [
    m
    for m in all_methods()
    if m.slot is Slot.CREDIT
    and "needs: group baseline" in m.traits
    and not {"assumes: binary correctness", "yields: cross-entropy", "needs: step scores", "assumes: rewards from 0 to 1"}
    & (m.traits | settings_of(m, {}).traits())
]
"""Every credit whose advantage compares a member with its group, for any reward: the kinds below must be impossible in each.
(TreeRPO's default wants rewards from 0 to 1: tests/filter/test_tree_credit.py.) Weights of a cross-entropy are no advantages: tests/filter/test_credit_kinds.py; steps are compared with steps:
tests/filter/test_step_credit.py."""


def credit(method):
    method = find(Slot.CREDIT, method) if isinstance(method, str) else method
    return method.cls(settings_of(method, {}), Build(0, [], 1, 8, 16, {}, str))


every_baseline = pytest.mark.parametrize("method", BASELINES, ids=lambda m: m.name)
keep_all = AdmissionSettings(drop_zero_variance=False)


def by_group(round_, batch):
    """Group's task -> {letter: advantage}, of the rows in the batch."""
    of = {i: g.task.prompt for g in round_.groups.values() for i in g.members}
    out: dict[str, dict[str, float]] = {}
    for rollout, letter, advantage in zip(batch.rollout_ids, letters(round_, batch), row_advantages(batch)):
        out.setdefault(of[rollout], {})[letter] = advantage
    return out


@every_baseline
@pytest.mark.parametrize("rewards", [[0.1] * 3, [0.2] * 8, [1 / 3] * 7, [1e6 + 0.1] * 5, [0.7] * 64])
def test_13_catastrophic_cancellation_in_an_all_equal_group(method, rewards):
    """NousResearch/atropos#481: the variance of [.1, .1, .1] is -1.7e-18, its root complex."""
    assert advantages(group(rewards), credit(method), keep_all) == [0.0] * len(rewards)


@every_baseline
@pytest.mark.parametrize("rewards", [[0.35] * 7 + [0.0], [1, 0, 0, 0], [0.0] + [0.95] * 7, [1.0] + [0.0] * 63])
def test_14_a_spread_that_is_only_float_noise_divides_nothing(method, rewards):
    """NVIDIA-NeMo/RL#4161, #1518: the others' spread is 1.6e-4 or 0, and an advantage reaches thousands or a million."""
    found = advantages(group(np.float32(rewards).tolist()), credit(method))
    assert finite(found)
    assert max(abs(a) for a in found) <= len(rewards)  # the largest that dividing by a rate of 1/n gives


def test_14_a_lone_winner_and_a_lone_loser_get_what_leaving_one_out_means():
    """NVIDIA-NeMo/RL#1518: about 1.0 and -0.95."""
    assert advantages(group([1, 0, 0, 0]), credit("rloo"))[0] == pytest.approx(1.0)
    assert advantages(group(np.float32([0] + [0.95] * 7).tolist()), credit("rloo"))[0] == pytest.approx(-0.95)


@pytest.mark.parametrize("rewards", [[0.2] * 8, [0.5] * 8, [0.1 + 0.2, 0.3, 0.3], [0.0] * 4, [1.0] * 4])
def test_15_and_17_a_constant_group_is_dropped_whatever_its_constant(rewards):
    """radixark/miles#701: eight times .2 has a float std above 0. OpenRLHF/OpenRLHF#1272: only the mean is looked at, and .5
    lies between the bounds."""
    made = group(rewards)
    admit(made, AdmissionSettings())
    assert not has_signal(made)
    assert {m.drop for m in made.members.values()} == {Drop.ZERO_VARIANCE}
    assert not any(m.in_loss or m.in_baseline for m in made.members.values())


def test_16_a_group_is_judged_as_a_group_and_keeps_its_lone_loser():
    """NVIDIA-NeMo/RL#4158: a test per row drops the loser and keeps seven identical winners."""
    made = group([0.0] + [0.95] * 7)
    found = advantages(made, credit("grpo"))
    assert all(m.in_loss and m.drop is None for m in made.members.values())
    assert found[0] < 0 < found[1] == found[7]
    assert sum(found) == pytest.approx(0, abs=1e-6)


def test_18_a_length_penalty_gives_an_all_wrong_group_no_signal():
    """verl-project/verl-recipe#125: admission reads the shaped reward, all-wrong groups survive, the policy collapses."""
    made = group([0.0] * 4)
    for i, one in enumerate(made.members.values()):
        one.signals = replace(one.signals, shaped=-0.1 * i)
    assert len({m.signals.credit_reward for m in made.members.values()}) == 4  # the penalty is what credit would see
    admit(made, AdmissionSettings())
    assert not has_signal(made) and {m.drop for m in made.members.values()} == {Drop.ZERO_VARIANCE}


def test_19_a_missing_member_moves_no_border_between_groups():
    """areal-project/AReaL#1559, #1563, #1416, #1419: K = 4, one member broke for good, and rows are cut with a fixed stride."""
    script = {"a+?00": "rfww", "a+?01": "rrrw"}
    made = lab(lambda prompt, nth: script[prompt][nth % 4], n_tasks=2, k=4, control={"retries": 0})
    round_ = made.drive()
    batch = batch_of(round_)
    sizes = {g.task.prompt: len(g.members) for g in round_.groups.values()}
    assert sizes == {"a+?00": 3, "a+?01": 4}
    eps = 1e-4

    def grpo(n, right):
        mean = right / n
        std = np.sqrt(mean * (1 - mean))
        return {"r": (1 - mean) / (std + eps), "w": -mean / (std + eps)}

    found = by_group(round_, batch)
    for prompt, (n, right) in {"a+?00": (3, 1), "a+?01": (4, 3)}.items():
        assert found[prompt] == pytest.approx(grpo(n, right), abs=1e-6), prompt
    assert round_.failed["engine"] == 3  # the broken one's tokens are booked, not forgotten


def test_20_odd_group_sizes_never_fall_back_to_one_global_group():
    """radixark/miles#1325: three rollouts where four were expected are normalised together."""
    script = {"a+?00": "rw", "a+?01": "rf"}
    made = lab(lambda prompt, nth: script[prompt][nth % 2], n_tasks=2, k=2, control={"retries": 0})
    round_ = made.drive()
    batch = batch_of(round_)
    whole, broken = (next(g for g in round_.groups.values() if g.task.prompt == p) for p in ("a+?00", "a+?01"))
    assert broken.state is GroupState.ABANDONED and broken.reason.startswith("too_few_members: 1 judged of 2 planned")
    assert set(batch.rollout_ids) == set(whole.members)
    alone = lab("rw", n_tasks=1, k=2).drive()
    assert sorted(row_advantages(batch)) == sorted(row_advantages(batch_of(alone)))


def test_21_one_prompt_and_k_of_2_are_two_requests_and_two_rows():
    """huggingface/trl rollout_func: the documentation says prompts come once, the code repeats them."""
    made = lab("rw", n_tasks=1, k=2)
    batch = batch_of(made.drive())
    assert (
        len(made.engine.requests)
        == 2
        == len({r.id for r in made.engine.requests})
        == len({r.key for r in made.engine.requests})
    )
    assert len(batch) == 2 == len(set(batch.rollout_ids))


@pytest.mark.parametrize("names", [("-1", "3"), ("2", "1000"), ("a group", "\N{SNOWMAN}")])
def test_verl_7150_any_label_is_a_group(names):
    """Negative labels crash, sparse ones waste memory: labels are used as positions."""

    def columns(labels):
        groups = [group([1.0, 0.0], name) for name in labels]
        for made in groups:
            advantages(made, credit("rloo"))
        batch = build_batch(groups, Normalise.TOKEN_MEAN, None, 0, 0)
        return batch.advantages[batch.rl_mask].tolist(), batch.groups.tolist(), len(batch)

    assert columns(names) == columns(("0", "1"))


@every_baseline
def test_trl_5773_a_sample_that_nobody_scored_is_not_a_zero(method):
    """Every reward function abstains on one of four, the sum of nothing is 0, and it pulls mean and std."""
    made = group([1.0, 1.0, None, 1.0])
    assert advantages(made, credit(method), keep_all) == [0.0, 0.0, None, 0.0]
    assert [m.drop for m in made.members.values()] == [None, None, Drop.UNSCORABLE, None]
    mixed, without = group([1.0, 0.0, None, 1.0]), group([1.0, 0.0, 1.0])
    found = advantages(mixed, credit(method))
    assert [a for a in found if a is not None] == advantages(without, credit(method))


@pytest.mark.parametrize("name", [m.name for m in BASELINES])
def test_openrlhf_1250_a_group_of_one_with_a_group_baseline_is_refused(name):
    """One sample per prompt: every advantage is 0 and training does nothing, silently."""
    recipe = parse({"generate": {"topology": {"name": "group", "k": 1}}, "filter": {"credit": {"name": name}}})
    found = [f for f in check_recipe(recipe) if "group" in f.why]
    assert found and all(f.remedy for f in found)


@every_baseline
def test_slime_2230_uneven_groups_are_normalised_by_id(method):
    """Groups of 4, 3, 4 are reshaped into one row; the middle one is [5, 5, 5]."""
    groups = [group([1, 0, 0, 1], "a"), group([5, 5, 5], "b"), group([0, 0, 0, 3], "c")]
    together = [advantages(made, credit(method), keep_all) for made in groups]
    assert together[1] == [0.0] * 3
    assert together[0] == advantages(group([1, 0, 0, 1], "a"), credit(method), keep_all)
    assert together[2] == advantages(group([0, 0, 0, 3], "c"), credit(method), keep_all)


@every_baseline
def test_areal_1351_a_masked_sample_is_in_no_baseline(method):
    """Cut at the limit and masked, it still enters the mean: [1, 100] with the second one masked."""

    def first(second):
        made = group([1.0, 0.0], "g")
        made.members["cut"] = member("cut", second, stop=StopReason.MAX_TOKENS)
        found = advantages(made, credit(method), AdmissionSettings(overlong="mask"))
        assert found[2] is None and made.members["cut"].drop is Drop.OVERLONG
        return found[:2]

    assert first(100.0) == first(1.0) == first(-3.0)
