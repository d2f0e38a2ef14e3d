"""LoRA in the trainer: what is trained, published, saved and refused."""

import sys

import pytest
import torch
from safetensors.torch import load_file
from train_cases import VOCAB, batch_of, lab_model, random_rows, tiny_gpt2

from gfcr.build import preflight
from gfcr.errors import ConfigError, DataError, MissingExtra
from gfcr.recipe import load
from gfcr.train.settings import LoraSettings, TrainSettings
from gfcr.train.trainer import Trainer

MODELS = {"qwen3": lab_model, "gpt2": lambda: tiny_gpt2(vocab=VOCAB)}


def adapted(model=None, seed=5, lora=None, **changes):
    settings = {"lora": LoraSettings(**{"r": 4, "alpha": 8.0} | (lora or {})), "lr": 1e-2} | changes
    return Trainer(model or lab_model(), TrainSettings(**settings), run_seed=seed)


def batch(seed=1):
    return batch_of(random_rows(8, seed=seed))


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.arange(1, 12)[None]).logits


@pytest.mark.parametrize("kind", MODELS)
def test_only_the_adapter_learns_and_the_published_weights_are_the_policy(kind):
    plain = MODELS[kind]().eval()
    before = {n: t.clone() for n, t in plain.state_dict().items()}
    t = adapted(MODELS[kind]())
    assert t.weights().keys() == before.keys()
    assert all(torch.equal(a, before[n]) for n, a in t.weights().items())  # B is zero: the policy starts as the base
    assert set(t.parameters) == set(t.adapter.tensors()) and all(".lora_" in n for n in t.parameters)
    assert t.step(batch()).updates == 1
    after = t.weights()
    changed = {n for n in before if not torch.equal(after[n], before[n])}
    assert changed == {f"{name}.weight" for name in t.adapter.layers} and changed
    for name, layer in t.adapter.layers.items():
        assert torch.equal(layer.base_layer.weight, before[f"{name}.weight"])
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        change = 8.0 / 4 * (b @ a)  # arXiv:2106.09685, equation 3
        change = change.T if kind == "gpt2" else change  # its Conv1D keeps matrices transposed
        torch.testing.assert_close(after[f"{name}.weight"], before[f"{name}.weight"] + change, rtol=0, atol=1e-7)
    plain.load_state_dict(after)
    assert (logits(plain) - logits(t.model)).abs().max() < 1e-5


def test_the_start_depends_on_the_runs_seed_only():
    torch.manual_seed(1)
    one, state = adapted(), torch.random.get_rng_state()
    torch.manual_seed(2)
    other = torch.random.get_rng_state()
    two = adapted()
    assert all(torch.equal(a, b) for a, b in zip(one.adapter.tensors().values(), two.adapter.tensors().values(), strict=True))
    different = adapted(seed=6).adapter.tensors()
    assert any(not torch.equal(a, different[n]) for n, a in one.adapter.tensors().items() if ".lora_A" in n)
    assert not torch.equal(state, other)
    torch.manual_seed(2)
    adapted(tiny_gpt2(vocab=VOCAB))  # the model's own start draws, the adapter's does not
    with_adapter = torch.rand(1)
    torch.manual_seed(2)
    tiny_gpt2(vocab=VOCAB)
    assert torch.equal(torch.rand(1), with_adapter)


def test_a_checkpoint_holds_the_adapter_alone_and_continues_bit_equal(tmp_path):
    t = adapted(kl=0.1)
    t.step(batch())
    paths = t.save(tmp_path / "at")
    assert {p.name for p in paths} == {"adapter_model.safetensors", "adapter_config.json", "trainer.safetensors"}
    stored = load_file(paths[0]) | load_file(tmp_path / "at" / "trainer.safetensors")
    assert not [n for n in stored if n.startswith(("reference.", "model."))]
    assert sum(v.numel() for n, v in stored.items() if "lora_" in n and not n.startswith("optimizer.")) == sum(
        p.numel() for p in t.parameters.values()
    )
    again = adapted(kl=0.1, seed=99)
    again.run_seed = t.run_seed
    again.load(tmp_path / "at")
    for trainer in (t, again):
        trainer.step(batch(2), 0.5)
    found = again.state_dict()
    assert found.keys() == t.state_dict().keys() and all(torch.equal(a, found[n]) for n, a in t.state_dict().items())


def test_a_checkpoint_is_an_adapter_that_peft_reads(tmp_path):
    from peft import PeftModel

    t = adapted()
    t.step(batch())
    t.save(tmp_path)
    theirs = PeftModel.from_pretrained(lab_model().eval(), str(tmp_path))
    assert torch.equal(logits(theirs), logits(t.model))


def test_another_base_or_another_kind_of_training_is_refused(tmp_path):
    t = adapted()
    t.save(tmp_path / "adapter")
    with pytest.raises(DataError, match="other base weights"):
        adapted(lab_model(seed=1)).load(tmp_path / "adapter")
    full = Trainer(lab_model(), TrainSettings())
    full.save(tmp_path / "full")
    with pytest.raises(DataError, match=r"model\.safetensors"):
        full.load(tmp_path / "adapter")
    with pytest.raises(DataError, match=r"adapter_model\.safetensors"):
        t.load(tmp_path / "full")
    with pytest.raises(DataError, match="holds all weights, the trainer trains an adapter"):
        t.load_state_dict(full.state_dict())


def test_the_kl_reference_is_the_base_and_costs_no_second_model():
    t = adapted(kl=0.3)
    base = {p.data_ptr() for n, p in t.model.named_parameters() if ".lora_" not in n}
    assert base <= {p.data_ptr() for p in t.reference.parameters()}
    start = logits(lab_model().eval())
    first = t.step(batch())
    second = t.step(batch(2))
    assert first.kl == pytest.approx(0, abs=1e-6) and second.kl > 1e-5
    assert torch.equal(logits(t.reference), start)


def test_recomputed_layers_and_chosen_targets_train_too():
    t = adapted(lora={"targets": ["q_proj", "v_proj"]}, checkpoint_layers=True)
    assert {n.rpartition(".")[2] for n in t.adapter.layers} == {"q_proj", "v_proj"}
    assert t.step(batch()).updates == 1
    plain = adapted(lora={"targets": ["q_proj", "v_proj"]})
    plain.step(batch())
    for name, a in t.adapter.tensors().items():
        torch.testing.assert_close(a, plain.adapter.tensors()[name], rtol=0, atol=1e-5)


def test_what_cannot_work_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="nowhere"):
        adapted(lora={"targets": ["nowhere"]})
    with pytest.raises(ConfigError, match="ties to its head"):
        adapted(lora={"targets": ["q_proj", "embed_tokens"]})
    with pytest.raises(ConfigError, match="dropout"):
        load("four_modules", ["train.lora.dropout=0.1"])
    with pytest.raises(ConfigError, match=r"train\.lora\.r"):
        load("four_modules", ["train.lora.r=0"])
    monkeypatch.setitem(sys.modules, "peft", None)
    for needs in (lambda: preflight(load("four_modules", ["train.lora.r=4"])), adapted):
        with pytest.raises(MissingExtra, match=r"gfcr\[lora\]"):
            needs()
