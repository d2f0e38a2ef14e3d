"""The trunk over distinct tokens: equal to the model's own pass, gradients too, and nothing computed twice."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_train_forward import plain, run
from torch import nn
from train_cases import batch_of, lab_model
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from gfcr.train import flat_forward
from gfcr.train.flat import flatten, like
from gfcr.train.flat_ops import Attend, Gate, Joined, Norm, Turn
from gfcr.train.forward import PolicyForward
from gfcr.train.micro import FEWEST, micro_batches
from gfcr.train.settings import TrainSettings
from gfcr.train.trainer import Trainer

SIZES = {
    "vocab_size": 37,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
WINDOW = {"sliding_window": 5, "num_key_value_heads": 2}
MODELS = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8, num_key_value_heads=2, tie_word_embeddings=True)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=4, attention_bias=True, mlp_bias=True)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, **WINDOW)),
    "qwen2": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SIZES, **WINDOW, use_sliding_window=True, layer_types=["full_attention", "sliding_attention"])
    ),
}


def make(kind, dtype=torch.float32):
    torch.manual_seed(0)
    model = MODELS[kind]().to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.2)
    return model


def group_rows(groups=3, k=4, seed=0, longest=30):
    """Rows of k answers to each of a few prompts, equal answers and padding tokens (0) among them."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(groups):
        prompt = rng.integers(0, 37, rng.integers(2, 12)).tolist()
        answers = [rng.integers(0, 4, rng.integers(1, longest)).tolist() for _ in range(k - 1)]
        for answer in [*answers, answers[0]]:
            rows.append({"ids": prompt + answer, "rl_mask": [0] * len(prompt) + [1] * len(answer)})
    return rows


def distinct(batch, micro):
    ids, inside = micro.input_ids, micro.attention
    return {tuple(row[: i + 1].tolist()) for row, real in zip(ids, inside) for i in range(int(real.sum()))}


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("short", [160, 8])
def test_log_probabilities_and_gradients_are_those_of_transformers(kind, short, monkeypatch):
    """`short` 8: long rows attend through torch's own attention."""
    monkeypatch.setattr(flat_forward, "SHORT", short)
    batch = batch_of(group_rows())
    slope = torch.linspace(-1, 1, len(batch.input_ids), dtype=torch.float64)
    found = []
    for few in (True, False):
        model = make(kind, torch.float64)
        forward = PolicyForward(model)
        assert forward.flat is not None
        if not few:
            forward.flat = None
        values = np.full((2, len(batch.input_ids)), np.nan)
        for micro in micro_batches(batch, batch.rl_mask, 10**6, forward.split_cost):
            logp, entropy = forward(micro, batch.input_ids[micro.tokens], batch.temperature[micro.tokens])
            (logp * slope[torch.as_tensor(micro.tokens)]).sum().backward()
            values[:, micro.tokens] = logp.detach().numpy(), entropy.numpy()
        found.append((values, {n: p.grad for n, p in model.named_parameters()}))
    (ours, gradients), (theirs, others) = found
    np.testing.assert_allclose(ours, theirs, atol=5e-6)  # transformers' norms are float32 in any case
    for name, other in others.items():
        assert float((gradients[name] - other).abs().max()) <= 1e-5 * max(1.0, float(other.abs().max())), name


@pytest.mark.parametrize("kind", list(MODELS))
def test_one_update_leaves_the_same_weights(kind):
    batch = batch_of(group_rows(seed=3))
    trainers = [Trainer(make(kind), TrainSettings(lr=1e-2, minibatches=2)) for _ in range(2)]
    trainers[1].policy.flat = None
    stats = [t.step(batch) for t in trainers]
    assert stats[0].loss == pytest.approx(stats[1].loss, abs=1e-5)
    assert stats[0].grad_norm == pytest.approx(stats[1].grad_norm, rel=1e-4)
    assert stats[0].tokens < stats[1].tokens


