"""A small run without torch: rounds, replay, a trainer of one weight vector, checkpoints, and its resume.

python store_writer.py DIRECTORY STEPS
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from gfcr.run.directory import RunDirectory, StepRecord
from gfcr.run.seeds import generator
from gfcr.types import (
    Batch,
    Credit,
    Decision,
    Group,
    LossRole,
    Member,
    Node,
    Role,
    Rollout,
    Sampling,
    Segment,
    SegmentKind,
    StopReason,
    Task,
)

RECIPE = {"schema": 1, "name": "writer"}
ENVIRONMENT = {"device": "cpu", "threads": 1}
EVERY = 2
"""Steps between checkpoints."""


def train(weights: np.ndarray, batch: Batch, progress: float) -> np.ndarray:
    """An update in which order and number of batches show."""
    return np.float32(0.9) * weights + np.float32(progress) + batch.behaviour[:4] * batch.input_ids[:4]


def groups(step: int, weights: np.ndarray, old: Rollout | None) -> list[Group]:
    draw = generator(0, "writer", step)
    out = []
    for g in range(2):
        task = Task("t", f"task {(step + g) % 3}")
        group = Group(f"g{step}.{g}", task, step, step, 2)
        root = Node(f"p{task.id}", None, Segment(SegmentKind.PROMPT, np.arange(3)))
        for i in range(2):
            tokens = draw.integers(0, 50, 6)
            segment = Segment(
                SegmentKind.ACTION, tokens, weights[0] - draw.random(6), version=step, sampling=Sampling(1.0), role=LossRole.RL
            )
            rollout = Rollout(f"r{step}.{g}.{i}", task.id, (root, Node(f"n{step}.{g}.{i}", root.id, segment)), StopReason.EOS)
            group.members[rollout.id] = Member(rollout, credit=Credit(float(draw.normal())))
        if old is not None:
            group.members[old.id] = Member(old, Role.REPLAYED, source=old.id)
        out.append(group)
    return out


def batch(step: int, found: list[Group]) -> Batch:
    paths = [m.rollout.path[1].segment for g in found for m in g.members.values()]
    n = sum(map(len, paths))
    zeros = np.zeros(n, np.float32)
    return Batch(
        offsets=np.arange(len(paths) + 1) * 6,
        input_ids=np.concatenate([s.ids for s in paths]),
        rl_mask=np.ones(n, bool),
        advantages=zeros,
        rl_weights=zeros,
        ce_weights=zeros,
        behaviour=np.concatenate([s.logprobs for s in paths]),
        proximal=zeros,
        reference=zeros,
        temperature=zeros + 1,
        versions=np.full(n, step, np.int32),
        groups=np.zeros(len(paths), np.int32),
        group_ids=("g",),
        rollout_ids=tuple(map(str, range(len(paths)))),
    )


def start(path: Path) -> tuple[RunDirectory, int, np.ndarray, list[str]]:
    """The run in `path`, new or resumed: (directory, next step, weights, ids in the replay store)."""
    weights, kept, step = np.arange(4, dtype=np.float32), [], 0
    if not RunDirectory.exists(path):
        return RunDirectory.create(path, RECIPE, ENVIRONMENT), step, weights, kept
    run = RunDirectory.open(path, RECIPE)
    run.check_environment(ENVIRONMENT)
    if (point := run.resume_point()) is not None:
        if point.checkpoint is not None:
            weights = load_file(point.checkpoint / "model.safetensors")["w"]
        for found, progress in point.batches:
            weights = train(weights, found, progress)
        assert np.array_equal(weights, point.state["weights"]), "replayed batches give other weights"
        step, kept = point.step + 1, point.state["kept"]
    return run, step, weights, kept


def go(path: Path, steps: int) -> None:
    """Run to `steps` committed steps."""
    run, step, weights, kept = start(path)
    with run:
        while step < steps:
            old = run.rollout(kept[step % len(kept)]) if kept else None
            found = groups(step, weights, old)
            made = batch(step, found) if step % 4 != 3 else None
            if made is not None:
                weights = train(weights, made, step / steps)
            kept = [*kept, next(iter(found[0].members))][-3:]
            run.commit(record(step, steps, found, made, weights, kept))
            step += 1


def record(step: int, steps: int, found: list[Group], made: Batch | None, weights: np.ndarray, kept: list[str]) -> StepRecord:
    def save(folder: Path) -> Any:
        save_file({"w": weights}, folder / "model.safetensors")

    return StepRecord(
        step,
        step,
        step + 1,
        found,
        made,
        step / steps,
        [Decision("select", f"g{step}.0", "open", "due")],
        {"reward": step / 7, "loss": float("nan")},
        {"weights": weights, "kept": kept},
        save if step % EVERY == 0 else None,
    )


def run_of(steps: int, path: Path) -> Path:
    go(path, steps)
    return path


def update(path: Path, statement: str) -> None:
    db = sqlite3.connect(path / "run.sqlite")
    db.execute(statement)
    db.commit()
    db.close()


def differences(path: Path) -> list[str]:
    with RunDirectory.read(path) as run:
        return [str(d) for d in run.verify()]


if __name__ == "__main__":
    go(Path(sys.argv[1]), int(sys.argv[2]))
