"""Embedded engine against transformers' `generate`: tokens per CPU second, same machine, same process, same run.

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python -m bench engine [--repeats 3] [--slots 256]

256 sampled requests with prompts of 12 to 20 tokens on a lab-size Qwen3 model (85k random parameters). `long tail`:
log-normal answer lengths, mean/max .27, max 192; `equal`: 96 each. `generate` gets left-padded batches in arrival order,
each run to its longest answer. Runs alternate; each figure is the best of the repeats. Prints a Markdown table of ratios
and, as the last line, JSON.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from bench.record import emit
from gfcr.engine.contract import Request
from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
from gfcr.run.seeds import generator, stream_key
from gfcr.types import Node, Sampling, Segment, SegmentKind

REQUESTS, LONGEST, SHARE = 256, 192, 0.27
BATCHES = (32, 64, 128, 256)


def random_qwen3(std: float, **shape: int) -> Qwen3ForCausalLM:
    """Random weights of this standard deviation."""
    torch.manual_seed(0)
    config = Qwen3Config(
        **shape,
        tie_word_embeddings=True,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        initializer_range=std,
    )
    return Qwen3ForCausalLM(config).eval()


def lab_model() -> Qwen3ForCausalLM:
    return random_qwen3(
        0.2,
        vocab_size=37,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        intermediate_size=128,
    )


def long_tail() -> np.ndarray:
    """Log-normal lengths whose largest is LONGEST and whose mean is SHARE of it."""
    normal = generator(0, "bench-lengths").standard_normal(REQUESTS)
    low, high = 0.01, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        shape = np.exp(middle * normal)
        low, high = (middle, high) if shape.mean() / shape.max() > SHARE else (low, middle)
    return np.maximum(1, np.rint(LONGEST * np.exp(low * (normal - normal.max())))).astype(int)


def prompts() -> list[np.ndarray]:
    rng = generator(0, "bench-prompts")
    return [rng.integers(1, 37, rng.integers(12, 21)).astype(np.int32) for _ in range(REQUESTS)]


def run_engine(texts: list[np.ndarray], lengths: np.ndarray, slots: int) -> dict[str, float]:
    engine = EmbeddedEngine(lab_model(), EmbeddedSettings(slots=slots))
    start = time.process_time()
    for i, (text, n) in enumerate(zip(texts, lengths)):
        path = (Node(f"p{i}", None, Segment(SegmentKind.PROMPT, text)),)
        engine.submit(Request(f"r{i}", path, Sampling(), int(n), stream_key(0, "sample", i)))
    tokens = 0
    while engine.live():
        tokens += sum(len(chunk.ids) for chunk in engine.step())
    seconds = time.process_time() - start
    assert tokens == lengths.sum()
    return {
        "tokens_per_cpu_s": tokens / seconds,
        "kv_ratio": engine.kv_ratio,
        "kv_peak": engine.usage().kv_peak,
        "live_peak": engine.usage().live_peak,
    }


def run_generate(model: Qwen3ForCausalLM, texts: list[np.ndarray], lengths: np.ndarray, batch: int) -> dict[str, float]:
    start = time.process_time()
    for a in range(0, len(texts), batch):
        some, longest = texts[a : a + batch], int(lengths[a : a + batch].max())
        width = max(map(len, some))
        ids, mask = torch.zeros(len(some), width, dtype=torch.long), torch.zeros(len(some), width, dtype=torch.long)
        for row, text in enumerate(some):
            ids[row, width - len(text) :] = torch.from_numpy(text)
            mask[row, width - len(text) :] = 1
        with torch.inference_mode():
            model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                top_k=0,
                max_new_tokens=longest,
                min_new_tokens=None,
                pad_token_id=0,
            )
    return {"tokens_per_cpu_s": lengths.sum() / (time.process_time() - start)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--slots", type=int, default=256)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    texts, model = prompts(), lab_model()
    result: dict[str, dict] = {"settings": {"slots": options.slots, "repeats": options.repeats, "torch": torch.__version__}}
    rows = []
    for name, lengths in (("long tail", long_tail()), ("equal", np.full(REQUESTS, 96))):
        ours: list[dict[str, float]] = []
        theirs: dict[int, float] = dict.fromkeys(BATCHES, 0.0)
        for _ in range(options.repeats):
            ours.append(run_engine(texts, lengths, options.slots))
            for batch in BATCHES:
                theirs[batch] = max(theirs[batch], run_generate(model, texts, lengths, batch)["tokens_per_cpu_s"])
        best = max(ours, key=lambda r: r["tokens_per_cpu_s"])
        speed, peer = best["tokens_per_cpu_s"], max(theirs.values())
        result[name] = {
            "engine": best,
            "generate": theirs,
            "ratio": speed / peer,
            "mean_over_max": float(lengths.mean() / lengths.max()),
        }
        batch = max(theirs, key=lambda b: theirs[b])
        rows.append(f"| {name} | {speed:,.0f} | {peer:,.0f} (B={batch}) | **{speed / peer:.2f}** | {best['kv_ratio']:.2f} |")
    print("| lengths | engine, tokens/CPU s | best `generate` | ratio | worst KV ratio (bound 2) |\n|---|---|---|---|---|")
    print("\n".join(rows))
    emit("engine", result)


if __name__ == "__main__":
    main()
