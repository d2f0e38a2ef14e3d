"""CISPO, GSPO, preference and value losses against numbers worked out by hand and against finite differences."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfcr.errors import ConfigError, DataError
from gfcr.filter.assemble import build_batch
from gfcr.train.losses import cispo_loss, preference_loss, sequence_loss, value_loss
from gfcr.train.settings import LossSettings, TrainSettings, ValueSettings, mismatch
from gfcr.train.value import bilevel_gae, criticise, gae, whitened
from gfcr.types import Credit, Normalise
from group_cases import action, group, member, plain, rollout

nan = float("nan")


def double(values, grad=False):
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def logs(ratios):
    return torch.log(double(ratios)).requires_grad_()


def test_cispo_clips_the_weight_and_keeps_every_tokens_gradient():
    """arXiv:2506.13585 eq. 4: -sg(clip(r)) A log p; the gradient is the clipped weight times A, above the bound too."""
    logp = double([math.log(0.5), math.log(0.9), math.log(0.1)], True)
    base = double([math.log(0.05), math.log(0.6), math.log(0.5)])  # ratios 10, 1.5, 0.2
    terms = cispo_loss(logp, base, double([2.0, -1.0, 1.0]), low=0.0, high=5.0)
    assert terms.loss.tolist() == pytest.approx([-10 * math.log(0.5), 1.5 * math.log(0.9), -0.2 * math.log(0.1)])
    terms.loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-10.0, 1.5, -0.2])
    assert terms.clipped_high.tolist() == [True, False, False] and not terms.clipped_low.any()
    floored = cispo_loss(logp, base, double([2.0, -1.0, 1.0]), low=0.8, high=1.2)
    assert (-floored.loss / logp.detach() / double([2.0, -1.0, 1.0])).tolist() == pytest.approx([1.2, 1.2, 0.8])
    assert floored.clipped_low.tolist() == [False, False, True]


ROWS, MASK = torch.tensor([0, 0, 1, 1, 1, 0]), torch.tensor([True, True, True, True, False, False])
"""Two answers of two tokens that count; two tokens that do not."""
RATIOS = [4.0, 1.0, 0.5, 0.5, 9.0, 9.0]


@pytest.mark.parametrize("per_token", [False, True])
def test_gspo_has_one_ratio_per_answer(per_token):
    """arXiv:2507.18071 eq. 7: s = (4 * 1)^(1/2) = 2 and (0.5 * 0.5)^(1/2) = 0.5. Gradient by log p_t: s / |y| each (GSPO), or
    s of the token's own loss (GSPO-token): the same once the answer's losses are summed."""
    logp = logs(RATIOS)
    terms = sequence_loss(
        logp,
        torch.zeros(6),
        double([1.0, 1.0, -2.0, -2.0, 0.0, 0.0]),
        ROWS,
        MASK,
        clip_low=0.9,
        clip_high=9.0,
        per_token=per_token,
    )
    assert terms.ratio.tolist()[:4] == pytest.approx([2.0, 2.0, 0.5, 0.5])
    assert terms.loss.tolist() == pytest.approx([-2.0, -2.0, 1.0, 1.0, 0.0, 0.0])
    terms.loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-2.0, -2.0, 1.0, 1.0, 0.0, 0.0])


def test_gspo_clips_whole_answers():
    logp = logs(RATIOS)
    terms = sequence_loss(
        logp, torch.zeros(6), double([1.0, 1.0, -2.0, -2.0, 0.0, 0.0]), ROWS, MASK, clip_low=3e-4, clip_high=4e-4
    )
    assert terms.loss.tolist()[:4] == pytest.approx([-1.0004, -1.0004, 2 * 0.9997, 2 * 0.9997])
    assert terms.clipped_high.tolist()[:2] == [True, True] and terms.clipped_low.tolist()[2:4] == [True, True]
    terms.loss.sum().backward()
    assert not logp.grad.any()


def test_gspo_token_lets_advantages_differ_within_an_answer():
    logp = logs([4.0, 1.0])
    rows, mask = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    both = {"clip_low": 0.9, "clip_high": 9.0}
    sequence_loss(logp, torch.zeros(2), double([3.0, -1.0]), rows, mask, per_token=True, **both).loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-6.0, 2.0])


def test_dpo_and_ipo_by_hand():
    """h = margin - reference margin = 1, beta = .1. DPO: -log sigma(.1) = .644397; smoothed by .2: .8 * .644397 + .2 * .744397.
    IPO: (1 - 1 / .2)^2 = 16."""
    margin, reference = double([2.0], True), double([1.0])
    plain = preference_loss(margin, reference, beta=0.1, squared=False)
    assert plain.item() == pytest.approx(0.644397, abs=1e-6)
    plain.backward()
    assert margin.grad.item() == pytest.approx(-0.1 / (1 + math.exp(0.1)))  # -beta sigma(-beta h): eq. 7's weight
    assert preference_loss(margin, reference, beta=0.1, squared=False, smoothing=0.2).item() == pytest.approx(
        0.664397, abs=1e-6
    )
    assert preference_loss(margin, reference, beta=0.1, squared=True).item() == pytest.approx(16.0)
    assert preference_loss(double([0.0]), double([0.0]), beta=3.0, squared=False).item() == pytest.approx(math.log(2))


def test_value_loss_by_hand_takes_the_larger_of_clipped_and_not():
    # V - R:  0.5 either way | clipped V = .2, further from R = 1 | clipped V = .2, nearer to R = 0: the unclipped one counts
    loss = value_loss(double([0.1, 0.9, 0.9]), double([0.0, 0.0, 0.0]), double([0.6, 1.0, 0.0]), 0.2)
    assert loss.tolist() == pytest.approx([0.5 * 0.5**2, 0.5 * 0.8**2, 0.5 * 0.9**2])
    assert value_loss(double([0.9]), double([0.0]), double([1.0]), None).tolist() == pytest.approx([0.5 * 0.1**2])


def test_gae_by_hand():
    """delta = r + gamma V' - V: .04, .03, .3; A = .3, .03 + .72 * .3, .04 + .72 * .246 (gamma .9, lambda .8)."""
    found = gae(np.array([0.0, 0.0, 1.0]), np.array([0.5, 0.6, 0.7]), np.array([3]), 0.9, 0.8)
    assert found == pytest.approx([0.21712, 0.246, 0.3])


