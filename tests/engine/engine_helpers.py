"""Small random models and requests for the engine tests. Weights have std .2, so that laws are far from uniform."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from functools import cache

import numpy as np
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from gfcr.engine.contract import Chunk, Request, ScoreItem, StopSpec
from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
from gfcr.run.seeds import stream_key
from gfcr.types import Node, Path, Sampling, Segment, SegmentKind, path_ids

torch.set_num_threads(1)
VOCABULARY = 37
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
WINDOW = 8
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 256, "n_embd": 64, "n_layer": 2, "n_head": 4}
GEMMA = {**SIZES, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": WINDOW}
MIXED = ["sliding_attention", "full_attention"]
SMOLLM2 = {**SIZES, "hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3}
KINDS = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16, num_key_value_heads=4, tie_word_embeddings=True)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)),
}
"""What the other engine tests run on: tied and untied embeddings."""
SHAPES = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2, bos_token_id=None, eos_token_id=None)),
    "gemma2": lambda: Gemma2ForCausalLM(
        Gemma2Config(**GEMMA, layer_types=MIXED, attn_logit_softcapping=5.0, final_logit_softcapping=9.0)
    ),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA, layer_types=MIXED)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=WINDOW)),
    "qwen2": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SIZES, num_key_value_heads=2, use_sliding_window=True, sliding_window=WINDOW, layer_types=MIXED)
    ),
    "phi": lambda: PhiForCausalLM(PhiConfig(**SIZES, partial_rotary_factor=0.5)),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**SIZES, num_key_value_heads=2, sliding_window=WINDOW)),
    "smollm2": lambda: LlamaForCausalLM(LlamaConfig(**SMOLLM2, tie_word_embeddings=True)),
    "qwen3-window": lambda: Qwen3ForCausalLM(
        Qwen3Config(
            **SIZES,
            head_dim=16,
            num_key_value_heads=2,
            use_sliding_window=True,
            sliding_window=WINDOW,
            layer_types=MIXED,
            tie_word_embeddings=False,
        )
    ),
}
"""The architectures whose every difference from plain attention is proven: windows, caps, biases, partial rotary, layouts."""


def make_model(kind: str = "qwen3", seed: int = 0):
    torch.manual_seed(seed)
    model = (KINDS | SHAPES)[kind]()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
        else:
            torch.nn.init.normal_(parameter, mean=0.0 if "bias" in name else 1.0, std=0.2)
    return model


def make_engine(kind: str = "qwen3", seed: int = 0, decode=None, **settings) -> EmbeddedEngine:
    return EmbeddedEngine(make_model(kind, seed), EmbeddedSettings(**{"slots": 16, **settings}), decode=decode)


@cache
def shared_engine(kind: str = "qwen3") -> EmbeddedEngine:
    """One engine per kind for tests that leave it idle."""
    return make_engine(kind)


def node(ids, kind: SegmentKind = SegmentKind.PROMPT, name: str = "n") -> Node:
    return Node(name, None, Segment(kind, np.asarray(ids, np.int32)))


def request(name: str, ids, n: int, sampling: Sampling | None = None, key: int = 1, eos=(), strings=(), **more) -> Request:
    path: Path = ids if isinstance(ids, tuple) and ids and isinstance(ids[0], Node) else (node(ids),)
    return Request(name, path, sampling or Sampling(), n, key, StopSpec(tuple(eos), tuple(strings)), **more)


def drain(engine, tokens: int | None = None) -> dict[str, Chunk]:
    """Run until idle; each request's chunks joined."""
    parts: dict[str, list[Chunk]] = {}
    while engine.live():
        for chunk in engine.step(tokens):
            parts.setdefault(chunk.request, []).append(chunk)
    return {name: join(chunks) for name, chunks in parts.items()}


def join(chunks: list[Chunk]) -> Chunk:
    tracks = {k: np.concatenate([c.tracks[k] for c in chunks]) for k in chunks[-1].tracks}
    return Chunk(
        chunks[-1].request,
        np.concatenate([c.ids for c in chunks]),
        np.concatenate([c.logprobs for c in chunks]),
        chunks[-1].version,
        tracks,
        chunks[-1].stop,
    )


def run(engine, requests, tokens: int | None = None) -> dict[str, Chunk]:
    for one in requests:
        engine.submit(one)
    return drain(engine, tokens)


def some(count=18, seed=0, **more) -> list[Request]:
    """Requests of many lengths, at two temperatures."""
    rng = np.random.default_rng(seed)
    return [
        request(
            f"r{i}",
            rng.integers(0, VOCABULARY, rng.integers(1, 40)),
            int(rng.integers(1, 45)),
            Sampling(temperature=0.7 + 0.3 * (i % 2)),
            key=stream_key(3, "sample", i),
            **more,
        )
        for i in range(count)
    ]


def same(a: dict[str, Chunk], b: dict[str, Chunk]) -> None:
    """The same draws, with log-probabilities that differ by rounding only."""
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].ids.tolist() == b[name].ids.tolist(), name
        assert np.abs(a[name].logprobs - b[name].logprobs).max(initial=0) <= 5e-5
        assert a[name].stop is b[name].stop


def score_items(requests, chunks) -> list[ScoreItem]:
    items = []
    for one in requests:
        context, answer = path_ids(one.path), chunks[one.id].ids
        span = (len(context), len(context) + len(answer), one.sampling)
        items.append(ScoreItem(one.id, np.concatenate([context, answer]), (span,)))
    return items


def plain_difference(model, requests, chunks) -> float:
    """Largest |behaviour log-probability - that of transformers' own forward pass|, row by row; `model`: one of the same weights
    that no engine owns."""
    model.eval().set_attn_implementation("eager")
    worst = 0.0
    for one in requests:
        context, got = path_ids(one.path), chunks[one.id]
        ids = torch.from_numpy(np.concatenate([context, got.ids])).long()
        with torch.no_grad():
            logits = model(ids[None], use_cache=False).logits[0].float()
        law = torch.log_softmax(logits / one.sampling.temperature, -1)
        want = law[len(context) - 1 : -1].gather(1, ids[len(context) :, None])[:, 0].numpy()
        worst = max(worst, float(np.abs(want - got.logprobs).max()))
    return worst


def difference(engine, requests, chunks) -> float:
    """Largest |behaviour log-probability - score| over all sampled tokens (invariant 1); infinite when one is not finite."""
    worst = 0.0
    for one, scored in zip(requests, engine.score(score_items(requests, chunks))):
        got = chunks[one.id]
        gap = np.abs(scored.logprobs[len(scored.logprobs) - len(got.ids) :] - got.logprobs)
        worst = max(worst, float(gap.max()) if np.isfinite(gap).all() else float("inf"))
    return worst
