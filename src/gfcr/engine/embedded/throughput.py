"""How many tokens the engine samples per second of CPU time. Invariant: what is measured is the public path (submit, step), with
prompts of its own per stream, after one warm-up of the same shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np

from gfcr.engine.contract import Request
from gfcr.engine.embedded.engine import EmbeddedEngine
from gfcr.run.seeds import stream_key
from gfcr.types import Node, Sampling, Segment, SegmentKind

WARM = 2
"""Tokens a stream of the warm-up samples."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """One batch size."""

    streams: int
    tokens: int
    """Sampled in all."""
    cpu_seconds: float
    """CPU time of this process, all threads; on a GPU it is the host's share only."""
    seconds: float
    """Wall time."""

    @property
    def per_cpu_second(self) -> float:
        return self.tokens / max(self.cpu_seconds, 1e-9)

    @property
    def per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


def measure(engine: EmbeddedEngine, streams: Sequence[int], new_tokens: int, prompt_tokens: int = 16) -> list[Throughput]:
    """One figure per number of streams, prefill included. Contexts are cut to what the model's length leaves."""
    prompt_tokens = max(1, min(prompt_tokens, engine.max_length - new_tokens))
    out = []
    for count in streams:
        _run(engine, count, prompt_tokens, min(WARM, new_tokens))
        cpu, wall = process_time(), perf_counter()
        tokens = _run(engine, count, prompt_tokens, new_tokens)
        out.append(Throughput(count, tokens, process_time() - cpu, perf_counter() - wall))
    return out


def _run(engine: EmbeddedEngine, count: int, prompt_tokens: int, new_tokens: int) -> int:
    rng = np.random.default_rng(0)
    vocabulary = engine.capabilities().vocabulary
    for i in range(count):
        ids = rng.integers(0, vocabulary, prompt_tokens).astype(np.int32)
        node = Node(f"probe{i}", None, Segment(SegmentKind.PROMPT, ids))
        engine.submit(Request(f"probe{i}", (node,), Sampling(), new_tokens, stream_key(0, "throughput", i)))
    tokens = 0
    while engine.live():
        tokens += sum(len(chunk.ids) for chunk in engine.step())
    engine.prefilled()
    return tokens
