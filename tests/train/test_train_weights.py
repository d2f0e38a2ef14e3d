"""What counts in the loss and what does not: normalisation, masks, micro-batches, packed trees, off-policy weights, CE."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from train_cases import VOCAB, batch_of, copy_weights, gradient, lab_model, random_rows, relative, same_weights, tiny_gpt2

from gfcr.errors import ConfigError, DataError
from gfcr.train.settings import TrainSettings
from gfcr.train.trainer import Trainer
from gfcr.types.batch import Normalise, PreferencePair

nan = float("nan")


def trainer(model=None, **changes):
    return Trainer(model or lab_model(), TrainSettings(**changes), run_seed=5)


def on_policy_loss(rows, **more):
    """Loss on policy is -sum(w A): reads the weights off."""
    return -gradient(trainer(), batch_of(rows, **more))[1]


def test_normalisations_by_hand():
    rows = [{"ids": [1, 2, 3, 4, 5], "prompt": 1, "advantages": 1.0}, {"ids": [1, 2, 3], "prompt": 1, "advantages": 10.0}]
    assert on_policy_loss(rows) == pytest.approx((4 + 20) / 6)
    assert on_policy_loss(rows, normalise=Normalise.SEQUENCE_MEAN) == pytest.approx((1 + 10) / 2)
    assert on_policy_loss(rows, normalise=Normalise.CONSTANT, constant=64.0) == pytest.approx((4 + 20) / (2 * 64))


@pytest.mark.parametrize(
    "normalise, constant", [(Normalise.TOKEN_MEAN, None), (Normalise.SEQUENCE_MEAN, None), (Normalise.CONSTANT, 4.0)]
)
def test_masked_truncated_row_leaves_numerator_and_denominator(normalise, constant):
    """Report 7: two rows of four answer tokens, one masked, per-token loss 1: 4/4, not 4/8."""
    rows = [{"ids": [1, 2, 3, 4, 5], "prompt": 1, "advantages": 1.0}, {"ids": [1, 2, 3, 4, 5], "rl_mask": False}]
    assert on_policy_loss(rows, normalise=normalise, constant=constant) == pytest.approx(1.0)


@pytest.mark.parametrize("normalise", [Normalise.TOKEN_MEAN, Normalise.SEQUENCE_MEAN])
@pytest.mark.parametrize("changes", [{}, {"kl": 0.1}, {"tis_cap": 1.5}])
def test_micro_batches_change_nothing(normalise, changes):
    rows = random_rows(16, seed=1, reference=-3.0)
    rows[3]["ce_weights"] = np.where(np.arange(len(rows[3]["ids"])) > 2, 0.7, 0.0)
    batch = batch_of(rows, normalise=normalise)
    whole, loss = gradient(trainer(micro_tokens=10**6, **changes), batch)
    cut, cut_loss = gradient(trainer(micro_tokens=40, **changes), batch)
    assert relative(cut, whole) <= 1e-5
    assert cut_loss == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("changes", [{"logits_chunk": 9}, {"checkpoint_layers": True}])
def test_recomputation_changes_nothing(changes):
    batch = batch_of(random_rows(8, seed=1))
    plain, _ = gradient(trainer(), batch)
    again, _ = gradient(trainer(**changes), batch)
    assert relative(again, plain) <= 1e-5


def test_layers_are_really_recomputed_and_dropout_stays_off():
    calls = []
    model = lab_model(attention_dropout=0.5)
    t = trainer(model, checkpoint_layers=True)
    model.model.layers[0].self_attn.register_forward_hook(lambda *_: calls.append(1))
    rows = random_rows(4, seed=1)
    dropped, _ = gradient(t, batch_of(rows))
    assert len(calls) == 2
    assert relative(dropped, gradient(trainer(), batch_of(rows))[0]) <= 1e-5


def test_padding_and_masked_rows_change_nothing():
    rows = random_rows(4, seed=2)
    alone, _ = gradient(trainer(), batch_of(rows))
    more, _ = gradient(trainer(), batch_of([*rows, {"ids": np.full(60, 3), "rl_mask": False}]))
    assert torch.equal(alone, more)


def test_packed_tree_gradient_equals_the_leaves():
    """Shared tokens once, with the sum of the leaves' weighted advantages: the same gradient (constant denominator)."""
    trunk, left, right = [5, 9, 3, 7], [1, 8, 2], [11, 30, 4, 6]
    share = {"left": 0.5 * 1.3, "right": 0.25 * -0.6}  # weight times advantage
    leaves = batch_of(
        [
            {"ids": trunk + left, "prompt": 2, "advantages": 1.3, "rl_weights": 0.5},
            {"ids": trunk + right, "prompt": 2, "advantages": -0.6, "rl_weights": 0.25},
        ],
        normalise=Normalise.CONSTANT,
        constant=8.0,
    )
    both = share["left"] + share["right"]
    parents = np.array([-1, 0, 1, 2, 3, 4, 5, 3, 7, 8, 9], np.int32)
    packed = batch_of(
        [
            {
                "ids": trunk + left + right,
                "prompt": 2,
                "advantages": [0, 0, both, both] + [share["left"]] * 3 + [share["right"]] * 4,
            }
        ],
        normalise=Normalise.CONSTANT,
        constant=16.0,
        parents=parents,
    )
    expected, loss = gradient(trainer(), leaves)
    found, packed_loss = gradient(trainer(), packed)
    assert relative(found, expected) < 2e-6
    assert packed_loss == pytest.approx(loss, rel=1e-6)


