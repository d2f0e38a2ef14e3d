"""CPU time of a training step against bare torch doing the same mathematics.

    python -m bench train_step [rows updates] [--quick]      default 128 1, 128 2, 512 1; --quick: 128 1, few turns

Bare torch: padded rows through the same Hugging Face model, whole logits, one loss, backward, clip, AdamW; once with one padded
batch per update as most people write it, once with the same length-sorted cuts as ours (what our own work costs). All train
the lab-size model on the same rows (lengths drawn like the lab's: prompts of 6 to 20 tokens, answers of 5 to 64). Process
CPU time, one thread, alternating, median; read it on an idle core.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from bench.record import emit
from gfcr.train.micro import split_lengths
from gfcr.train.settings import TrainSettings
from gfcr.train.trainer import Trainer
from gfcr.types.batch import Batch

VOCAB = 37


def lab_model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCAB,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=16,
            intermediate_size=128,
            tie_word_embeddings=True,
            max_position_embeddings=256,
            initializer_range=0.1,
        )
    )


def lab_batch(rows: int) -> Batch:
    rng = np.random.default_rng(0)
    prompts = rng.integers(6, 21, rows)
    lengths = prompts + np.clip(rng.gamma(4.0, 6.0, rows), 5, 64).astype(int)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    n = int(offsets[-1])
    local = np.arange(n) - np.repeat(offsets[:-1], lengths)
    rl = local >= np.repeat(prompts, lengths)
    nan = np.full(n, np.nan, np.float32)
    return Batch(
        offsets=offsets,
        input_ids=rng.integers(3, VOCAB, n).astype(np.int32),
        rl_mask=rl,
        advantages=np.where(rl, np.repeat(rng.normal(size=rows), lengths), np.nan).astype(np.float32),
        rl_weights=np.where(rl, 1.0, np.nan).astype(np.float32),
        ce_weights=np.zeros(n, np.float32),
        behaviour=np.where(rl, -3.0, np.nan).astype(np.float32),
        proximal=nan,
        reference=nan,
        temperature=np.where(rl, 1.0, np.nan).astype(np.float32),
        versions=np.zeros(n, np.int32),
        groups=np.zeros(rows, np.int32),
        group_ids=("g",),
        rollout_ids=tuple(f"r{i}" for i in range(rows)),
    )


def bare_step(batch: Batch, updates: int, cut: bool) -> Callable[[], None]:
    """The step a careful person would write by hand, with length-sorted micro-batches or without; returns a function that makes
    one."""
    model = lab_model().eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    parts = []
    for rows in np.array_split(np.arange(len(batch)), updates):
        order = rows[np.argsort(-batch.lengths[rows], kind="stable")]
        cuts = split_lengths(batch.lengths[order], 16384) if cut else [(0, len(order))]
        weights = batch.rows(order).token_weights()
        for number, (first, last) in enumerate(cuts):
            part = batch.rows(order[first:last])
            inside = np.arange(int(part.lengths.max())) < part.lengths[:, None]
            w, weights = weights[: len(part.input_ids)], weights[len(part.input_ids) :]

            def pad(values: np.ndarray, inside: np.ndarray = inside) -> torch.Tensor:
                out = np.zeros(inside.shape, values.dtype)
                out[inside] = values
                return torch.as_tensor(out)

            parts.append(
                (
                    pad(part.input_ids.astype(np.int64)),
                    torch.as_tensor(inside.astype(np.int64)),
                    pad(np.nan_to_num(part.advantages)),
                    pad(w.astype(np.float32)),
                    number == len(cuts) - 1,
                )
            )

    def log_probs(ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1].float()
        logs = torch.log_softmax(logits, -1)
        with torch.no_grad():
            entropy = -(logs.exp() * logs).sum(-1)
        return logs.gather(2, ids[:, 1:, None])[..., 0], entropy

    def step() -> None:
        with torch.no_grad():
            olds = [log_probs(ids, mask)[0] if updates > 1 else None for ids, mask, *_ in parts]
        for (ids, mask, advantages, weights, last), old in zip(parts, olds):
            logp, _ = log_probs(ids, mask)
            ratio = (logp - (logp.detach() if old is None else old)).clamp(-20, 20).exp()
            a = advantages[:, 1:]
            (weights[:, 1:] * torch.maximum(-ratio * a, -ratio.clamp(0.8, 1.28) * a)).sum().backward()
            if last:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    return step


def measure(rows: int, updates: int, turns: int) -> dict[str, float]:
    """Median CPU milliseconds of a step, ours and both bare ones, alternating."""
    batch = lab_batch(rows)
    trainer = Trainer(lab_model(), TrainSettings(minibatches=updates))
    calls: dict[str, Callable[[], object]] = {
        "gfcr": lambda: trainer.step(batch),
        "bare": bare_step(batch, updates, False),
        "cut": bare_step(batch, updates, True),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 2):
        for name, call in calls.items():
            began = time.process_time()
            call()
            if turn >= 2:
                times[name].append(1000 * (time.process_time() - began))
    ours, bare, cut = (statistics.median(times[name]) for name in calls)
    print(
        f"{rows} rows, {len(batch.input_ids)} tokens, {updates} update(s): gfcr {ours:.1f} ms; bare torch {bare:.1f} ms"
        f" (ratio {ours / bare:.2f}), length-sorted {cut:.1f} ms (ratio {ours / cut:.2f})",
        flush=True,
    )
    found = {"rows": rows, "updates": updates, "tokens": len(batch.input_ids), "gfcr_ms": ours, "bare_ms": bare, "cut_ms": cut}
    return {**found, "ratio": ours / bare, "ratio_cut": ours / cut}


def main() -> None:
    torch.set_num_threads(1)
    numbers = [int(a) for a in sys.argv[1:] if not a.startswith("-")]
    quick = "--quick" in sys.argv
    pairs = [(numbers[0], [*numbers, 1][1])] if numbers else [(128, 1)] if quick else [(128, 1), (128, 2), (512, 1)]
    emit("train_step", {"cases": [measure(rows, updates, 5 if quick else 15) for rows, updates in pairs]})


if __name__ == "__main__":
    main()