def test_every_distinct_path_goes_through_once_and_finds_its_places():
    batch = batch_of(group_rows(groups=5, seed=1))
    (micro,) = micro_batches(batch, batch.rl_mask, 10**6, FEWEST)
    flat = flatten(micro)
    assert len(flat.ids) == len(distinct(batch, micro)) < micro.real
    ids, start = [], 0
    for block in flat.blocks:
        rows = micro.input_ids[start : start + block.rows, : block.width].ravel()
        inside = micro.attention[start : start + block.rows, : block.width].ravel().astype(bool)
        assert (flat.ids[block.index][inside] == rows[inside]).all()
        assert inside[block.owned].all()
        ids += rows[block.owned].tolist()
        start += block.rows
    assert start == len(micro.input_ids) and ids == flat.ids.tolist()
    assert (flat.ids[flat.sources] == micro.input_ids.ravel()[micro.sources]).all()


def test_the_count_is_what_the_layers_saw(monkeypatch):
    model = lab_model()
    forward = PolicyForward(model)
    batch = batch_of(group_rows(seed=2))
    seen = []
    real = flat_forward.FlatForward._layer
    monkeypatch.setattr(
        flat_forward.FlatForward, "_layer", lambda self, layer, x, *rest: seen.append(len(x)) or real(self, layer, x, *rest)
    )
    before = forward.tokens
    run(forward, batch)
    assert forward.tokens - before == sum(seen) / len(model.model.layers) > 0
    np.testing.assert_allclose(run(forward, batch), plain(model, batch), atol=2e-5)


def test_a_hook_is_heard_and_a_probe_that_disagrees_is_believed(monkeypatch):
    model, batch, calls = lab_model(), batch_of(group_rows()), []
    forward = PolicyForward(model)
    handle = model.model.layers[0].register_forward_hook(lambda *_: calls.append(1))
    run(forward, batch)
    assert calls
    handle.remove()
    calls.clear()
    run(forward, batch)
    assert not calls
    real = flat_forward.FlatForward.__init__

    def unpaired(self, model):
        real(self, model)
        self._order = torch.arange(len(self._order))

    monkeypatch.setattr(flat_forward.FlatForward, "__init__", unpaired)
    assert PolicyForward(model).flat is None


@given(st.lists(st.integers(1, 90), min_size=1, max_size=60))
@settings(max_examples=50, deadline=None)
def test_blocks_cover_every_row_once(lengths):
    lengths = np.sort(lengths)[::-1]
    cuts = like(lengths)
    assert [i for a, b in cuts for i in range(a, b)] == list(range(len(lengths)))


def numbers(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


TURNS = torch.polar(torch.ones(5, 1, 4, dtype=torch.float64), numbers(5, 1, 4, seed=9).detach())
OPS = {
    "norm": (lambda x, g: Norm.apply(x, g, 1e-3), (numbers(5, 6), numbers(6, seed=1))),
    "turn": (lambda x, g: Turn.apply(x, g, 1e-3, TURNS), (numbers(5, 3, 8), numbers(3, 8, seed=1))),
    "turn alone": (lambda x, g: Turn.apply(x, g, None, TURNS), (numbers(5, 3, 8), numbers(3, 8, seed=1))),
    "attend": (
        lambda q, k, v: Attend.apply(q, k, v, torch.full((3, 3), -1e9).triu(1).double().repeat(2, 1), 0.7),
        (numbers(2, 6, 4), numbers(2, 3, 4, seed=1), numbers(2, 3, 5, seed=2)),
    ),
    "gate": (Gate.apply, (numbers(5, 6), numbers(5, 6, seed=1))),
    "joined": (
        lambda x, a, b: Joined.apply(x, torch.tensor([3, 0, 4, 1, 2]), a, b),
        (numbers(4, 6), numbers(2, 6, seed=1), numbers(3, 6, seed=2)),
    ),
    "joined in order": (
        lambda x, a, b: Joined.apply(x, None, a, b),
        (numbers(4, 6), numbers(2, 6, seed=1), numbers(3, 6, seed=2)),
    ),
}


@pytest.mark.parametrize("name", list(OPS))
def test_gradients_against_finite_differences(name):
    function, inputs = OPS[name]
    assert torch.autograd.gradcheck(function, inputs)
