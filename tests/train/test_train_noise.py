"""Noise in training (card F-23): what a correction does to the weights, with one pair of rates and with rates that differ in a group."""

import numpy as np
import pytest
import torch
from train_cases import lab_model

from gfcr.train.settings import TrainSettings
from gfcr.train.trainer import Trainer
from lifecycle_cases import batch_of, lab

RATES = {"false_negative": 0.2, "false_positive": 0.05}
TWICE = {"false_negative": 0.4, "false_positive": 0.1}
CONSTANT = [{"name": "noisy", **RATES}]
DIFFERING = [{"name": "noisy", "label": "rule", "share": 0.5, **TWICE}, {"name": "exact"}]
SAMPLE_STD = {"name": "grpo", "std": "sample", "eps": 0}


def trained(verifiers, credit, shape=None):
    """Weights after one step on four groups of a round of right and wrong answers, as one vector."""
    sections = {"verifiers": verifiers, "credit": credit, **({"shape": shape} if shape else {})}
    batch = batch_of(lab("rrrrwwww", n_tasks=4, k=8, seed=0, filter=sections).drive())
    trainer = Trainer(lab_model(), TrainSettings(lr=1e-3, grad_clip=None), 0)
    stats = trainer.step(batch, 0.0)
    assert stats.updates == 1
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()]).double().numpy(), batch


@pytest.mark.parametrize("form", ["backward", "forward"])
def test_with_one_pair_of_rates_a_correction_under_a_std_trains_the_same_weights(form):
    shape = {"name": "noise-correction", "form": form, **RATES}
    plain, before = trained(CONSTANT, SAMPLE_STD)
    corrected, after = trained(CONSTANT, SAMPLE_STD, shape)
    mask = before.rl_mask
    assert np.allclose(before.advantages[mask], after.advantages[mask], atol=1e-6)
    clean, _ = trained([{"name": "exact"}], SAMPLE_STD)
    moved = np.abs(plain - clean).max()
    assert np.abs(corrected - plain).max() < 0.01 * moved  # the noise moves the weights, its correction does not


def test_with_rates_that_differ_within_a_group_it_trains_others():
    shape = {"name": "noise-correction", "by": {"rule": TWICE}}
    plain, before = trained(DIFFERING, SAMPLE_STD)
    corrected, after = trained(DIFFERING, SAMPLE_STD, shape)
    ranks = [np.argsort(np.argsort(b.advantages[b.rl_mask], kind="stable")) for b in (before, after)]
    assert not np.array_equal(*ranks)  # not only the sizes, the order too
    assert np.abs(corrected - plain).max() > 1e-4
