"""Which loss reads which setting: the table that refuses ignored settings, held against gradients."""

from dataclasses import replace
from functools import cache
from typing import get_args

import numpy as np
import pytest
import torch
from objective_cases import SEQUENCE, pairs, policy, taught, trainer
from train_cases import gradient, random_rows, tiny_gpt2

from gfcr.errors import ConfigError
from gfcr.train.settings import READERS, LossSettings, TrainSettings, mismatch
from gfcr.train.trainer import Trainer

MAKERS = dict.fromkeys(("ppo", "cispo", "gspo", "gspo-token"), policy) | {"dpo": pairs, "ipo": pairs, "sft": taught}
OTHER = {
    "train.clip_low": 0.01,
    "train.clip_high": 0.01,
    "train.dual_clip": 1.01,
    "train.kl": 0.5,
    "train.tis_cap": 0.3,
    "train.ratio_base": "behaviour",
    "loss.cispo_low": 0.99,
    "loss.cispo_high": 1.01,
    "loss.demo_shaping": 0.1,
    "loss.beta": 0.7,
    "loss.label_smoothing": 0.2,
    "loss.pair_reference": "behaviour",
    "loss.pair_length": "mean",
}
"""A value of each setting that moves every loss which reads it."""
SPOKEN_FOR = {("train.tis_cap", "gspo"), ("train.tis_cap", "gspo-token")}
"""Read, and refused for another reason."""


def settings(kind, key=None):
    value = {key: "sum" if (key, kind) == ("loss.pair_length", "ipo") else OTHER[key]} if key else {}
    train, loss = ({k.split(".")[1]: v for k, v in value.items() if k.startswith(where)} for where in ("train.", "loss."))
    return TrainSettings(**train), LossSettings(kind=kind, **loss)


@cache
def slope(kind, key=None):
    """The gradient on rows whose ratios are e^.15 and e^-.15, for good answers and for bad ones."""
    rows = random_rows(4, seed=3, vocab=11, low=8, high=12, reference=-2.0)
    for row, advantage in zip(rows, (1.0, -1.0, 1.0, -1.0)):
        row["advantages"] = advantage
    batch = MAKERS[kind](rows, **(SEQUENCE if kind.startswith("gspo") else {}))
    made = trainer({"kind": kind}, {}, tiny_gpt2())
    now = made._logps(made.policy, batch, batch.rl_mask)
    batch = replace(batch, proximal=now - np.array([0.15, 0.15, -0.15, -0.15], np.float32)[batch.row_of_token()])
    batch = replace(batch, versions=np.where(batch.row_of_token() == 1, -1, batch.versions).astype(np.int32))  # a demonstration
    made.settings, made.loss = settings(kind, key)
    return gradient(made, batch)[0]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("key", OTHER)
def test_a_setting_is_refused_where_it_changes_nothing_and_nowhere_else(kind, key):
    if (key, kind) in SPOKEN_FOR:
        return
    read = not torch.equal(slope(kind), slope(kind, key))
    assert read == (kind in READERS[key][0])
    wrong = mismatch(*settings(kind, key))
    assert (wrong is None) == read
    if wrong:
        assert key in wrong[0] and f"'{kind}'" in wrong[0] and f"leave {key} out" in wrong[1] and ". " not in wrong[0]
        with pytest.raises(ConfigError, match="has none"):
            Trainer(torch.nn.Linear(1, 1), settings(kind, key)[0], loss=settings(kind, key)[1])


def test_every_setting_of_the_losses_is_in_the_table_or_read_by_all():
    of_loss = {f"loss.{name}" for name in LossSettings.model_fields} - {"loss.kind"}
    assert of_loss <= set(READERS) == {*OTHER, "train.value"}
    of_optimiser = set(TrainSettings.model_fields) - {key.removeprefix("train.") for key in READERS}
    assert {name for name in of_optimiser if "clip" in name or "kl" in name or "ratio" in name} == {"grad_clip"}


def test_the_table_names_no_loss_that_is_not_there():
    assert {kind for kinds, _ in READERS.values() for kind in kinds} <= set(MAKERS)
    assert set(get_args(LossSettings.model_fields["kind"].annotation)) == set(MAKERS)  # a new loss says what it reads
    assert np.array_equal(slope("ppo").numpy(), slope("ppo").numpy())


def test_a_floor_under_a_rate_that_does_not_fall():
    why, remedy = mismatch(TrainSettings(lr_floor=0.3), LossSettings())
    assert "does not fall" in why and "'cosine'" in remedy and "--set train.lr_floor=0.1" in remedy
    assert mismatch(TrainSettings(lr_floor=0.3, schedule="linear"), LossSettings()) is None
