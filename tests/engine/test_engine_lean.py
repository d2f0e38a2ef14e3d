"""Small models in few operations: the same law as transformers' own pass, and who is left to transformers."""

import numpy as np
import pytest
import torch
from engine_helpers import SHAPES, SIZES, VOCABULARY, difference, make_engine, make_model, request, run
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from gfcr.engine.contract import WeightsRef
from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
from gfcr.engine.embedded.lean import Lean
from gfcr.engine.embedded.passes import FullPass
from gfcr.engine.known import known

LEAN = ["qwen3", "llama", "mistral", "qwen2", "smollm2", "qwen3-window"]


def scaled_llama():
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            **SIZES,
            num_key_value_heads=2,
            attention_bias=True,
            mlp_bias=True,
            rope_parameters={**rope, "original_max_position_embeddings": 32},
        )
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def hidden(engine, ids):
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
    with torch.inference_mode():
        return (
            engine._model.lean.hidden(ids, positions, FullPass()),
            engine._model._full(ids, positions, FullPass()),
        )


@pytest.mark.parametrize("kind", [*LEAN, "scaled and biased"])
def test_hidden_states_are_those_of_transformers(kind):
    engine = EmbeddedEngine(scaled_llama() if kind == "scaled and biased" else make_model(kind))
    assert engine.check.few_operations
    ours, theirs = hidden(engine, np.random.default_rng(0).integers(0, VOCABULARY, (3, 60)))
    scale = float(theirs.abs().max())
    assert scale > 0.5 and float((ours - theirs).abs().max()) <= 2e-5 * scale


@pytest.mark.parametrize("kind", sorted(set(SHAPES) - set(LEAN)))
def test_other_architectures_run_as_transformers_has_them(kind):
    assert not make_engine(kind).check.few_operations


def test_a_part_that_is_not_the_familys_own_is_left_to_transformers():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = make_model()
    assert known(model)
    old = model.model.layers[0].mlp.down_proj
    new = Doubled(old.in_features, old.out_features, bias=False)
    new.weight = old.weight
    model.model.layers[0].mlp.down_proj = new
    assert not known(model)
    hooked = make_model()
    hooked.model.layers[1].register_forward_hook(lambda module, args, out: out)
    assert not known(hooked)
    patched = make_model()
    patched.model.norm.forward = lambda x: x
    assert not known(patched)
    for name, value in (("scale_grad_by_freq", True), ("sparse", True), ("max_norm", 1.0)):
        odd = make_model()
        setattr(odd.model.embed_tokens, name, value)
        assert not known(odd)


def test_what_fails_its_check_in_few_operations_runs_as_transformers_has_it(monkeypatch):
    monkeypatch.setattr(Lean, "_paired", lambda self, weight: weight)  # the wrong dimensions turn together
    engine = make_engine()
    assert not engine.check.few_operations and engine.check.difference <= engine.check.allowed
    requests = [request(f"r{i}", np.arange(9 + i), 20, key=i) for i in range(4)]
    assert difference(engine, requests, run(engine, requests)) <= 5e-5


def test_without_a_check_to_prove_it_nothing_runs_in_few_operations():
    assert make_engine(check_tokens=0)._model.lean is None
    assert make_engine(lean=False)._model.lean is None


def test_both_ways_draw_the_same_tokens_and_a_load_reaches_both():
    requests = [request(f"r{i}", np.arange(5 + 3 * i), 30, key=i) for i in range(8)]
    few, plain = make_engine(seed=0), make_engine(seed=0, lean=False)
    for engine in (few, plain):
        engine.load(WeightsRef(1, "memory:"), make_model(seed=1).state_dict())
    one, two = run(few, requests), run(plain, requests)
    for name, chunk in one.items():
        assert chunk.ids.tolist() == two[name].ids.tolist()
        assert np.abs(chunk.logprobs - two[name].logprobs).max() <= 5e-5


def test_positions_beyond_the_table_are_added_to_it():
    engine = EmbeddedEngine(make_model(), EmbeddedSettings(max_length=700))
    ours, theirs = hidden(engine, np.random.default_rng(0).integers(0, VOCABULARY, (1, 600)))
    assert float((ours - theirs).abs().max()) <= 5e-5 * float(theirs.abs().max())