@pytest.mark.parametrize("gamma, lam", [(1.0, 1.0), (0.97, 0.9), (1.0, 0.0), (0.0, 0.7)])
def test_gae_is_the_discounted_sum_of_one_step_errors_and_rows_do_not_mix(gamma, lam):
    rng = np.random.default_rng(1)
    lengths = np.array([3, 0, 1, 5])
    rewards, values = rng.normal(size=9), rng.normal(size=9)
    found, at = gae(rewards, values, lengths, gamma, lam), 0
    for length in lengths:
        r, v = rewards[at : at + length], np.append(values[at : at + length], 0.0)
        delta = r + gamma * v[1:] - v[:-1]
        for t in range(length):
            assert found[at + t] == pytest.approx(sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, length)))
        at += length


def test_lambda_one_is_return_minus_value():
    assert gae(np.array([1.0, 0.0, 2.0]), np.array([0.5, 0.1, 0.2]), np.array([3]), 1.0, 1.0) == pytest.approx([2.5, 1.9, 1.8])


def test_bilevel_gae_by_hand():
    """Turns of 2, 1 and 1 tokens (gamma .5, lambda .8, turn gamma .9). Turns: V .4, .6, .7, rewards 0, 1, 2: deltas 1.3, 1.03, .14;
    A = 1.3, 1.03 + .72 * 1.3 = 1.966, .14 + .72 * 1.966 = 1.55552. Inside the first: its end has the return 1.95552 as reward, so
    A = 1.55552 there and .5 * .4 - .2 + .4 * 1.55552 before it. Its reward of exactly 0 is a reward."""
    rewards, values = np.array([0.0, 0.0, 1.0, 2.0]), np.array([0.2, 0.4, 0.6, 0.7])
    found = bilevel_gae(rewards, values, np.array([4]), np.array([False, True, True, True]), 0.5, 0.8, 0.9)
    assert found == pytest.approx([0.622208, 1.55552, 1.966, 1.3])


@given(st.lists(st.lists(st.integers(1, 4), min_size=0, max_size=3), min_size=1, max_size=4), st.integers(0, 99))
def test_bilevel_gae_without_discount_is_gae_and_rows_do_not_mix(rows, seed):
    """With lambda = 1 and no discount both are return minus value, where rewards stand at the ends of turns."""
    rng = np.random.default_rng(seed)
    lengths = np.array([sum(row) for row in rows])
    ends = np.array([t == n - 1 for row in rows for n in row for t in range(n)], bool)
    rewards, values = rng.normal(size=len(ends)) * ends, rng.normal(size=len(ends))
    found = bilevel_gae(rewards, values, lengths, ends, 1.0, 1.0, 1.0)
    assert found == pytest.approx(gae(rewards, values, lengths, 1.0, 1.0))
    at = 0
    for length in lengths:
        part = slice(at, at + length)
        alone = bilevel_gae(rewards[part], values[part], lengths[lengths == length][:1], ends[part], 0.9, 0.8, 0.7)
        assert bilevel_gae(rewards, values, lengths, ends, 0.9, 0.8, 0.7)[part] == pytest.approx(alone)
        at += length


