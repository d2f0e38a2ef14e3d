"""MaxRL and pass@k: what they estimate, checked against enumeration, and the edges of their groups."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.admission import AdmissionSettings
from gfcr.filter.credit.success import MaxRL, PassAtK
from gfcr.registry import INDEX, Slot
from gfcr.types import Drop
from group_cases import advantages, group, signals
from lifecycle_cases import batch_of, lab, row_advantages

KEEP = AdmissionSettings(drop_zero_variance=False)
MAXRL = MaxRL(MaxRL.Settings(), None)


def pass_at(k, of=64, **settings):
    return PassAtK(PassAtK.Settings(k=k, **settings), Build(0, (), 1, of, 16))


def binary(outcomes, credit, settings=KEEP):
    return advantages(group([None if o is None else float(o) for o in outcomes], binary=True), credit, settings)


each = pytest.mark.parametrize("credit", [MAXRL, pass_at(2), pass_at(4)], ids=["maxrl", "pass@2", "pass@4"])


@each
@given(value=st.sampled_from([0.0, 1.0]), n=st.integers(2, 64))
def test_an_all_equal_group_has_advantage_exactly_zero(credit, value, n):
    assert binary([value] * n, credit) == [0.0] * n


@pytest.mark.parametrize("rewards", [[0.1] * 3, [0.2] * 8, [float(np.float32(0.1)), 0.1, 0.1], [1e8 + 0.1] * 5])
def test_float_noise_is_no_signal_for_maxrl(rewards):
    assert advantages(group(rewards), MAXRL, KEEP) == [0.0] * len(rewards)


@each
@given(outcomes=st.lists(st.booleans(), min_size=2, max_size=24))
def test_advantages_sum_to_zero_and_are_bounded(credit, outcomes):
    values = binary(outcomes, credit)
    assert sum(values) == pytest.approx(0, abs=1e-6)
    assert max(map(abs, values)) <= len(outcomes) - 1 + 1e-9


@given(st.lists(st.floats(0, 5), min_size=2, max_size=12))
def test_maxrl_is_bounded_for_any_rewards_of_zero_and_more(rewards):
    values = advantages(group(rewards), MAXRL, KEEP)
    assert all(-1 <= v <= len(rewards) - 1 for v in values)


def test_a_lone_loser_beside_seven_of_95_hundredths():
    values = advantages(group([0.0] + [0.95] * 7), MAXRL)
    assert values[0] == pytest.approx(-1, abs=1e-5)
    assert values[1:] == pytest.approx([1 / 7] * 7, abs=1e-5)


@each
def test_an_unscorable_member_is_in_no_statistic(credit):
    whole = binary([1, 0, 0, 0, 1, 0], credit)
    assert binary([1, 0, None, 0, 0, 1, None, 0], credit) == [*whole[:2], None, *whole[2:5], None, whole[5]]


@each
def test_a_cohort_of_one_gets_zero(credit):
    made = group([1.0, 0, 0, 0, 0, 1.0], binary=True)
    made.members["g5"].cohort = "old"
    assert advantages(made, credit, KEEP)[5] == 0.0


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("p", [0.02, 0.3, 0.9])
def test_maxrl_is_the_gradient_of_truncated_log_likelihood(n, p):
    """Exact over all outcomes of n draws of a coin with P = sigmoid(x): E[mean of A (r - p)] is d/dx of log P(right) cut after
    order n - 1, sum over k < n of (1 - p)^(k - 1) * p (1 - p)."""
    found = 0.0
    for right in range(n + 1):
        outcomes = np.array([1.0] * right + [0.0] * (n - right))
        values = np.array(binary(outcomes, MaxRL(MaxRL.Settings(eps=0), None)))
        found += comb(n, right) * p**right * (1 - p) ** (n - right) * float(np.mean(values * (outcomes - p)))
    assert found == pytest.approx(sum((1 - p) ** (k - 1) for k in range(1, n)) * p * (1 - p), rel=1e-9)


@pytest.mark.parametrize("k", [2, 3, 4])
@given(outcomes=st.lists(st.booleans(), min_size=5, max_size=9))
def test_pass_at_k_is_the_mean_over_all_subsets(k, outcomes):
    """Each answer's advantage is the mean, over the subsets it is in, of the subset's own normalised reward."""
    rewards = {s: float(any(outcomes[i] for i in s)) for s in combinations(range(len(outcomes)), k)}
    mean, spread = np.mean(list(rewards.values())), np.std(list(rewards.values()))
    expected = [
        float(np.mean([(r - mean) / spread for s, r in rewards.items() if i in s])) if spread else 0.0
        for i in range(len(outcomes))
    ]
    assert binary(outcomes, pass_at(k, eps=0)) == pytest.approx(expected, abs=1e-9)


def test_a_group_that_lost_too_many_members_for_k_has_no_advantage():
    assert binary([1, 0, 0, None, None, None], pass_at(4)) == [0.0, 0.0, 0.0, None, None, None]
    assert binary([1, 0, 0, 0, None], pass_at(4)) == [0.0] * 4 + [None]


def test_pass_at_k_reads_correctness_and_never_the_reward():
    made = group([1.0, 0.0, 0.0, 0.0], binary=True)
    expected = advantages(made, pass_at(2))
    made = group([1.0, 0.0, 0.0, 0.0], binary=True)
    for one, reward in zip(made.members.values(), (0.25, -1.0, 0.2, 7.0)):
        one.signals = signals(reward, one.signals.correct)
    assert advantages(made, pass_at(2)) == expected


def test_an_answer_nobody_decided_is_an_error_and_never_wrong():
    with pytest.raises(ConfigError, match="'pass-at-k' needs right and wrong answers, and 'v' scored the answer g0"):
        advantages(group([1.0, 0.5, 0.0]), pass_at(2))


@pytest.mark.parametrize(("k", "of"), [(4, 4), (8, 4), (1, 1)])
def test_a_k_that_could_never_teach_is_refused(k, of):
    with pytest.raises(ConfigError, match=f"k = {k} of groups of {of}"):
        pass_at(k, of)


def test_a_negative_reward_is_an_error_in_maxrl():
    with pytest.raises(ConfigError, match=r"an answer has the reward -0\.5"):
        advantages(group([1.0, -0.5]), MAXRL)


def test_scores_of_zero_and_95_hundredths_through_the_recipe(monkeypatch):
    """[0] + [0.95] * 7 with a verifier that scores without deciding: the group is kept, the loser too."""
    monkeypatch.setitem(INDEX[Slot.VERIFIER], "scored", "lifecycle_methods:Scored")
    run = lab(
        lambda prompt, nth: "=#00" if nth == 0 else "=a" if nth == 8 else "=#95",
        k=9,
        filter={"verifiers": [{"name": "scored"}], "credit": {"name": "maxrl"}},
    )
    round_ = run.drive()
    assert row_advantages(batch_of(round_)) == pytest.approx([-1.0] + [1 / 7] * 7, abs=1e-5)
    (only,) = round_.groups.values()
    assert [m.drop for m in only.members.values()] == [None] * 8 + [Drop.UNSCORABLE]
