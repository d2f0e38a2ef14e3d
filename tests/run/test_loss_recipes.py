"""The shipped recipes of every loss: a few real steps, cut and resumed bit-equal."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from bench import resume

from gfcr.recipe import load
from gfcr.run.directory import RunDirectory
from gfcr.run.session import Session

SMALL = (
    "control.groups=8",
    "generate.max_tokens=40",
    "budget.tokens=none",
    "budget.steps=4",
    "evaluate.every_tokens=none",
    "evaluate.samples=1",
    "evaluate.limit=4",
    "evaluate.greedy=false",
    "run.checkpoint_every=3",
)
RECIPES = {
    "ppo": ("control.groups=24", "train.epochs=2"),
    "cispo": ("generate.topology.k=4",),
    "gspo": ("generate.topology.k=4",),
    "dpo": ("generate.topology.k=4", "train.minibatches=2", "filter.credit.nll=0.1"),
    "rft": ("generate.topology.k=4",),
}
FIGURES = {
    "ppo": {"value_loss", "explained_variance", "ratio", "kl", "entropy", "clip_high", "clip_low"},
    "cispo": {"ratio", "kl", "entropy", "clip_high", "clip_low"},
    "gspo": {"ratio", "kl", "entropy", "clip_high", "clip_low"},
    "dpo": {"pairs", "pair_accuracy", "pair_margin", "nll"},
    "rft": {"nll"},
}
KINDS = set().union(*FIGURES.values())


PAIRS = (
    "loss.kind=dpo",
    "filter.credit={name='pairs', rule='cross', most=4, nll=0.1}",
    "filter.admission.drop_zero_variance=false",
    "replay.augment=none",
    "replay.store=none",
    "control.allocate=uniform",
    "generate.topology.k=6",
    "train.kl=0",
    "train.minibatches=2",
    "train.epochs=2",
    "run.checkpoint_every=3",
)


def test_pairs_in_minibatches_survive_kill_9_in_the_middle(tmp_path: Path) -> None:
    """The frozen reference, the optimiser between two checkpoints and the shuffle of pairs come back to the bit."""
    overrides = [*resume.small(tmp_path), *PAIRS]
    assert resume.finish(tmp_path / "whole", overrides) == 0
    expected = resume.content(tmp_path / "whole")
    with RunDirectory.read(tmp_path / "whole") as whole:
        assert sum(row.get("train_pairs") or 0 for row in whole.metrics()) > 8
        assert max(row.get("train_updates") or 0 for row in whole.metrics()) >= 4
    kills = []
    for step in (2, 4):
        process = resume.start(tmp_path / "cut", overrides)
        while process.exitcode is None and resume.committed(tmp_path / "cut") < step:
            process.join(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills.append((process.exitcode, resume.committed(tmp_path / "cut")))
    assert [code for code, _ in kills] == [-9, -9] and 2 <= kills[0][1] < 7
    assert resume.finish(tmp_path / "cut", overrides) == 0
    assert resume.differences(tmp_path / "cut", expected) == []


class Cut(Exception):
    """Raised after a commit."""


def run(name: str, path: Path, cut: int | None = None) -> list[dict[str, Any]]:
    """The metrics rows of a small run, up to and with step `cut`."""
    rows: list[dict[str, Any]] = []

    def seen(row: dict[str, Any]) -> None:
        rows.append(row)
        if row["step"] == cut:
            raise Cut

    if RunDirectory.exists(path):
        session = Session.resume(path, progress=seen)
    else:
        session = Session.create(load(name, [*SMALL, *RECIPES[name]]), 1, path, progress=seen)
    with suppress(Cut):
        session.run()
    return rows


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_its_loss_and_resumes_bit_equal(name: str, tmp_path: Path) -> None:
    import torch

    torch.set_num_threads(1)
    rows = run(name, tmp_path / "whole")
    trained = [row for row in rows if row.get("train_updates")]
    assert len(rows) == 5 and len(trained) >= 3 and rows[-1]["ended"] == "steps"
    last = trained[-1]
    assert {figure for figure in KINDS if last[f"train_{figure}"] is not None} == FIGURES[name]
    assert all(row["train_skipped"] is None and row["train_grad_norm"] > 0 for row in trained)
    expected = resume.content(tmp_path / "whole")
    assert [row["step"] for row in run(name, tmp_path / "cut", cut=2)] == [0, 1, 2]
    assert [row["step"] for row in run(name, tmp_path / "cut")] == [3, 4]  # from the checkpoint of step 0 and two batches
    assert resume.differences(tmp_path / "cut", expected) == []