@pytest.mark.parametrize("read", [1, 0])
def test_turns_are_the_recorded_ones(read):
    """Also where nothing was read between two."""
    made = group([], "g")
    for name, reward in (("a", 1.0), ("b", 0.0)):
        one = made.members[name] = member(name, reward, bool(reward))
        between = [plain("observation", read, turn=1)] if read else []
        one.rollout = rollout(name, plain("prompt", 2), action(2), *between, action(1, turn=1))
        rewards = np.array([0, 0, 0, 0, *[0] * read, reward], np.float32)
        one.credit = Credit(None, rewards=rewards)
    batch = build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0)
    assert batch.turns.dtype == np.int32 and batch.turns.tolist() == [-1, -1, 0, 0, *[-1] * read, 1] * 2
    values = np.where(batch.rl_mask, 0.5, np.nan)
    settings = ValueSettings(turn_gamma=0.5, gamma=1.0, lam=0.0, whiten=False)
    advantages, critic = criticise(batch, values, settings)
    # the last turns' errors are .5 and -.5; the first ones end with .5 * V' - V = -.25, and return .25; inside them V' - V = 0
    assert advantages[batch.rl_mask] == pytest.approx([0, -0.25, 0.5, 0, -0.25, -0.5])
    assert critic.returns[batch.rl_mask] == pytest.approx([0.5, 0.25, 1.0, 0.5, 0.25, 0.0])
    with pytest.raises(DataError, match="turn_gamma"):
        criticise(replace(batch, turns=None), values, settings)


def test_whitening_is_that_of_verl_and_knows_what_it_cannot_whiten():
    values = np.array([1.0, 2.0, 3.0, 6.0])
    assert whitened(values) == pytest.approx((values - 3.0) / np.sqrt(14 / 3 + 1e-8))
    assert whitened(np.array([0.7])).tolist() == [0.0] and whitened(np.full(3, 0.1)) == pytest.approx([0, 0, 0], abs=1e-6)
    assert whitened(np.empty(0)).shape == (0,)


@pytest.mark.parametrize("per_token", [False, True])
def test_sequence_gradients_against_finite_differences(per_token):
    logp = double([-0.1, -0.9, -2.0, -0.4, -1.3, -0.7], True)
    base = double([-0.2, -0.5, -2.1, -0.9, -1.3, -0.2])
    advantages = double([1.0, 1.0, -0.5, -0.5, 0.0, 0.0])

    def loss(x):
        return sequence_loss(x, base, advantages, ROWS, MASK, clip_low=0.5, clip_high=0.5).loss

    assert torch.autograd.gradcheck(loss, (logp,))
    if per_token:  # its value is not its gradient's integral; the gradient is that of the sum
        loss(logp).sum().backward()
        whole, logp.grad = logp.grad.clone(), None
        terms = sequence_loss(logp, base, advantages, ROWS, MASK, clip_low=0.5, clip_high=0.5, per_token=True)
        terms.loss.sum().backward()
        assert logp.grad.tolist() == pytest.approx(whole.tolist())


@pytest.mark.parametrize("squared, smoothing", [(False, 0.0), (False, 0.3), (True, 0.0)])
def test_preference_and_value_gradients_against_finite_differences(squared, smoothing):
    x, other = double([0.35, -1.1, 2.0], True), double([0.1, 0.4, -0.2])
    settings = {"beta": 0.5, "squared": squared, "smoothing": smoothing}
    assert torch.autograd.gradcheck(lambda m: preference_loss(m, other, **settings), (x,))
    assert torch.autograd.gradcheck(lambda v: value_loss(v, other, double([0.5, 0.0, 1.0]), 0.2), (x,))


@pytest.mark.parametrize(
    "train, loss, told",
    [
        ({"kl": 0.1}, {"kind": "dpo"}, "loss.beta"),
        ({"kl": 0.1}, {"kind": "sft"}, "train.kl acts on tokens that have an advantage"),
        ({"tis_cap": 2.0}, {"kind": "gspo"}, "weighs single tokens"),
        ({"tis_cap": 2.0}, {"kind": "gspo-token"}, "weighs single tokens"),
        ({"dual_clip": 3.0}, {"kind": "cispo"}, "clips a weight"),
        ({}, {"kind": "ipo", "label_smoothing": 0.1}, "smooths the logistic loss"),
        ({"value": {}}, {"kind": "gspo"}, "one per answer"),
        ({"value": {}}, {"kind": "sft"}, "train.value"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_in_one_sentence(train, loss, told):
    why, remedy = mismatch(TrainSettings(**train), LossSettings(**loss))
    assert told in why and remedy and ". " not in why
    from gfcr.train.trainer import Trainer

    with pytest.raises(ConfigError):
        Trainer(torch.nn.Linear(1, 1), TrainSettings(**train), loss=LossSettings(**loss))


def test_settings_that_go_together():
    assert mismatch(TrainSettings(kl=0.1, tis_cap=2.0, value=ValueSettings()), LossSettings(kind="cispo")) is None
    assert mismatch(TrainSettings(ratio_base="behaviour"), LossSettings(kind="gspo")) is None
    assert LossSettings(kind="ipo").mean_of_tokens and not LossSettings(kind="ipo", pair_length="sum").mean_of_tokens
