"""What went through the model, counted by hooks inside it, against usage and the per-request accounts; and the memory bound."""

import numpy as np
import pytest
import torch
from engine_helpers import VOCABULARY, drain, make_engine, node, request, run, score_items

from gfcr.run.seeds import stream_key
from gfcr.types import Sampling, SegmentKind


class Meter:
    """Counts on its own: real tokens are those whose position grows along the row; logits rows at the head."""

    def __init__(self, engine):
        module, lean = engine._model.module, engine._model.lean
        self.tokens = self.heads = 0
        module.base_model.register_forward_pre_hook(self.base, with_kwargs=True)
        if lean is not None:  # the layers run without their modules
            real = lean.hidden
            lean.hidden = lambda ids, positions, work: self.seen(torch.from_numpy(positions)) or real(ids, positions, work)
        module.get_output_embeddings().register_forward_pre_hook(self.head)

    def base(self, module, args, kwargs):
        self.seen(kwargs["position_ids"])

    def seen(self, positions):
        self.tokens += len(positions) + int((positions.diff(dim=1) > 0).sum())

    def head(self, module, args):
        self.heads += len(args[0])


def drain_with_costs(engine):
    costs = {}
    chunks = {}
    while engine.live():
        for chunk in engine.step(3):
            chunks.setdefault(chunk.request, []).append(chunk)
        for cost in engine.prefilled():
            costs[cost.request] = cost
    return chunks, costs


@pytest.mark.parametrize("kind", ["qwen3", "llama", "gpt2"])
def test_usage_equals_what_a_hook_saw(kind):
    engine = make_engine(kind)
    meter = Meter(engine)
    rng = np.random.default_rng(0)
    requests = [
        request(f"r{i}", rng.integers(0, VOCABULARY, rng.integers(1, 60)), int(rng.integers(1, 30)), key=i) for i in range(40)
    ]
    requests += [request(f"g{i}", np.arange(20), 9, key=90 + i) for i in range(8)]
    for one in requests:
        engine.submit(one)
    engine.step(4)
    cancelled = sum(
        len(engine.cancel(f"r{i}").ids) for i in range(3) if any(s.request.id == f"r{i}" for s in engine._running.values())
    )
    chunks, costs = drain_with_costs(engine)
    usage = engine.usage()
    assert cancelled == 0  # step(4) had returned everything
    assert usage.prefilled == sum(c.computed for c in costs.values())
    assert usage.cached == sum(c.cached for c in costs.values())
    assert all(c.computed + c.cached == len(r.path[0].segment) for r in requests if (c := costs.get(r.id)))
    assert meter.heads == usage.decoded
    assert meter.tokens == usage.prefilled + usage.decoded - len(costs)  # a stream's last token is never fed
    before = meter.tokens
    finished = [r for r in requests if r.id in chunks]
    joined = {name: part[-1] for name, part in chunks.items()}
    engine.score(score_items(finished, joined))
    engine.fingerprint()
    assert meter.tokens - before == engine.usage().scored


def test_a_group_computes_its_prompt_once():
    engine = make_engine()
    meter = Meter(engine)
    for i in range(8):
        engine.submit(request(f"r{i}", np.arange(25), 5, key=i))
    engine.step(1)
    assert meter.tokens == 25
    assert sorted((p.computed, p.cached) for p in engine.prefilled()) == [(0, 25)] * 7 + [(25, 0)]
    drain(engine)


def test_a_common_prefix_is_computed_once():
    engine = make_engine(min_shared=4)
    meter = Meter(engine)
    head, rng = np.arange(20), np.random.default_rng(0)
    contexts = [np.concatenate([head[:cut], [30 + i], rng.integers(0, 30, 3)]) for i, cut in enumerate((20, 20, 12, 12, 20))]
    contexts += [head, head[:12], np.array([36, 1])]
    for i, context in enumerate(contexts):
        engine.submit(request(f"r{i}", context, 8, key=i))
    engine.step(1)
    distinct = {tuple(c[:k].tolist()) for c in contexts for k in range(1, len(c) + 1)}
    # Each context computes at least its last token, so two that end inside another one's prefix add one each at most.
    assert len(distinct) <= meter.tokens <= len(distinct) + 2
    assert sum(p.computed for p in engine.prefilled()) == meter.tokens
    drain(engine)