def test_packed_tree_with_kl_equals_the_leaves_and_sequence_mean_is_refused():
    trunk, left, right = [5, 9, 3, 7], [1, 8, 2], [11, 30, 4, 6]
    both = {"prompt": 2, "reference": -2.0}
    leaves = batch_of(
        [{"ids": trunk + left, "advantages": 1.3} | both, {"ids": trunk + right, "advantages": -0.6} | both],
    )
    row = {"ids": trunk + left + right, "advantages": [0, 0, 0.7, 0.7] + [1.3] * 3 + [-0.6] * 4} | both
    packed = replace(
        batch_of([row], parents=np.array([-1, 0, 1, 2, 3, 4, 5, 3, 7, 8, 9], np.int32)),
        multiplicity=np.array([2] * 4 + [1] * 7, np.float32),
        leaves=np.array([2], np.int32),
    )
    expected, loss = gradient(trainer(kl=0.3), leaves)
    found, packed_loss = gradient(trainer(kl=0.3), packed)
    assert relative(found, expected) < 2e-6
    assert packed_loss == pytest.approx(loss, rel=1e-5)
    with pytest.raises(ConfigError, match="length of each leaf"):
        trainer(kl=0.3).step(replace(packed, normalise=Normalise.SEQUENCE_MEAN))


def test_nan_outside_the_masks_is_harmless():
    """Report 17: a masked position may hold anything, in every array, with every term switched on."""
    clean = random_rows(4, seed=3, reference=-3.0, proximal=-3.0)
    dirty = []
    for row in clean:
        prompt = np.arange(len(row["ids"])) < row["prompt"]
        dirty.append(
            row
            | {
                name: np.where(prompt, nan, np.broadcast_to(row[name], len(prompt)))
                for name in ("reference", "proximal", "behaviour")
            }
        )
    for changes in ({"kl": 0.2, "tis_cap": 2.0}, {"ratio_base": "behaviour"}):
        a, b = trainer(**changes), trainer(**changes)
        one, two = a.step(batch_of(clean)), b.step(batch_of(dirty))
        assert same_weights(b, copy_weights(a))
        assert one.kl == two.kl and np.isfinite([one.kl, one.ess, one.entropy, one.ratio, one.loss]).all()


@pytest.mark.parametrize(
    "field, value, text",
    [
        ("advantages", nan, "advantages is nan"),
        ("advantages", np.inf, "advantages is inf"),
        ("rl_weights", nan, "rl_weights is nan"),
        ("ce_weights", nan, "ce_weights is nan"),
        ("temperature", 0.0, "temperature is 0.0"),
        ("ids", VOCAB, f"input_ids is {VOCAB}"),
    ],
)
def test_bad_number_inside_the_mask_names_row_rollout_and_remedy(field, value, text):
    rows = random_rows(3, seed=3)
    bad = np.array(np.broadcast_to(rows[1].get(field, 0.0 if field == "ce_weights" else 1.0), len(rows[1]["ids"])), dtype=float)
    bad[5] = value
    rows[1][field] = bad
    t = trainer()
    before = copy_weights(t)
    with pytest.raises(DataError, match=rf"batch\.{text} at token 5 of row 1 \(rollout r1, round 0\)") as error:
        t.step(batch_of(rows))
    assert error.value.remedy and same_weights(t, before) and not t.optimizer.state


