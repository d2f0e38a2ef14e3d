"""Golden vectors of the vision verifier, from a recipe through the scripted engine to the batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gfcr.types import Status, Task
from lifecycle_cases import batch_of, row_advantages
from text_cases import through

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "vision.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_scores_through_the_recipe_equal_the_golden_vector(case: dict) -> None:
    made, members = through(
        Task("vision", "q", case["reference"]), case["answers"], verifiers=[{"name": "vision", **case["vision"]}]
    )
    assert [m.signals.status for m in members] == [Status.SCORED] * len(members)
    assert [m.signals.reward for m in members] == pytest.approx(case["scores"], abs=1e-6)
    assert [m.signals.correct for m in members] == case["correct"]
    batch = batch_of(made)
    by_id = dict(zip(batch.rollout_ids, row_advantages(batch)))
    mean = sum(case["scores"]) / len(members)
    assert [by_id[m.rollout.id] for m in members] == pytest.approx([s - mean for s in case["scores"]], abs=1e-5)