@pytest.mark.parametrize("ended", [False, True])
def test_a_fork_computes_no_prefix_token(ended):
    engine = make_engine()
    meter = Meter(engine)
    engine.submit(request("p", np.arange(17), 40, key=1, retain=True))
    chunks = engine.step(40 if ended else 20)
    tokens = np.concatenate([np.arange(17), chunks[0].ids])
    assert engine.live() == (not ended)
    before = meter.tokens
    forks = [
        request(f"f{i}", (node(tokens[:17]), node(tokens[17:at], SegmentKind.ACTION, "a")), 1, key=5, fork_of="p", fork_at=at)
        for i, at in enumerate((18, 25, 33, 37))
    ]
    for one in forks:
        engine.submit(one)
    for _ in range(4):
        engine.step(1)
    fed = 0 if ended else 4  # the parent's own steps
    assert meter.tokens - before == fed
    assert {(p.request, p.computed) for p in engine.prefilled()} == {("p", 17), ("f0", 0), ("f1", 0), ("f2", 0), ("f3", 0)}
    drain(engine)


def test_forks_of_a_queued_and_of_a_just_sampled_parent():
    engine = make_engine(slots=4)
    meter = Meter(engine)
    engine.submit(request("p", np.arange(12), 30, key=1))
    engine.submit(request("q", np.arange(5), 9, key=2, fork_of="p", fork_at=5))  # the parent waits too
    engine.step(6)
    tokens = np.concatenate([np.arange(12), engine._state.ids[engine._running["p"].slot, :6]])
    engine.submit(request("r", tokens, 5, key=3, fork_of="p", fork_at=18))  # its last token was not fed yet
    drain(engine)
    assert [p.computed for p in engine.prefilled()] == [12, 0, 0]
    usage = engine.usage()
    assert meter.tokens == usage.prefilled + usage.decoded - 3


def test_memory_stays_within_twice_the_live_tokens_and_one_slot():
    rng = np.random.default_rng(0)
    engine = make_engine(slots=64)
    lengths = np.minimum(150, np.rint(np.exp(rng.normal(3.4, 0.8, 120)))).astype(int) + 1
    run(
        engine,
        [request(f"r{i}", rng.integers(0, VOCABULARY, rng.integers(12, 21)), int(n), key=i) for i, n in enumerate(lengths)],
    )
    assert 1 < engine.kv_ratio <= 2
    usage = engine.usage()
    assert usage.live_peak < usage.kv_peak <= 2 * usage.live_peak + 171
    assert engine._core.pool is None  # idle engines hold nothing


def test_retained_tokens_count_as_held_and_are_trimmed():
    engine = make_engine(retain_tokens=100)
    run(engine, [request(f"r{i}", np.arange(16), 20, key=i, retain=True) for i in range(6)])
    assert list(engine._retained) == ["r4", "r5"]
    assert engine.kv_ratio <= 2
    with pytest.raises(ValueError, match="neither live nor retained"):
        engine.submit(request("f", np.arange(16), 4, fork_of="r0", fork_at=16))
    engine.cancel("r4")
    engine.cancel("r5")
    assert engine._core.pool is None


def test_kv_limit_is_kept_and_everything_finishes():
    engine = make_engine(kv_tokens=200)
    out = run(engine, [request(f"r{i}", np.arange(16), 40, Sampling(), stream_key(1, "s", i), retain=True) for i in range(12)])
    assert len(out) == 12
    assert engine.usage().live_peak <= 200
    with pytest.raises(ValueError, match="kv_tokens allows 200"):
        engine.submit(request("x", np.arange(16), 190))