def test_token_without_a_token_before_it_and_parents_after_their_child_are_named():
    with pytest.raises(DataError, match=r"without a token before it.*token 0 of row 1 \(rollout r1"):
        trainer().step(batch_of([{"ids": [1, 2], "prompt": 1}, {"ids": [4, 5], "prompt": 0}]))
    with pytest.raises(DataError, match="parents is 2 at token 1"):
        trainer().step(batch_of([{"ids": [1, 2, 3], "prompt": 1}], parents=np.array([-1, 2, 0], np.int32)))


def test_preferences_and_media_are_refused_not_ignored():

    batch = batch_of(random_rows(2))
    with pytest.raises(ConfigError, match="preference"):
        trainer().step(replace(batch, preferences=(PreferencePair(0, 1),)))
    with pytest.raises(ConfigError, match="media"):
        trainer().step(replace(batch, media={0: ("a.png",)}))


def test_cross_entropy_on_demo_tokens_only():
    """CE gradient equals that of the mean negative log-likelihood, without any RL token."""
    ids = np.array([3, 4, 5, 6, 7, 8])
    batch = batch_of([{"ids": ids, "rl_mask": False, "ce_weights": [0, 0, 1, 1, 2, 1]}])
    t = trainer()
    found, loss = gradient(t, batch)
    logs = torch.log_softmax(t.model(input_ids=torch.tensor(ids)[None]).logits[0], -1)
    nll = -sum(w * logs[k - 1, ids[k]] for k, w in ((2, 1), (3, 1), (4, 2), (5, 1))) / 4
    nll.backward()
    nll = nll.detach()
    expected = torch.cat([p.grad.double().flatten() for p in t.parameters.values()])
    assert loss == pytest.approx(float(nll), rel=1e-5)
    assert relative(found, expected) < 1e-5
    stats = t.step(batch)
    assert stats.updates == 1 and stats.entropy is None and stats.ratio is None and stats.rl_tokens == 0


@pytest.mark.parametrize("changes", [{}, {"ratio_base": "behaviour"}, {"tis_cap": 2.0}, {"minibatches": 2, "epochs": 2}])
def test_demo_tokens_nobody_sampled_start_at_ratio_one(changes):
    rows = random_rows(4, seed=6, behaviour=nan, temperature=nan)
    stats = trainer(lr=1e-12, **changes).step(batch_of(rows))
    assert stats.ratio == pytest.approx(1.0, abs=1e-5) and stats.clip_high == 0 and stats.ess is None


def test_negative_weight_takes_the_clip_of_its_own_sign():
    """A weight of -1 on advantage 1 is the advantage -1, clip and all (noise correction, arXiv:2510.00915)."""
    one, _ = gradient(trainer(tiny_gpt2()), batch_of(random_rows(6, 8, 11, proximal=-3.0, advantages=1.0, rl_weights=-1.0)))
    two, _ = gradient(trainer(tiny_gpt2()), batch_of(random_rows(6, 8, 11, proximal=-3.0, advantages=-1.0, rl_weights=1.0)))
    assert torch.equal(one, two)


def test_truncated_importance_sampling_by_hand():
    """pi_prox / pi_behave of 4 and 0.25 capped at 2: the loss of -A becomes (2 + .25) / 2, its ESS (2.25)^2 / (2 * 4.0625)."""
    t = trainer(tis_cap=2.0)
    ids = np.array([3, 4, 5])
    with torch.no_grad():
        logs = torch.log_softmax(t.model(input_ids=torch.tensor(ids)[None]).logits[0], -1)
    now = np.array([nan, float(logs[0, 4]), float(logs[1, 5])])
    batch = batch_of([{"ids": ids, "prompt": 1, "advantages": -1.0, "behaviour": now - np.log([1, 4, 0.25])}])
    stats = t.step(batch)
    assert stats.loss == pytest.approx(2.25 / 2, rel=1e-5)
    assert stats.ess == pytest.approx(2.25**2 / (2 * 4.0625), rel=1e-5)
    assert stats.ratio == pytest.approx(1.0)
