"""CPU cost of committing scripted rollouts to a run directory; prints JSON.

    python -m bench store [rollouts ...]      default 1000 3000 10000; needs no torch

CPU is `time.process_time` of `commit` alone (encoding, hashing, writing, SQLite, fsync, derived files); wall time includes
waiting for the disk. The best commit stands for a quiet machine: what other processes do to caches and cores counts as CPU
time too.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.record import emit
from gfcr.run.directory import RunDirectory, StepRecord
from gfcr.types import (
    Batch,
    Cost,
    Credit,
    Group,
    GroupState,
    LossRole,
    Member,
    Node,
    Rollout,
    Sampling,
    Segment,
    SegmentKind,
    Signals,
    Status,
    StopReason,
    Task,
    TokenSource,
    Verdict,
    derive_id,
)

K, TOKENS, PROMPT = 8, 64, 20


def step_groups(step: int, rollouts: int) -> list[Group]:
    """Groups of K rollouts of 64 tokens as the lab makes them: a shared prompt, one action with entropy, one verdict."""
    rng = np.random.default_rng(step)
    law = Sampling(1.0)
    out = []
    for g in range(rollouts // K):
        task = Task("programs", f"{step}:{g}?", reference="12", category="L4", meta={"length": 4})
        group = Group(derive_id("group", step, g), task, step, step, K, 1, GroupState.CLOSED, "stage")
        root = Node(derive_id("prompt", task.id), None, Segment(SegmentKind.PROMPT, rng.integers(0, 37, PROMPT, np.int32)))
        for i in range(K):
            key = derive_id("rollout", group.id, i)
            segment = Segment(
                SegmentKind.ACTION,
                rng.integers(0, 37, TOKENS, np.int32),
                -rng.random(TOKENS, np.float32),
                author="policy",
                version=step,
                sampling=law,
                role=LossRole.RL,
                source=TokenSource.SAMPLED,
                tracks={"entropy": rng.random(TOKENS, np.float32)},
            )
            rollout = Rollout(
                key,
                task.id,
                (root, Node(derive_id(key), root.id, segment)),
                StopReason.EOS,
                seed=i,
                cost=Cost(generated=TOKENS, prefilled=PROMPT, wall_seconds=0.01 * i),
            )
            right = bool(rng.random() < 0.5)
            verdict = Verdict("programs", "1", Status.SCORED, float(right), right, "final pair 12, expected 34", 1e-4)
            signals = Signals({"programs": verdict}, "programs", {"programs": float(right)}, float(right))
            group.members[key] = Member(rollout, signals=signals, credit=Credit(float(rng.normal())))
        out.append(group)
    return out


def step_batch(step: int, groups: list[Group]) -> Batch:
    members = [m for g in groups for m in g.members.values()]
    row, n = PROMPT + TOKENS, len(members) * (PROMPT + TOKENS)
    acted = np.tile(np.arange(row) >= PROMPT, len(members))
    nan = np.full(n, np.nan, np.float32)

    def spread(values: list[float]) -> np.ndarray:
        return np.where(acted, np.repeat(np.float32(values), row), np.float32(np.nan))

    return Batch(
        offsets=np.arange(len(members) + 1) * row,
        input_ids=np.concatenate([n.segment.ids for m in members for n in m.rollout.path]),
        rl_mask=acted,
        advantages=spread([m.credit.advantage for m in members]),
        rl_weights=spread([1.0] * len(members)),
        ce_weights=np.zeros(n, np.float32),
        behaviour=np.concatenate([np.concatenate([nan[:PROMPT], m.rollout.path[1].segment.logprobs]) for m in members]),
        proximal=nan,
        reference=nan,
        temperature=spread([1.0] * len(members)),
        versions=np.where(acted, np.int32(step), np.int32(-1)),
        groups=np.repeat(np.arange(len(groups), dtype=np.int32), K),
        group_ids=tuple(g.id for g in groups),
        rollout_ids=tuple(m.rollout.id for m in members),
        round=step,
        version=step,
    )


def measure(total: int, per_step: int) -> dict[str, float]:
    """One run of `total` rollouts, `per_step` a commit."""
    cpu, wall, best = 0.0, 0.0, float("inf")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        with RunDirectory.create(path, {"bench": total}) as run:
            for step in range(total // per_step):
                groups = step_groups(step, per_step)
                record = StepRecord(
                    step,
                    step,
                    step,
                    groups,
                    step_batch(step, groups),
                    metrics={"reward": 0.5},
                    state={"posterior": np.zeros((4096, 2))},
                )
                a, b = time.process_time(), time.perf_counter()
                run.commit(record)
                spent = time.process_time() - a
                cpu, wall, best = cpu + spent, wall + time.perf_counter() - b, min(best, spent / per_step)
            done = (step + 1) * per_step
        size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return {
        "rollouts": done,
        "per_commit": per_step,
        "cpu_us_per_rollout": round(cpu / done * 1e6, 1),
        "cpu_us_best_commit": round(best * 1e6, 1),
        "wall_us_per_rollout": round(wall / done * 1e6, 1),
        "bytes_per_rollout": round(size / done),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


if __name__ == "__main__":
    totals = [int(text) for text in sys.argv[1:]] or [1000, 3000, 10000]
    measure(256, 128)  # warm up
    emit("store", {"rows": [measure(total, per_step) for total in totals for per_step in (128, 1000) if per_step <= total]})
