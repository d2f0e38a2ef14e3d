"""Soft F1, R-VES and the Arctic reward: golden vectors by hand, their traps, and from recipe to batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lifecycle_cases
from gfcr.filter.verifiers.sql.metrics import arctic, r_ves, soft_f1, time_ratio
from gfcr.filter.verifiers.sql.verifier import Sql
from gfcr.types import StopReason, Task
from lifecycle_cases import batch_of, lab, row_advantages

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "sql.json").read_text())


def rows(data: list[list[Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in data]


@pytest.mark.parametrize("case", GOLDEN["soft_f1"], ids=lambda c: c["name"])
def test_soft_f1_equals_the_golden_vector(case: dict[str, Any]) -> None:
    found = soft_f1(rows(case["gold"]), rows(case["pred"]), case.get("ordered", True))
    assert found == pytest.approx(case["f1"], abs=1e-12)


@pytest.mark.parametrize("case", GOLDEN["r_ves"], ids=lambda c: str(c["ratio"]))
def test_r_ves_equals_the_golden_vector(case: dict[str, float]) -> None:
    assert r_ves(case["ratio"]) == case["reward"]


@pytest.mark.parametrize("case", GOLDEN["arctic"])
def test_arctic_equals_the_golden_vector(case: dict[str, Any]) -> None:
    assert arctic(case["correct"], case["executes"], 0.1) == case["reward"]


def test_one_run_and_equal_runs_are_timed() -> None:
    """The official filter leaves nothing of these, and scores 0."""
    assert time_ratio([2.0], [1.0]) == 2.0
    assert time_ratio([3.0] * 5, [2.0] * 5) == 1.5
    assert time_ratio([1.0] * 99 + [100.0], [1.0] * 100) == 1.0  # a run far away is left out
    assert time_ratio([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]) == 2.0


def test_soft_f1_does_not_depend_on_a_hash() -> None:
    """Rows of texts in another order: the official code's score changes with the process's hash seed."""
    gold, pred = [(f"r{i}", i) for i in range(9)], [(f"r{i}", i) for i in range(9)][::-1]
    assert soft_f1(gold, pred, ordered=False) == 1.0
    assert soft_f1(gold, pred, ordered=True) == pytest.approx(1 / 9)


SCHEMA = "CREATE TABLE t(a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z');"
SAID = {
    "a": "SELECT a FROM t",
    "b": "SELECT a FROM t WHERE a < 3",
    "c": "SELECT nothing",
    "d": "SELECT a FROM t, (SELECT 1 UNION SELECT 2) GROUP BY a",
}


@pytest.mark.parametrize("case", GOLDEN["recipes"], ids=lambda c: c["reward"])
def test_rewards_through_the_recipe_equal_the_golden_vector(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The script's letters are read as queries: `a` right, `b` other rows, `c` no query, `d` right and slow."""
    task = Task("sql", "a+?11", "SELECT a FROM t", environment={"schema_sql": SCHEMA})
    monkeypatch.setattr(lifecycle_cases, "tasks", lambda n: [task])
    plain = lifecycle_cases.decoder
    monkeypatch.setattr(lifecycle_cases, "decoder", lambda ids: SAID.get(plain(ids), plain(ids)))
    verifier = {"name": "sql", "workers": 1, "reward": case["reward"]}
    run = lab(
        lambda prompt, nth: f"={case['answers'][nth]}",
        k=len(case["answers"]),
        filter={"verifiers": [verifier], "credit": {"name": "dr-grpo"}, "gates": []},
    )
    round_ = run.drive()
    run.cascade.close()
    (group,) = round_.groups.values()
    assert [m.signals.reward for m in group.members.values()] == pytest.approx(case["rewards"])
    assert row_advantages(batch_of(round_)) == pytest.approx(np.asarray(case["rewards"]) - np.mean(case["rewards"]))


def test_speed_by_seconds_and_that_steps_repeat() -> None:
    slow = SAID["d"] + " -- " + "and again"
    task = Task("sql", "q", SAID["a"], environment={"schema_sql": SCHEMA})
    by_steps, by_seconds = (
        Sql(Sql.Settings(workers=1, reward="r-ves")),
        Sql(Sql.Settings(workers=1, reward="r-ves", ves_by="seconds", ves_runs=3)),
    )
    first, again = (by_steps.judge(task, slow, StopReason.EOS) for _ in range(2))
    assert first == again and first.correct is True and first.score is not None and first.score < 1
    assert by_steps.judge(task, SAID["a"], StopReason.EOS).score == 1.0
    timed = by_seconds.judge(task, SAID["a"], StopReason.EOS)
    assert timed.correct is True and timed.score in (0.25, 0.5, 0.75, 1.0, 1.25) and "times as fast" in timed.evidence
    assert by_seconds.judge(task, SAID["b"], StopReason.EOS).score == 0.0
    by_steps.close(), by_seconds.close()
