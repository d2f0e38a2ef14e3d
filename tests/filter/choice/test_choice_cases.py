"""The given cases of multiple choice and short words, and a recipe with `choice` down to its batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gfcr.errors import ConfigError
from gfcr.filter.verifiers.choice.rows import case
from gfcr.filter.verifiers.choice.verifier import Choice
from gfcr.types import Status, StopReason, Task
from lifecycle_cases import batch_of, row_advantages
from text_cases import through

CASES = Path(__file__).parents[2] / "cases" / "math_given.jsonl"
ALL = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
ROWS = [row for row in ALL if row["kind"] in ("multiple_choice", "text_answer") and not row.get("debatable")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_given_rows(row: dict) -> None:
    task, text = case(row)
    verdict = Choice(Choice.Settings()).judge(task, text, StopReason.EOS)
    assert verdict.correct is row["expected"], verdict.evidence


def test_no_row_of_another_kind_is_right_by_resemblance() -> None:
    """Rows that `math` is for: `choice` may miss an equal answer, but takes no wrong one for right."""
    rows = [
        row for row in ALL if row not in ROWS and row["expected"] is False and row["gold"] != "nan"
    ]  # `nan` as a text equals itself
    assert len(rows) > 200
    for row in rows:
        task, text = case(row)
        assert Choice(Choice.Settings()).judge(task, text, StopReason.EOS).correct is not True, row["id"]


def test_a_row_says_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match="no field 'gold'; it has prediction"):
        case({"prediction": "B"})
    with pytest.raises(ConfigError, match="'prediction' is int"):
        case({"gold": "B", "prediction": 3})
    task, text = case({"gold": "Paris", "prediction": None, "choices": ["London", "Paris"]})
    assert Choice(Choice.Settings()).judge(task, text, StopReason.EOS).correct is False
    task, text = case({"gold": None, "prediction": "B"})
    assert Choice(Choice.Settings()).judge(task, text, StopReason.EOS).status is Status.UNSCORABLE


def test_from_recipe_to_batch() -> None:
    task = Task("t", "Which?", "B", meta={"choices": ["London", "Paris"]})
    answers = ["The answer is (B).", "Answer: A", "It is Paris.", "A or B"]
    made, members = through(task, answers, verifiers=[{"name": "choice"}])
    assert [m.signals.correct for m in members] == [True, False, True, False]
    batch = batch_of(made)
    by_id = dict(zip(batch.rollout_ids, row_advantages(batch)))
    assert [by_id[m.rollout.id] for m in members] == pytest.approx([0.5, -0.5, 0.5, -0.5])
