"""Requests, engines and checks of the tests of HTTP engines."""

from __future__ import annotations

from functools import partial

import numpy as np

from gfcr.domains.programs.tokenizer import END_ID
from gfcr.engine.contract import Chunk, Request, StopSpec
from gfcr.engine.http.settings import HttpSettings
from gfcr.engine.http.vllm import VllmEngine
from gfcr.engine.models import load_model, load_tokenizer, model_path
from gfcr.run.seeds import stream_key
from gfcr.types import Node, Sampling, Segment, SegmentKind, path_ids

VOCABULARY = 37
TOKENIZER = load_tokenizer(model_path("lab"))
DECODE = partial(TOKENIZER.decode, skip_special_tokens=True, clean_up_tokenization_spaces=False)
ENCODE = partial(TOKENIZER.encode, add_special_tokens=False)


def engine(*urls: str, **settings) -> VllmEngine:
    settings = {"seconds": 5.0, "pause": 0.01, "outage": 30.0, **settings}
    slots = settings.pop("slots", 64)
    return VllmEngine(HttpSettings(urls=urls, **settings), VOCABULARY, slots, DECODE)


def node(ids, name: str = "root") -> Node:
    return Node(name, None, Segment(SegmentKind.PROMPT, np.asarray(ids, np.int32)))


def request(
    name: str, ids, n: int = 24, temperature: float = 1.0, key: int = 1, strings=(), eos=(END_ID,), root: str = "root", **more
):
    return Request(
        name, (node(ids, root),), Sampling(temperature=temperature), n, key, StopSpec(tuple(eos), tuple(strings)), **more
    )


def some(count: int, seed: int = 0, n: int = 24) -> list[Request]:
    """Requests at two temperatures, in groups of four that share their context."""
    rng = np.random.default_rng(seed)
    contexts = [[1, *rng.integers(3, VOCABULARY, rng.integers(3, 20))] for _ in range(-(-count // 4))]
    return [
        request(f"r{i}", contexts[i // 4], n, (1.0, 0.7)[i % 2], stream_key(seed, "sample", i), root=f"group{i // 4}")
        for i in range(count)
    ]


def drain(running, tokens: int | None = None) -> dict[str, list[Chunk]]:
    """Each request's chunks until nothing lives; bounded."""
    parts: dict[str, list[Chunk]] = {}
    for _ in range(10_000):
        if not running.live():
            return parts
        for chunk in running.step(tokens):
            parts.setdefault(chunk.request, []).append(chunk)
    raise AssertionError("requests without an end")


def ids_of(chunks: list[Chunk]) -> list[int]:
    return [int(i) for chunk in chunks for i in chunk.ids]


def logprobs_of(chunks: list[Chunk]) -> np.ndarray:
    return np.concatenate([chunk.logprobs for chunk in chunks])


def run(running, requests, tokens: int | None = None) -> dict[str, list[Chunk]]:
    for one in requests:
        running.submit(one)
    return drain(running, tokens)


def plain_gap(module, requests, parts) -> float:
    """Largest |log-probability - that of transformers' own forward pass| over all sampled tokens."""
    import torch

    worst = 0.0
    for one in requests:
        context, own = path_ids(one.path), ids_of(parts[one.id])
        ids = torch.tensor([*context.tolist(), *own])
        with torch.no_grad():
            law = torch.log_softmax(module(ids[None]).logits[0].float() / one.sampling.temperature, -1)
        want = law[len(context) - 1 : -1].gather(1, ids[len(context) :, None])[:, 0].numpy()
        worst = max(worst, float(np.abs(want - logprobs_of(parts[one.id])).max()))
    return worst


def lab():
    return load_model(model_path("lab")).eval()
