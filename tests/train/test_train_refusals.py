"""Batches a loss cannot train on: each is refused by name, with a remedy, and nothing is updated."""

from dataclasses import replace

import numpy as np
import pytest
from objective_cases import critic, pairs, policy, trainer
from train_cases import copy_weights, paired, random_rows, same_weights

from gfcr.errors import ConfigError, DataError
from gfcr.types.batch import PreferencePair

nan = float("nan")
PACKED = {"parents": np.arange(-1, 5, dtype=np.int32)}


@pytest.mark.parametrize(
    "loss, train, batch, told",
    [
        ("ppo", {}, lambda: pairs(random_rows(4)), "no preference loss"),
        ("sft", {}, lambda: pairs(random_rows(4)), "no preference loss"),
        ("dpo", {}, lambda: policy(random_rows(2)), "tokens with an advantage"),
        ("sft", {}, lambda: policy(random_rows(2)), "tokens with an advantage"),
        ("ppo", {}, lambda: critic(random_rows(2)), "train.value is not set"),
        ("ppo", {"value": {}}, lambda: policy(random_rows(2)), "no rewards for a critic"),
        ("ppo", {"value": {}}, lambda: critic([{"ids": [1] * 6}], **PACKED), "packed trees"),
        ("gspo", {}, lambda: policy([{"ids": [1] * 6}], **PACKED), "packed trees"),
        ("gspo-token", {}, lambda: policy([{"ids": [1] * 6}], **PACKED), "packed trees"),
        ("dpo", {}, lambda: paired([{"ids": [1] * 3}, {"ids": [2] * 3}], [(0, 1)], parents=np.array([-1, 0, 1] * 2, np.int32)), "packed trees"),
        ("gspo", {}, lambda: policy([{"ids": [1, 2, 3, 4], "advantages": [0, 1.0, 2.0, 1.0]}]), "several advantages"),
        ("gspo", {}, lambda: policy([{"ids": [1, 2, 3, 4], "rl_weights": [1, 1.0, 2.0, 1.0]}]), "several advantages"),
    ],
)  # fmt: skip
def test_a_batch_of_the_wrong_kind_is_refused_with_a_remedy(loss, train, batch, told):
    t = trainer({"kind": loss}, train)
    before = copy_weights(t)
    with pytest.raises(ConfigError, match=told) as error:
        t.step(batch())
    assert error.value.remedy and same_weights(t, before)


@pytest.mark.parametrize(
    "change, told",
    [
        ({"preferences": (PreferencePair(0, 9),)}, "a row the batch does not have"),
        ({"preferences": (PreferencePair(1, 1),)}, "compares a row with itself"),
        ({"preferences": (PreferencePair(0, 1), PreferencePair(2, 3, nan))}, r"preferences\[1\].*weight nan"),
        ({"preferences": (PreferencePair(0, 1, 0.0),)}, "weight 0"),
        ({"pair_mask": None}, "without a token in pair_mask"),
    ],
)
def test_pairs_that_cannot_be_trained_are_named(change, told):
    with pytest.raises(DataError, match=told):
        trainer({"kind": "dpo"}, {}).step(replace(pairs(random_rows(4)), **change))


def test_undefined_rewards_and_unsampled_tokens_are_named():
    batch = critic(random_rows(3))
    rewards = batch.token_rewards.copy()
    rewards[batch.offsets[2] - 1] = nan
    with pytest.raises(DataError, match=r"batch\.token_rewards is nan at token .* of row 1 \(rollout r1"):
        trainer({"kind": "ppo"}, {"value": {}}).step(replace(batch, token_rewards=rewards))
    unsampled = pairs(random_rows(4, behaviour=nan))
    with pytest.raises(DataError, match=r"batch\.behaviour is nan") as error:
        trainer({"kind": "dpo", "pair_reference": "behaviour"}, {}).step(unsampled)
    assert "start" in error.value.remedy


@pytest.mark.parametrize("value", [-np.inf, np.inf])
@pytest.mark.parametrize("field", ["behaviour", "proximal", "reference"])
def test_an_infinite_log_probability_is_refused_where_it_counts_and_nowhere_else(field, value):
    batch = policy(random_rows(3, reference=-2.0, proximal=-2.0))
    counts, outside = batch.offsets[2] - 1, batch.offsets[1]
    assert batch.rl_mask[counts] and not batch.rl_mask[outside]

    def changed(at, to):
        values = getattr(batch, field).copy()
        values[at] = to
        return replace(batch, **{field: values})

    t = trainer({"kind": "ppo"}, {"kl": 0.1, "tis_cap": 2.0})
    before = copy_weights(t)
    with pytest.raises(DataError, match=rf"batch\.{field} is {value} at token \d+ of row 1 \(rollout r1, round 0\)") as error:
        t.step(changed(counts, value))
    assert "truncated law" in error.value.remedy and same_weights(t, before)
    want, got = (trainer({"kind": "ppo"}, {"kl": 0.1, "tis_cap": 2.0}) for _ in range(2))
    want.step(batch), got.step(changed(outside, value))
    assert same_weights(got, copy_weights(want))
    assert trainer({"kind": "ppo"}, {"kl": 0.1}).step(changed(counts, nan)).skipped is None  # nobody knows it: no fault


def test_an_infinite_reference_of_a_pair_is_refused_where_it_is_read():
    batch = pairs(random_rows(4, reference=-2.0))
    values = batch.reference.copy()
    values[batch.offsets[1] - 1] = -np.inf
    with pytest.raises(DataError, match=r"batch\.reference is -inf at token"):
        trainer({"kind": "dpo"}, {}).step(replace(batch, reference=values))
    assert trainer({"kind": "dpo", "pair_reference": "behaviour"}, {}).step(replace(batch, reference=values)).skipped is None
