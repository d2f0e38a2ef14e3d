"""Losses against numbers worked out by hand and against finite differences."""

import math

import numpy as np
import pytest
import torch
from train_cases import batch_of, random_rows, tiny_gpt2

from gfcr.errors import ConfigError
from gfcr.train.losses import effective_sample_size, k3, policy_loss, truncated_weights
from gfcr.train.settings import TrainSettings
from gfcr.train.trainer import Trainer

CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def at_ratio(ratios, advantages, **more):
    logp = torch.log(torch.tensor(ratios, dtype=torch.float64)).requires_grad_()
    terms = policy_loss(logp, torch.zeros_like(logp), torch.tensor(advantages, dtype=torch.float64), **more)
    terms.loss.sum().backward()
    return terms, logp.grad


def test_clip_higher_by_hand():
    # r:     inside   above, A>0    above, A<0   below, A>0   below, A<0
    terms, grad = at_ratio([1.1, 1.5, 1.5, 0.5, 0.5], [2.0, 2.0, -2.0, 2.0, -2.0], **CLIP)
    assert terms.loss.tolist() == pytest.approx([-2.2, -2.56, 3.0, -1.0, 1.6])
    assert grad.tolist() == pytest.approx([-2.2, 0.0, 3.0, -1.0, 0.0])  # d loss / d logp = -r A where nothing is clipped
    assert terms.clipped_high.tolist() == [False, True, False, False, False]
    assert terms.clipped_low.tolist() == [False, False, False, False, True]


def test_dual_clip_by_hand():
    terms, grad = at_ratio([5.0, 2.0, 5.0, 0.5], [-2.0, -2.0, 2.0, -2.0], dual_clip=3.0, **CLIP)
    assert terms.loss.tolist() == pytest.approx([6.0, 4.0, -2.56, 1.6])  # min(10, 6), min(4, 6), upper clip, lower clip
    assert grad.tolist() == pytest.approx([0.0, 4.0, 0.0, 0.0])
    assert terms.clipped_dual.tolist() == [True, False, False, False]


def test_on_policy_loss_is_minus_advantage_and_its_gradient_too():
    terms, grad = at_ratio([1.0, 1.0], [0.7, -0.3], **CLIP)
    assert terms.loss.tolist() == pytest.approx([-0.7, 0.3])
    assert grad.tolist() == pytest.approx([-0.7, 0.3])


def test_ratio_is_clamped_in_log_space():
    logp = torch.tensor([0.0, -200.0])
    ratio = policy_loss(logp, torch.tensor([-200.0, 0.0]), torch.tensor([-1.0, 1.0]), **CLIP).ratio
    assert ratio.tolist() == pytest.approx([math.exp(20), math.exp(-20)])


def test_k3_by_hand_and_its_clamps():
    value = k3(torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-1.0, -1.0 + math.log(2), 30.0]))
    assert value.tolist() == pytest.approx([0.0, 1 - math.log(2), 10.0], abs=1e-6)
    assert not k3(torch.tensor([0.0]), torch.tensor([-100.0])).isnan().any()


def test_truncated_weights_and_their_sample_size():
    nan = float("nan")
    w = truncated_weights(torch.log(torch.tensor([3.0, 0.5, 1.0])), torch.tensor([0.0, 0.0, nan]), 2.0)
    assert w.tolist() == pytest.approx([2.0, 0.5, 1.0])
    assert not truncated_weights(torch.zeros(1, requires_grad=True), torch.zeros(1), None).requires_grad
    assert effective_sample_size(4.0, 8.0, 4.0) == 0.5
    assert effective_sample_size(0.0, 0.0, 0.0) is None


@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_policy_and_kl_gradients_against_finite_differences(dual_clip):
    logp = torch.tensor([-0.1, -0.9, -2.0, -0.4, -1.3], dtype=torch.float64, requires_grad=True)
    base = torch.tensor([-0.2, -0.5, -4.0, -1.9, -1.3], dtype=torch.float64)
    advantages = torch.tensor([1.0, -1.0, -0.5, 0.7, 0.4], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: policy_loss(x, base, advantages, dual_clip=dual_clip, **CLIP).loss, (logp,))
    assert torch.autograd.gradcheck(lambda x: k3(x, base), (logp,))


@pytest.mark.parametrize(
    "changes, rows",
    [
        ({}, {}),
        ({"dual_clip": 1.5}, {}),
        ({"kl": 0.3}, {}),
        ({"tis_cap": 1.3}, {}),
        ({"ratio_base": "behaviour"}, {}),
        ({}, {"ce_weights": 0.5}),
        ({}, {"temperature": 0.6}),
        ({}, {"rl_weights": -0.4}),
    ],
)
def test_trainer_gradient_against_finite_differences(changes, rows):
    """Whole path in float64: batch -> model -> loss, on GPT-2 (whose norms keep float64)."""
    settings = TrainSettings(dtype="float64", **changes)
    if "ce_weights" in rows:
        rows = {"ce_weights": np.where(np.arange(8) % 3 == 1, 0.5, 0.0)}
    batch = batch_of(random_rows(3, seed=3, vocab=11, low=8, high=9, proximal=-2.2, reference=-2.0, **rows))
    trainer = Trainer(tiny_gpt2(), settings)
    whole = [0, 1, 2]

    def loss():
        return trainer._accumulate(batch, whole, batch.proximal.copy(), trainer._reference_logps(batch))[0]

    loss()
    for name in ("transformer.wte.weight", "transformer.h.0.attn.c_attn.weight", "transformer.ln_f.bias"):
        parameter = trainer.parameters[name]
        grad = parameter.grad.flatten()
        at = int(grad.abs().argmax())
        found, step, flat = float(grad[at]), 1e-6, parameter.data.view(-1)
        old = float(flat[at])
        flat[at] = old + step
        high = loss()
        flat[at] = old - step
        low = loss()
        flat[at] = old
        assert found == pytest.approx((high - low) / (2 * step), rel=1e-4), name
        trainer.optimizer.zero_grad()
        loss()


def test_settings_refuse_what_would_train_on_the_wrong_quantity():
    with pytest.raises(ConfigError, match="counted twice"):
        TrainSettings(tis_cap=2.0, ratio_base="behaviour")
    with pytest.raises(ConfigError, match="betas"):
        TrainSettings(betas=(0.9, 1.0))
    with pytest.raises(ConfigError, match="nan"):
        TrainSettings().learning_rate(float("nan"), 0)


def test_learning_rate_schedules():
    linear = TrainSettings(lr=1.0, schedule="linear", lr_floor=0.2, warmup_steps=4)
    assert linear.learning_rate(0.5, 100) == pytest.approx(0.6)
    assert linear.learning_rate(0.0, 0) == pytest.approx(0.25)
    cosine = TrainSettings(lr=1.0, schedule="cosine", lr_floor=0.0)
    assert [cosine.learning_rate(p, 0) for p in (0.0, 0.5, 1.0, 7.0)] == pytest.approx([1.0, 0.5, 0.0, 0.0])
    assert TrainSettings(lr=0.3).learning_rate(0.9, 5) == 0.3
