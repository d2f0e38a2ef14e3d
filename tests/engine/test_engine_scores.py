"""Invariant 1: a fresh rollout scored again under its own law differs by at most 5e-5, and errors would move it far; on every
architecture served, with prompts longer than three attention windows."""

import numpy as np
import pytest
import torch
from engine_helpers import (
    KINDS,
    SHAPES,
    VOCABULARY,
    WINDOW,
    difference,
    drain,
    make_engine,
    make_model,
    node,
    plain_difference,
    request,
    run,
    shared_engine,
)

from gfcr.engine.embedded import passes
from gfcr.run.seeds import stream_key
from gfcr.types import Sampling, SegmentKind

PLAIN = [Sampling(temperature=0.7), Sampling()]
TRUNCATING = [
    Sampling(top_k=5),
    Sampling(temperature=0.7, top_p=0.9),
    Sampling(min_p=0.05, banned=(3, 4)),
    Sampling(temperature=0.7, top_k=9, top_p=0.8, min_p=0.02),
    Sampling(temperature=0),
]
PENALISED = [Sampling(repetition_penalty=1.3), Sampling(presence_penalty=0.5, frequency_penalty=0.2, temperature=0.7)]


def mixed(laws, count=48, seed=0, longest=90, shortest=1):
    rng = np.random.default_rng(seed)
    return [
        request(
            f"r{i}",
            rng.integers(0, VOCABULARY, rng.integers(shortest, shortest + 49)),
            int(rng.integers(1, longest)),
            laws[i % len(laws)],
            key=stream_key(7, "sample", i),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("laws", [PLAIN, TRUNCATING + PENALISED], ids=["plain", "truncating"])
def test_rollouts_score_as_sampled(kind, laws):
    engine = shared_engine(kind)
    requests = mixed(laws)
    assert difference(engine, requests, run(engine, requests, tokens=9)) <= 5e-5


@pytest.mark.parametrize("kind", list(SHAPES))
def test_every_architecture_scores_as_sampled_and_as_transformers_has_it(kind):
    engine = shared_engine(kind)
    requests = mixed(PLAIN, count=20, shortest=3 * WINDOW + 1, longest=60)
    chunks = run(engine, requests, tokens=9)
    assert engine.check.beyond_window and 0 < engine.check.difference <= engine.check.allowed
    assert difference(engine, requests, chunks) <= 5e-5
    assert plain_difference(make_model(kind), requests, chunks) <= 5e-5


@pytest.mark.parametrize("kind", list(KINDS | SHAPES))
def test_forks_and_resumes_score_as_sampled(kind):
    engine = shared_engine(kind)
    rng = np.random.default_rng(1)
    parents = [
        request(f"p{i}", rng.integers(0, VOCABULARY, 3 * WINDOW + 1 + i), 60, PLAIN[i % 2], key=100 + i, retain=True)
        for i in range(6)
    ]
    for parent in parents:
        engine.submit(parent)
    engine.step(40)
    requests = []
    for i, parent in enumerate(parents):
        part = engine.cancel(parent.id) if i % 2 else None
        tokens = engine._state.tokens(engine._find(parent.id))
        at = len(parent.path[0].segment) + 20
        path = (parent.path[0], node(tokens[len(parent.path[0].segment) : at], SegmentKind.ACTION, "a"))
        requests.append(request(f"f{i}", path, 50, parent.sampling, key=300 + i, fork_of=parent.id, fork_at=at))
        if part is not None:  # resumed without the parent's cache
            path = (parent.path[0], node(tokens[len(parent.path[0].segment) :], SegmentKind.ACTION, "a"))
            requests.append(request(f"resumed{i}", path, 30, parent.sampling, key=parent.key))
    for one in requests:
        engine.submit(one)
    taken = drain(engine, 7)
    assert difference(engine, requests, taken) <= 5e-5
    for parent in parents:
        engine.cancel(parent.id)


def corrupt_positions(monkeypatch, kind, **settings):
    engine = make_engine(kind, **settings)  # starts whole: the start-up check would refuse the corruption
    real = engine._model.hidden

    def shifted(ids, positions, work):
        return real(ids, positions + 1 if isinstance(work, passes.DecodePass) else positions, work)

    monkeypatch.setattr(engine._model, "hidden", shifted)
    return engine


def corrupt_old_key(monkeypatch, kind, **settings):
    engine = make_engine(kind, **settings)
    real = passes.DecodePass.mask

    def dropped(self, window):
        mask = real(self, window)
        mask[self.behind[:, 0] >= self.pool.block, ..., 0] = passes.MASKED  # the first key of every full block but the last
        return mask

    monkeypatch.setattr(passes.DecodePass, "mask", dropped)
    return engine


def corrupt_window(monkeypatch, kind, **settings):
    engine = make_engine(kind, **settings)
    real = passes.DecodePass.mask
    monkeypatch.setattr(passes.DecodePass, "mask", lambda self, window: real(self, window and window + 1))
    return engine


def corrupt_cap(monkeypatch, kind, **settings):
    engine = make_engine(kind, **settings)
    real = passes._cap
    monkeypatch.setattr(passes, "_cap", lambda scores, cap: scores if scores.ndim == 4 else real(scores, cap))
    return engine


def corrupt_key(monkeypatch, kind, **settings):
    engine = make_engine(kind, **settings)
    real = passes.DecodePass.mask

    def dropped(self, window):
        mask = real(self, window)
        mask[:, 0, 0][self.behind == 1] = passes.MASKED  # the token before the newest
        return mask

    monkeypatch.setattr(passes.DecodePass, "mask", dropped)
    return engine


def corrupt_rows(monkeypatch, kind, **settings):
    engine = make_engine(kind, **settings)
    real = passes.DecodePass.__init__

    def swapped(self, pool, blocks, offsets, rows, reach):
        if len(blocks) > 1:
            flip = torch.arange(len(blocks))
            flip[0], flip[1] = 1, 0
            rows = flip[rows]
        real(self, pool, blocks, offsets, rows, reach)

    monkeypatch.setattr(passes.DecodePass, "__init__", swapped)
    return engine


@pytest.mark.parametrize("kind", ["qwen3", *SHAPES])
@pytest.mark.parametrize("corrupt", [corrupt_positions, corrupt_key, corrupt_rows])
def test_a_wrong_cache_would_be_seen(corrupt, kind, monkeypatch):
    engine = corrupt(monkeypatch, kind)
    rng = np.random.default_rng(2)
    requests = [request(f"r{i}", rng.integers(0, VOCABULARY, 37 + i), 24, key=i) for i in range(8)]
    assert difference(engine, requests, run(engine, requests)) > 1e-2


@pytest.mark.parametrize("kind", ["qwen3", *SHAPES])
def test_the_uncorrupted_engine_passes_the_same_check(kind):
    engine = make_engine(kind)
    rng = np.random.default_rng(2)
    requests = [request(f"r{i}", rng.integers(0, VOCABULARY, 37 + i), 24, key=i) for i in range(8)]
    assert difference(engine, requests, run(engine, requests)) <= 5e-5


@pytest.mark.parametrize(
    ("corrupt", "kind"),
    [(corrupt_old_key, "qwen3"), (corrupt_cap, "gemma2")]
    + [(corrupt_window, kind) for kind in ("mistral", "gemma2", "gemma3", "phi3", "qwen3-window")],
)
def test_what_only_some_architectures_have_would_be_missed_too(corrupt, kind, monkeypatch):
    """A window one too long, an attention cap left out in decoding, a key dropped long ago."""
    test_a_wrong_cache_would_be_seen(corrupt, kind, monkeypatch)
