"""Gates from a recipe to a batch: a refused answer is INVALID with its reason, its reward the recipe's."""

from __future__ import annotations

import json

import pytest

from gfcr.types import Status, Task
from lifecycle_cases import batch_of, row_advantages
from text_cases import through

SCHEMA = {"type": "object", "required": ["a"]}
TOOLS = (json.dumps({"name": "add", "parameters": {"required": ["x"]}}),)
ROUNDS = [
    ("parse", {"forms": ["boxed"]}, r"\boxed{5}", "five"),
    ("sections", {}, "<think>a</think><answer>5</answer>", "5"),
    ("json-schema", {"json_schema": SCHEMA}, "```json\n{'a': 5}\n```", '{"b": 5}'),
    ("code-compiles", {}, "```python\nx = 5\n```", "```python\nx = (5\n```"),
    ("sql-parses", {}, "SELECT 5;", "SELCT 5"),
    (
        "tool-call",
        {},
        '<tool_call>{"name": "add", "arguments": {"x": 1}}</tool_call> 5',
        '<tool_call>{"name": "add"}</tool_call>',
    ),
    ("repetition", {}, "5", "Let me check that again. " * 80),
    (
        "language",
        {"language": "en"},
        "The number that was asked for is certainly 5",
        "答案是五，因为二加三等于五，这是显然的，没有疑问。",
    ),
    ("length", {"max_words": 9}, "5", "5 " * 10),
]


@pytest.mark.parametrize(("gate", "settings", "good", "bad"), ROUNDS, ids=[r[0] for r in ROUNDS])
def test_refused_answers_are_invalid_and_stand_in_the_baseline(gate: str, settings: dict, good: str, bad: str) -> None:
    task = Task("t", "q", "5", tools=TOOLS)
    made, (a, b) = through(
        task,
        [good, bad],
        gates=[{"name": gate, **settings}],
        verifiers=[{"name": "answer", "mode": "whole"}],
        admission={"drop_zero_variance": False, "invalid_reward": -1.0},
    )
    verdict = b.signals.verdicts[gate]
    assert (b.signals.status, b.signals.correct, b.signals.reward) == (Status.INVALID, False, -1.0)
    assert verdict.evidence and b.signals.primary == gate and "answer" not in b.signals.verdicts
    assert a.signals.verdicts[gate].status is Status.SCORED and a.signals.primary == "answer"
    batch = batch_of(made)
    by_id = dict(zip(batch.rollout_ids, row_advantages(batch)))
    spread = (a.signals.reward + 1.0) / 2
    assert [by_id[a.rollout.id], by_id[b.rollout.id]] == pytest.approx([spread, -spread])
