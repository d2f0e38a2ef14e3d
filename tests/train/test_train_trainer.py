"""The step as a whole: determinism, skipping, saving, counting, minibatches, reference, publication."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from train_cases import batch_of, copy_weights, lab_model, random_rows, same_weights
from transformers import Qwen3ForCausalLM

from gfcr.errors import DataError
from gfcr.train.settings import TrainSettings
from gfcr.train.trainer import Trainer


def trainer(model=None, **changes):
    return Trainer(model or lab_model(), TrainSettings(**changes), run_seed=5)


def batches(count, **fixed):
    return [batch_of(random_rows(12, seed=50 + i, **fixed), round=i) for i in range(count)]


def whole(t):
    return {name: tensor.clone() for name, tensor in t.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


RICH = {
    "minibatches": 3,
    "epochs": 2,
    "kl": 0.05,
    "tis_cap": 2.0,
    "dual_clip": 3.0,
    "schedule": "cosine",
    "warmup_steps": 4,
    "weight_decay": 0.01,
}


def test_import_of_the_settings_needs_no_torch():
    code = "import gfcr.train.settings, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": "src"}).returncode == 0


def test_learns_what_is_rewarded():
    t, batch = trainer(lr=3e-3), batch_of(random_rows(8, seed=1, advantages=1.0))
    first = t._logps(t.policy, batch, batch.rl_mask)
    for _ in range(5):
        t.step(batch)
    assert np.nansum(t._logps(t.policy, batch, batch.rl_mask)) > np.nansum(first) + 10


@pytest.mark.parametrize("changes", [{}, RICH, {"ratio_base": "behaviour", "minibatches": 2}])
def test_replaying_stored_batches_is_bit_equal(changes):
    a, b = trainer(**changes), trainer(**changes)
    for i, batch in enumerate(batches(3)):
        one, two = a.step(batch, i / 3), b.step(batch, i / 3)
        assert (one.loss, one.grad_norm, one.kl, one.ess, one.tokens) == (two.loss, two.grad_norm, two.kl, two.ess, two.tokens)
    assert equal(whole(a), whole(b))


@pytest.mark.parametrize("changes", [{}, RICH])
def test_save_and_load_continue_bit_equal(changes, tmp_path):
    data, a = batches(4), trainer(**changes)
    for i in range(2):
        a.step(data[i], i / 4)
    paths = a.save(tmp_path / "c")
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == sorted(p.name for p in paths)
    assert all(p.suffix == ".safetensors" for p in paths)
    b = trainer(lab_model(seed=9), **changes)  # other weights, another reference: all must come from the files
    b.load(tmp_path / "c")
    assert equal(whole(a), whole(b))
    for i in (2, 3):
        a.step(data[i], i / 4)
        b.step(data[i], i / 4)
    assert equal(whole(a), whole(b))


def test_saved_weights_load_into_hugging_face_and_tied_weights_are_stored_once(tmp_path):
    t = trainer()
    t.step(batches(1)[0])
    t.save(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in stored and "model.embed_tokens.weight" in stored
    t.model.config.save_pretrained(tmp_path)
    again = Qwen3ForCausalLM.from_pretrained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), t.model.state_dict().values()))


def test_state_that_does_not_fit_is_refused_and_changes_nothing(tmp_path):
    t, other = trainer(), trainer(lab_model(hidden_size=32))
    before = whole(t)
    with pytest.raises(DataError, match="do not fit"):
        t.load_state_dict(other.state_dict())
    with pytest.raises(DataError, match="counters"):
        t.load_state_dict({})
    with pytest.raises(DataError, match=r"no model\.safetensors"):
        t.load(tmp_path)
    t.step(batches(1)[0])
    broken = whole(t)
    del broken["optimizer.exp_avg.model.norm.weight"]
    with pytest.raises(DataError, match="optimiser moments"):
        t.load_state_dict(broken)
    t.load_state_dict(before)
    assert equal(whole(t), before)


def test_published_weights_are_a_snapshot_under_the_models_names():
    t = trainer()
    published = t.weights()
    kept = {k: v.clone() for k, v in published.items()}
    t.step(batches(1)[0])
    assert equal(published, kept) and published.keys() == t.model.state_dict().keys()
    assert not torch.equal(published["model.norm.weight"], t.model.model.norm.weight)
    fresh = lab_model(seed=3)
    fresh.load_state_dict(published)


@pytest.mark.parametrize("rows", [[], [{"ids": [1, 2, 3], "rl_mask": False}] * 2])
def test_batch_without_loss_tokens_is_skipped(rows):
    t = trainer()
    before = whole(t)
    stats = t.step(batch_of(rows))
    assert (stats.loss, stats.updates, stats.tokens, stats.skipped) == (0.0, 0, 0, "no RL or CE tokens")
    after = whole(t)
    assert after.pop("counters").tolist() == [1, 0] and before.pop("counters").tolist() == [0, 0] and equal(after, before)


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_non_finite_update_is_skipped_and_the_run_goes_on(poison):
    """Report 23: weights and optimiser state stay bit-equal, the reason is told, the next step trains."""
    t, data = trainer(), batches(2)
    t.step(data[0])
    before = whole(t)
    if poison == "loss":
        handle = t.model.model.norm.register_forward_hook(lambda module, args, out: out * float("nan"))
    else:
        handle = t.model.model.norm.weight.register_hook(lambda grad: grad * float("inf"))
    stats = t.step(data[1])
    handle.remove()
    assert stats.updates == 0 and stats.loss is None and stats.grad_norm is None and "update 1 of 1" in stats.skipped
    after = whole(t)
    assert after.pop("counters").tolist() == [2, 1]
    before.pop("counters")
    assert equal(after, before)
    assert all(p.grad is None for p in t.parameters.values())
    clean = trainer()
    clean.step(data[0])
    clean.step(data[1])
    assert t.step(data[1]).skipped is None and same_weights(t, copy_weights(clean))


@pytest.mark.parametrize(
    "changes, rows",
    [({}, {}), (RICH, {}), ({"micro_tokens": 50, "minibatches": 2}, {}), ({"minibatches": 2}, {"proximal": -3.0})],
)
def test_tokens_equal_an_independent_count(changes, rows):
    t, seen = trainer(**changes), []
    for model in (t.model, t.reference):
        if model is not None:
            model.model.register_forward_pre_hook(
                lambda module, args, kwargs: seen.append(int(kwargs["attention_mask"].sum())), with_kwargs=True
            )
    before = t.tokens
    stats = t.step(batches(1, **rows)[0])
    assert stats.tokens == sum(seen) == t.tokens - before > 0


def test_one_update_needs_one_pass_and_two_minibatches_one_and_a_half():
    rows = random_rows(12, seed=1, low=11, high=12)
    batch = batch_of([row | {"ids": [i + 1, *row["ids"][1:]]} for i, row in enumerate(rows)])  # nothing shared
    one = trainer(tis_cap=2.0).step(batch).tokens
    assert one == 12 * 10
    assert trainer(minibatches=2).step(batch).tokens == one * 3 // 2
    assert trainer(minibatches=2, ratio_base="behaviour").step(batch).tokens == one


def test_minibatches_split_all_rows_evenly_and_every_epoch_anew():
    t = trainer(minibatches=4, epochs=2)
    batch = batch_of([*random_rows(10, seed=1), {"ids": [1, 2], "rl_mask": False}])
    active = np.arange(10)
    parts = t._minibatches(batch, active)
    assert [len(p) for p in parts] == [3, 3, 2, 2] * 2
    for epoch in (parts[:4], parts[4:]):
        assert sorted(np.concatenate(epoch)) == list(range(10))
    assert any(not np.array_equal(a, b) for a, b in zip(parts[:4], parts[4:]))
    assert len(t._minibatches(batch, active[:3])) == 6  # fewer rows than minibatches: no empty update
    stats = t.step(batch)
    assert stats.updates == 8 and t.updates == 8


def test_later_epochs_measure_the_ratio_from_the_weights_before_the_step():
    t, batch = trainer(epochs=2, lr=1e-2), batch_of(random_rows(6, seed=2))
    before = t._logps(t.policy, batch, batch.rl_mask)
    rows = np.arange(6)
    proximal = t._proximal_logps(batch, [rows, rows])
    t._accumulate(batch, rows, proximal, None)
    np.testing.assert_allclose(proximal, before, atol=1e-6)
    assert t.step(batch).clip_low > 0


def test_learning_rate_of_the_schedule_reaches_the_optimiser():
    t = trainer(schedule="linear", lr_floor=0.0)
    before, batch = copy_weights(t), batches(1)[0]
    assert t.step(batch, progress=1.0).lr == 0 and same_weights(t, before)
    assert t.step(batch, progress=0.5).lr == pytest.approx(3e-4) and not same_weights(t, before)


def test_reference_is_frozen_and_pulls_back():
    rows = random_rows(8, seed=3, advantages=1.0)
    free, held = trainer(lr=3e-3), trainer(lr=3e-3, kl=2.0)
    start = {n: p.clone() for n, p in held.reference.named_parameters()}
    for _ in range(6):
        free.step(batch_of(rows))
        stats = held.step(batch_of(rows))
    assert all(torch.equal(start[n], p) for n, p in held.reference.named_parameters())
    batch = batch_of(rows)
    base = held._logps(held._reference, batch, batch.rl_mask)
    drift = [np.nanmean(np.abs(t._logps(t.policy, batch, batch.rl_mask) - base)) for t in (free, held)]
    assert stats.kl > 0 and drift[1] < 0.7 * drift[0]


def test_kl_is_reported_from_given_references_without_a_coefficient():
    stats = trainer().step(batch_of(random_rows(4, seed=3, reference=-2.0)))
    assert stats.kl > 0
    assert trainer().step(batch_of(random_rows(4, seed=3))).kl is None


def test_bfloat16_keeps_float32_weights_and_agrees_roughly():
    batch = batch_of(random_rows(6, seed=3))
    a, b = trainer(), trainer(dtype="bfloat16")
    one, two = a.step(batch), b.step(batch)
    assert {p.dtype for p in b.parameters.values()} == {torch.float32}
    assert two.entropy == pytest.approx(one.entropy, rel=0.02) and two.grad_norm == pytest.approx(one.grad_norm, rel=0.05)
