"""The embedded engine in two processes against one: tokens per second of wall time, same machine, same run.

    python -m bench workers [--repeats 5] [--workers 2] [--size lab|small]

256 sampled requests with prompts of 12 to 20 tokens and the long-tailed answer lengths of `bench engine` (mean/max .27, max
192). `lab`: 85k random parameters; `small`: 3.3M. One torch thread per process. Runs alternate; the ratio is that of the medians,
with the smallest and largest of the paired ratios beside it. Answers that differ (a draw within rounding of a border) are counted.

Wall time needs as many idle cores as workers: the load average before and after is printed, and a figure taken under load says
nothing. CPU time says what idle cores would give, at most: the CPU seconds of one process over those of the busiest of several
(Linux).
Prints a Markdown table and, as the last line, JSON.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from transformers import Qwen3ForCausalLM
from transformers.utils import logging

from bench.engine import REQUESTS, lab_model, long_tail, prompts, random_qwen3
from bench.record import emit
from gfcr.engine.contract import Engine, Request
from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
from gfcr.engine.workers import WorkerEngine
from gfcr.run.seeds import stream_key
from gfcr.types import Node, Sampling, Segment, SegmentKind

SLOTS = 256
"""Streams decoded at once, in all processes together."""


def small_model() -> Qwen3ForCausalLM:
    return random_qwen3(
        0.1,
        vocab_size=512,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=768,
    )


MODELS = {"lab": lab_model, "small": small_model}


def cpu_seconds(pid: int | None) -> float:
    """User and system seconds of another process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def play(engine: Engine, texts: list[np.ndarray], lengths: np.ndarray) -> tuple[float, int, dict[str, bytes]]:
    """(wall seconds, tokens, what was said)."""
    said: dict[str, bytes] = {}
    tokens = 0
    start = time.perf_counter()
    for i, (text, n) in enumerate(zip(texts, lengths)):
        path = (Node(f"p{i}", None, Segment(SegmentKind.PROMPT, text)),)
        engine.submit(Request(f"r{i}", path, Sampling(), int(n), stream_key(0, "sample", i)))
    while engine.live():
        for chunk in engine.step():
            said[chunk.request] = chunk.ids.tobytes()
            tokens += len(chunk.ids)
    return time.perf_counter() - start, tokens, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", choices=sorted(MODELS), default="lab")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    texts, lengths = prompts(), long_tail()
    make = MODELS[options.size]
    one = EmbeddedEngine(make(), EmbeddedSettings(slots=SLOTS, dtype="float32"))
    started = time.perf_counter()
    each = EmbeddedSettings(slots=-(-SLOTS // options.workers), dtype="float32")
    many = WorkerEngine(make(), each, workers=options.workers)
    start_seconds = time.perf_counter() - started
    play(one, texts, lengths)
    play(many, texts, lengths)  # warm
    load = [os.getloadavg()[0]]
    seconds: dict[str, list[float]] = {"one": [], "many": []}
    cpu: dict[str, list[float]] = {"one": [], "busiest": [], "all": []}
    differing = 0
    for _ in range(options.repeats):
        before = time.process_time()
        took, tokens, want = play(one, texts, lengths)
        seconds["one"].append(took)
        cpu["one"].append(time.process_time() - before)
        before, others = time.process_time(), [cpu_seconds(r.pid) for r in many._remotes]
        took, again, got = play(many, texts, lengths)
        seconds["many"].append(took)
        each_cpu = [time.process_time() - before, *(cpu_seconds(r.pid) - b for r, b in zip(many._remotes, others))]
        cpu["busiest"].append(max(each_cpu))
        cpu["all"].append(sum(each_cpu))
        assert tokens == again == lengths.sum()
        differing += sum(got[name] != want[name] for name in want)
    load.append(os.getloadavg()[0])
    many.close()
    pairs = [a / b for a, b in zip(seconds["one"], seconds["many"])]
    speed = {name: float(lengths.sum() / statistics.median(s)) for name, s in seconds.items()}
    result: dict[str, Any] = {
        "size": options.size,
        "workers": options.workers,
        "cores": os.cpu_count(),
        "repeats": options.repeats,
        "requests": REQUESTS,
        "tokens_per_s": speed,
        "ratio": speed["many"] / speed["one"],
        "paired": pairs,
        "cpu_seconds": {name: statistics.median(c) for name, c in cpu.items()},
        "at_most": statistics.median(cpu["one"]) / statistics.median(cpu["busiest"]),
        "load": load,
        "start_seconds": start_seconds,
        "differing_answers": differing,
        "torch": torch.__version__,
    }
    print(
        "| model | one process, tokens/s | workers | tokens/s | ratio | paired ratios | load before, after | by CPU, at most |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {options.size} | {speed['one']:,.0f} | {options.workers} | {speed['many']:,.0f} | **{result['ratio']:.2f}** | "
        f"{min(pairs):.2f} to {max(pairs):.2f} | {load[0]:.1f}, {load[1]:.1f} | {result['at_most']:.2f} |"
    )
    emit("workers", result)


if __name__ == "__main__":
    main()
