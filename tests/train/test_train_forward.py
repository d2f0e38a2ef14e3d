"""Log-probabilities: chunked, temperature-aware, padded, packed, split or not, all equal to the plain full forward pass."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from train_cases import VOCAB, batch_of, lab_model, random_rows, tiny_gpt2
from transformers import Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig

from gfcr.errors import ConfigError
from gfcr.train.forward import PolicyForward
from gfcr.train.micro import ancestors, micro_batches, split_lengths


def run(forward, batch, limit=10**6, grad=False):
    logps, entropies = np.full(len(batch.input_ids), np.nan), np.full(len(batch.input_ids), np.nan)
    with torch.set_grad_enabled(grad):
        for micro in micro_batches(batch, batch.rl_mask, limit):
            logp, entropy = forward(micro, batch.input_ids[micro.tokens], batch.temperature[micro.tokens])
            logps[micro.tokens], entropies[micro.tokens] = logp.detach().numpy(), entropy.numpy()
    return logps, entropies


def plain(model, batch):
    """Row by row, whole logits, no padding."""
    logps, entropies = np.full(len(batch.input_ids), np.nan), np.full(len(batch.input_ids), np.nan)
    for row in range(len(batch)):
        a, b = batch.offsets[row], batch.offsets[row + 1]
        ids = torch.as_tensor(batch.input_ids[a:b].astype(np.int64))
        with torch.no_grad():
            logits = model(input_ids=ids[None]).logits[0].float()
        for t in range(1, b - a):
            if batch.rl_mask[a + t]:
                heat = batch.temperature[a + t]
                law = torch.log_softmax(logits[t - 1] / (1.0 if np.isnan(heat) else float(heat)), -1)
                logps[a + t], entropies[a + t] = law[ids[t]], -(law.exp() * law).sum()
    return logps, entropies


def heated(count, seed):
    rows = random_rows(count, seed=seed)
    rng = np.random.default_rng(seed)
    return [r | {"temperature": rng.choice([np.nan, 0.5, 1.0, 1.7], len(r["ids"]))} for r in rows]


def gemma2(cap=2.0):
    torch.manual_seed(1)
    return Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=VOCAB,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            intermediate_size=32,
            sliding_window=5,
            final_logit_softcapping=cap,
            attn_implementation="eager",
        )
    )


def gemma3():
    torch.manual_seed(1)
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            intermediate_size=32,
            sliding_window=5,
            layer_types=["sliding_attention", "full_attention"],
        )
    )


@pytest.mark.parametrize(
    "make, split", [(lab_model, True), (lambda: tiny_gpt2(vocab=VOCAB), True), (gemma2, False), (gemma3, True)]
)
@pytest.mark.parametrize("limit, chunk", [(10**6, None), (60, 7)])
def test_equal_to_the_plain_forward_pass(make, split, limit, chunk):
    model, batch = make().eval(), batch_of(heated(9, seed=2))
    forward = PolicyForward(model, logits_chunk=chunk)
    assert (forward.head is not None) is split
    for found, expected in zip(run(forward, batch, limit), plain(model, batch)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6)


def test_a_soft_cap_that_no_probe_can_see_is_read_from_the_configuration():
    model = gemma2(cap=1e6)  # so wide that small logits come through bit-equal
    assert PolicyForward(model).head is None
    model.config.final_logit_softcapping = None
    assert PolicyForward(model).head is not None


def test_chunked_gradient_equals_unchunked():
    batch = batch_of(heated(6, seed=4))
    grads = []
    for chunk in (None, 5):
        model = lab_model()
        forward = PolicyForward(model, logits_chunk=chunk)
        (micro,) = micro_batches(batch, batch.rl_mask, 10**6)
        logp, _ = forward(micro, batch.input_ids[micro.tokens], batch.temperature[micro.tokens])
        (logp * torch.linspace(-1, 1, len(logp))).sum().backward()
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert (grads[0] - grads[1]).norm() / grads[0].norm() < 1e-5


def test_chunks_bound_the_logits_that_exist():
    """The head never sees more than `logits_chunk` tokens, forward or backward, and only tokens that need a probability."""
    model, batch = lab_model(), batch_of(random_rows(6, seed=4))
    forward, seen = PolicyForward(model, logits_chunk=8), []
    model.lm_head.register_forward_hook(lambda module, args, out: seen.append(out.shape[0]))
    (micro,) = micro_batches(batch, batch.rl_mask, 10**6)
    forward(micro, batch.input_ids[micro.tokens], batch.temperature[micro.tokens])[0].sum().backward()
    assert max(seen) <= 8
    assert sum(seen) == 2 * batch.rl_mask.sum()  # once forward, once recomputed


@pytest.mark.parametrize("make", [lab_model, lambda: tiny_gpt2(vocab=VOCAB), gemma3])
def test_packed_tree_gives_the_log_probabilities_of_its_paths(make):
    #      0 1 2 -> 3 4 5 (leaf), 6 7 (leaf);  4 -> 8 9 10 11 (leaf)
    parents = np.array([-1, 0, 1, 2, 3, 4, 2, 6, 4, 8, 9, 10], np.int32)
    ids = np.array([5, 9, 3, 7, 1, 8, 2, 11, 30, 4, 4, 6])
    model = make().eval()
    forward = PolicyForward(model)
    tree = batch_of([{"ids": ids, "prompt": 2}], parents=parents)
    got, _ = run(forward, tree)
    for path in ([0, 1, 2, 3, 4, 5], [0, 1, 2, 6, 7], [0, 1, 2, 3, 4, 8, 9, 10, 11]):
        expected, _ = plain(model, batch_of([{"ids": ids[path], "prompt": 2}]))
        np.testing.assert_allclose(got[path], expected, atol=3e-6)


def test_packed_trees_are_refused_where_masks_cannot_be_given():
    model = lab_model()
    model.config._attn_implementation = "flash_attention_2"
    batch = batch_of([{"ids": [1, 2, 3], "prompt": 1}], parents=np.array([-1, 0, 0], np.int32))
    forward = PolicyForward.__new__(PolicyForward)
    forward.model, forward.layer_types, forward.takes_positions = model, {"full_attention"}, True
    with pytest.raises(ConfigError, match="flash_attention_2"):
        forward._mask(micro_batches(batch, batch.rl_mask, 100)[0], torch.device("cpu"))


def test_ancestors():
    seen = ancestors(np.array([[-1, 0, 0, 1, -1]]))[0].astype(int)
    assert seen.tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 1]]


def test_only_what_a_probability_depends_on_is_forwarded():
    rows = [{"ids": [1, 2, 3, 4, 5, 6], "rl_mask": [0, 0, 1, 1, 0, 0]}, {"ids": [1, 2, 3], "rl_mask": False}]
    batch = batch_of(rows)
    (micro,) = micro_batches(batch, batch.rl_mask, 100)
    assert micro.input_ids.tolist() == [[1, 2, 3]]  # the tail, the last token's own id and the row without loss stay away
    assert micro.sources.tolist() == [1, 2]


def test_counts_what_goes_through_the_model():
    model, batch = lab_model(), batch_of(random_rows(12, seed=7))
    forward = PolicyForward(model)
    seen = {"real": 0, "padded": 0}

    def hook(module, args, kwargs):
        seen["real"] += int(kwargs["attention_mask"].sum())
        seen["padded"] += kwargs["input_ids"].numel()

    model.model.register_forward_pre_hook(hook, with_kwargs=True)
    before = forward.tokens, forward.padded
    run(forward, batch, limit=64)
    assert (forward.tokens - before[0], forward.padded - before[1]) == (seen["real"], seen["padded"])


@given(st.lists(st.integers(1, 80), min_size=1, max_size=40), st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_split_covers_every_row_once_within_the_limit(lengths, limit):
    lengths = np.sort(np.array(lengths))[::-1]
    cuts = split_lengths(lengths, limit)
    assert cuts[0][0] == 0 and cuts[-1][1] == len(lengths) and all(a[1] == b[0] for a, b in pairwise(cuts))
    assert all((b - a) * lengths[a] <= limit or b - a == 1 for a, b in cuts)


def test_split_keeps_the_limit_and_saves_padding():
    lengths = np.array([900, 900, 30, 30, 30, 20])
    assert split_lengths(lengths, 10**6) == [(0, 2), (2, 6)]
    assert split_lengths(np.full(10, 10), 40) == [(0, 2), (2, 6), (6, 10)]
    assert split_lengths(np.array([50, 10]), 20) == [(0, 1), (1, 2)]  # too long for the limit: alone
