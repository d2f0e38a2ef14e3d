"""Credit across the batch: whitening, and REINFORCE++ on groups and on single answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.filter.admission import AdmissionSettings, admit, baseline
from gfcr.filter.credit.batch import Whiten, rl_tokens
from gfcr.filter.credit.reinforce import ReinforcePlusPlus
from gfcr.registry import INDEX, Slot
from gfcr.types import Credit, LossRole, SegmentKind
from group_cases import action, group, member, plain, rollout
from lifecycle_cases import LENGTHS, batch_of, lab, row_advantages

KEEP = {"drop_zero_variance": False}
PLUS = {"credit": {"name": "reinforce-pp"}, "credit_batch": {"name": "whiten"}, "admission": KEEP}
each_form = pytest.mark.parametrize(
    "settings", [{}, {"over": "answers"}, {"eps": 0}, {"eps": 1e-4, "eps_on": "std"}], ids=["tokens", "answers", "eps0", "gdpo"]
)


def credited(values, lengths=None, name="g"):
    """A group whose members have these credits (None = none) on that many RL tokens each."""
    made = group([0.0] * len(values), name)
    for i, (one, value) in enumerate(zip(made.members.values(), values)):
        one.rollout = rollout(one.rollout.id, plain(SegmentKind.PROMPT, 2), action(lengths[i] if lengths else 3))
        one.credit = None if value is None else Credit(value, weight=0.5)
    return made


def whitened(*groups, **settings):
    """Advantages by group after whitening them together."""
    Whiten(Whiten.Settings(**settings), None).credit(groups)
    return [[None if m.credit is None else m.credit.advantage for m in g.members.values()] for g in groups]


def per_token(values, lengths):
    return np.repeat(np.array(values, np.float64), lengths)


def test_mean_zero_and_sample_std_one_over_the_batchs_tokens():
    lengths = [[1, 2, 3], [4, 5], [6]]
    found = whitened(*(credited([0.1, 0.7, -2.0][: len(n)], n, name=f"g{i}-") for i, n in enumerate(lengths)), eps=0)
    tokens = per_token([v for g in found for v in g], [n for g in lengths for n in g])
    assert tokens.mean() == pytest.approx(0, abs=1e-9)
    assert tokens.std(ddof=1) == pytest.approx(1)


def test_over_answers_every_answer_counts_once():
    (found,) = whitened(credited([1.0, 0.0, 0.0], [50, 1, 2]), over="answers", eps=0)
    assert found == pytest.approx([2 / 3 / np.sqrt(1 / 3), -1 / 3 / np.sqrt(1 / 3), -1 / 3 / np.sqrt(1 / 3)])


@each_form
@pytest.mark.parametrize("values", [[0.1] * 3, [0.2] * 8, [float(np.float32(0.1)), 0.1, 0.1], [1e6 + 0.1] * 5, [0.3]])
def test_a_batch_of_equal_credits_has_advantage_exactly_zero(settings, values):
    assert whitened(credited(values), **settings) == [[0.0] * len(values)]


@each_form
@given(st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=5), min_size=1, max_size=5))
def test_uneven_groups_stay_finite_and_bounded(settings, batch):
    groups = [credited(values, name=f"g{i}-") for i, values in enumerate(batch)]
    tokens = 3 * sum(map(len, batch))
    assert all(abs(v) <= np.sqrt(tokens) for g in whitened(*groups, **settings) for v in g)


def test_a_lone_loser_beside_seven_winners_is_bounded():
    (found,) = whitened(credited([0.0] + [0.95] * 7))
    assert found[0] == pytest.approx(-np.sqrt(7 * 23 / 24), rel=1e-6) and found[1] > 0


def test_members_without_loss_are_in_no_statistic_and_stay_as_they_are():
    made, other = credited([1.0, 0.0, 100.0, None]), credited([1.0, 0.0])
    made.members["g2"].in_loss = False
    (one,), (two,) = whitened(made), whitened(other)
    assert one[:2] == two
    assert one[2:] == [100.0, None]


def test_an_answer_without_a_token_moves_nobody():
    assert whitened(credited([1.0, 0.0, 9.0], [3, 3, 0]))[0][:2] == whitened(credited([1.0, 0.0]))[0]


def test_the_order_of_groups_and_members_does_not_matter():
    lengths = [5, 1, 2]
    one = whitened(credited([0.3, 0.9, 0.1], lengths, "a"), credited([0.5], name="b"))
    two = whitened(credited([0.5], name="b"), credited([0.1, 0.9, 0.3], lengths[::-1], "a"))
    assert two[1][::-1] == pytest.approx(one[0]) and two[0] == pytest.approx(one[1])


def test_without_centring_an_advantage_of_zero_stays_zero():
    (found,) = whitened(credited([0.0, 1.0, 0.0]), centre=False)
    assert found[0] == found[2] == 0.0 and found[1] > 0


def test_weights_and_the_kind_of_credit_survive():
    made = credited([1.0, 0.0])
    values = np.array([0, 0, 1, 2, 3], np.float32)
    made.members["g0"].credit = Credit(values, weight=0.25, ce_weight=0.5)
    whitened(made)
    credit = made.members["g0"].credit
    assert (credit.weight, credit.ce_weight, credit.advantage.dtype) == (0.25, 0.5, np.float32)
    assert credit.advantage[:2].tolist() == [0, 0], "tokens without a loss have no advantage"
    tokens = np.concatenate([credit.advantage[2:], [made.members["g1"].credit.advantage] * 3])
    assert tokens.mean() == pytest.approx(0, abs=1e-6)
    assert np.diff(credit.advantage[2:]) == pytest.approx([credit.advantage[3] - credit.advantage[2]] * 2)


def returns(one, gamma):
    made = group([1.0])
    made.members = {one.rollout.id: one}
    (credit,) = ReinforcePlusPlus(ReinforcePlusPlus.Settings(gamma=gamma), None).credit(made, [one]).values()
    return credit.advantage


def test_returns_are_discounted_over_the_policys_tokens_only():
    one = member("r", 2.0)
    one.rollout = rollout("r", plain(SegmentKind.PROMPT, 2), action(2), plain(SegmentKind.OBSERVATION, 3), action(1, turn=1))
    assert returns(one, 0.5).tolist() == [0, 0, 0.5, 1.0, 0, 0, 0, 2.0]
    assert returns(one, 0.0).tolist() == [0, 0, 0, 0, 0, 0, 0, 2.0]
    assert returns(one, 1.0) == 2.0
    assert rl_tokens(one.rollout).tolist() == [False] * 2 + [True] * 2 + [False] * 3 + [True]


def test_a_rollout_without_a_token_of_ours_has_returns_of_zero():
    one = member("r", 2.0)
    one.rollout = rollout("r", plain(SegmentKind.PROMPT, 2), action(2, role=LossRole.NONE))
    assert returns(one, 0.5).tolist() == [0] * 4


def test_discounted_returns_reach_the_batch_token_by_token():
    run = lab("rw", k=2, filter={**PLUS, "credit": {"name": "reinforce-pp", "gamma": 0.5}})
    batch = batch_of(run.drive())
    raw = np.concatenate([0.5 ** np.arange(7, -1, -1.0), np.zeros(4)])
    assert batch.advantages[batch.rl_mask] == pytest.approx((raw - raw.mean()) / np.sqrt(raw.var(ddof=1) + 1e-8), abs=1e-6)


@pytest.mark.parametrize("topology", [{"name": "linear"}, {"name": "group", "k": 1}], ids=["linear", "k=1"])
def test_single_answers_are_credited_against_the_batch(topology):
    """The golden vector of one group of four, here four tasks of one answer each."""
    script = {f"a+?0{i}": "rwww"[i] for i in range(4)}
    round_ = lab(script, n_tasks=4, generate={"topology": topology}, filter=PLUS).drive()
    batch, groups = batch_of(round_), round_.groups
    assert len(groups) == len(batch) == 4
    found = {groups[g].task.prompt: a for g, a in zip(batch.group_ids, row_advantages(batch))}
    expected = {"r": 1.193734, "w": -0.795822}
    assert found == {prompt: pytest.approx(expected[letter], abs=1e-6) for prompt, letter in script.items()}
    assert [LENGTHS[script[groups[g].task.prompt]] + 6 for g in batch.group_ids] == batch.lengths.tolist()


def test_an_all_right_group_has_signal_against_the_batch_unless_it_is_dropped():
    script = {"a+?00": "rr", "a+?01": "ww"}
    kept = row_advantages(batch_of(lab(script, n_tasks=2, k=2, filter=PLUS).drive()))
    assert sorted(v > 0 for v in kept) == [False, False, True, True]
    dropped = lab(script, n_tasks=2, k=2, filter={**PLUS, "admission": {}}).drive()
    assert len(batch_of(dropped)) == 0


def test_a_batch_that_is_all_right_teaches_nothing():
    assert row_advantages(batch_of(lab("r", n_tasks=3, k=2, filter=PLUS).drive())) == [0.0] * 6


def test_an_unscorable_answer_is_in_no_statistic_of_the_batch(monkeypatch):
    monkeypatch.setitem(INDEX[Slot.VERIFIER], "scored", "lifecycle_methods:Scored")
    rule = {**PLUS, "verifiers": [{"name": "scored"}]}

    def values(script):
        return row_advantages(batch_of(lab(lambda p, nth: script[nth], k=len(script), filter=rule).drive()))

    assert values(["=#10", "=a", "=#90", "=#35"]) == values(["=#10", "=#90", "=#35"])


def test_whitening_after_a_group_baseline_leaves_no_group_in_another_ones_mean():
    """REINFORCE++-baseline: the group's mean is taken before, so a hard and an easy group differ in nothing."""
    script = {"a+?00": "rwwwwwww", "a+?01": "wrrrrrrr"}
    rule = {"credit": {"name": "reinforce-pp-baseline"}, "credit_batch": {"name": "whiten", "over": "answers"}}
    round_ = lab(script, n_tasks=2, k=8, filter=rule).drive()
    batch = batch_of(round_)
    by_task = {}
    for row, value in enumerate(row_advantages(batch)):
        by_task.setdefault(round_.groups[batch.group_ids[batch.groups[row]]].task.prompt, []).append(value)
    assert [-v for v in sorted(by_task["a+?01"])[::-1]] == pytest.approx(sorted(by_task["a+?00"]))


def test_credit_within_the_group_needs_nothing_of_the_batch():
    made = group([1.0, 0.0])
    admit(made, AdmissionSettings())
    credits = ReinforcePlusPlus(ReinforcePlusPlus.Settings(), None).credit(made, baseline(made))
    assert [c.advantage for c in credits.values()] == [1.0, 0.0]
