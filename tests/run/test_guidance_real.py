"""Guidance in the real loop, small: it trains, names its privileged use, and cut and resumed it is the run that was never cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from bench import resume

from gfcr.engine.contract import ScoreItem
from gfcr.recipe import load
from gfcr.report.run_page import render
from gfcr.run.directory import RunDirectory
from gfcr.run.session import Session
from gfcr.types import Batch, Sampling

SMALL = (
    "control.groups=3",
    "generate.max_tokens=40",
    "budget.tokens=none",
    "budget.steps=3",
    "evaluate.every_tokens=none",
    "evaluate.samples=1",
    "evaluate.limit=4",
    "evaluate.greedy=false",
    "run.checkpoint_every=3",
)
STEPS = "steps = '[a-p](?=[-+*s][0-6])|#'"
TEXT = "form = 'text', say = '{prompt}/{hint}', context = 'plain'"
RUNS = {
    "growing hints": ("hint", f"generate.seed={{name = 'hint', n = 2, {STEPS}, strength = {{law = 'grow', low = 0.2}}}}"),
    "hints left out of the context": ("hint", f"generate.seed={{name = 'hint', {STEPS}, {TEXT}}}"),
    "Guide-GRPO": ("hint", f"generate.seed={{name = 'hint', {STEPS}, {TEXT}, ratio = 'guided'}}"),
    "LUFFY": ("reference", "loss.demo_shaping=0.1"),
    "second attempts": ("reflect",),
    "supervised control": ("sft_reference",),
}


class Cut(Exception):
    """Ends a run after a commit."""


def create(path: Path, name: str) -> Session:
    torch.set_num_threads(1)
    recipe, *overrides = RUNS[name]
    return Session.create(load(recipe, [*SMALL, "generate.topology.k=4", *overrides]), 3, path)


def scored(session: Session, batch: Batch) -> np.ndarray:
    """float32[N]: the engine's log-probabilities of a batch's rows as they are trained."""
    spans = [slice(*batch.offsets[row : row + 2]) for row in range(len(batch))]
    items = []
    for row, span in enumerate(spans):
        own = np.flatnonzero(batch.rl_mask[span])
        items.append(ScoreItem(str(row), batch.input_ids[span], ((int(own[0]), int(own[-1]) + 1, Sampling()),)))
    return np.concatenate([score.logprobs for score in session.parts.engine.score(items)])


@pytest.mark.parametrize("name", RUNS)
def test_it_trains_and_resumes_bit_equal(tmp_path: Path, name: str) -> None:
    whole = create(tmp_path / "whole", name)
    seen: list[tuple[Batch, np.ndarray]] = []
    step = whole.parts.trainer.step

    def watched(batch: Batch, progress: float = 0.0):
        trainer = whole.parts.trainer
        now = trainer._logps(trainer.policy, batch, batch.rl_mask)
        seen.append((batch, now))
        if name == "hints left out of the context":
            assert np.abs(scored(whole, batch) - now)[batch.rl_mask].max() < 1e-4
        return step(batch, progress)

    whole.parts.trainer.step = watched  # type: ignore[method-assign]
    assert whole.run() == "steps"
    for batch, now in seen:  # what was sampled under the context it is trained in
        known = batch.rl_mask & ~np.isnan(batch.behaviour)
        assert np.abs(now - batch.behaviour)[known].max(initial=0.0) < 1e-4
    with RunDirectory.read(tmp_path / "whole") as run:
        rows = run.metrics()
        page = render(run)
    used = sum(row.get("privileged") or 0 for row in rows)
    assert (used > 0) == (name != "second attempts") == ("reads the tasks" in page)
    cut = create(tmp_path / "cut", name)

    def stop(row: dict) -> None:
        if row["step"] == 2:
            raise Cut

    cut.progress = stop
    with pytest.raises(Cut):
        cut.run()
    cut.close()
    again = Session.resume(tmp_path / "cut")
    assert again.run() == "steps"
    if name == "growing hints":
        assert again.parts.slots.seed.state_dict()["known"], "strengths are remembered"
    for session in (whole, again):
        session.close()
    assert resume.differences(tmp_path / "cut", resume.content(tmp_path / "whole")) == []
