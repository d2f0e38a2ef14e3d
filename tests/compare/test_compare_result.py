"""Means, best variations, differences and shares over finished runs only."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import report_cases
from gfcr.cli.tables import compare_tables
from gfcr.compare.plan import Plan, make_plan
from gfcr.compare.result import best_of, collect, write_result


def made(tmp_path: Path, finals: dict[tuple[str, str, int], float]) -> Plan:
    """A comparison whose finished runs end at these accuracies by (arm, learning rate, seed)."""
    plan = make_plan(["grpo", "informative", "oracle"], [0, 1], tmp_path / "c", vary=["train.lr=1e-4,1e-3"], budget=10000)
    plan.write()
    for cell in plan.cells():
        final = finals.get((cell.arm, cell.variation.label.split("=")[1], cell.seed))
        if final is not None:
            rows = [report_cases.row(0, 0, 0.2), report_cases.row(1, 10000, final, "budget")]
            report_cases.write_run(cell.directory, rows, cell.variation.recipe, cell.seed)
    return plan


FINALS = {
    ("grpo", "1e-4", 0): 0.3,
    ("grpo", "1e-4", 1): 0.5,
    ("grpo", "1e-3", 0): 0.2,
    ("grpo", "1e-3", 1): 0.3,
    ("informative", "1e-4", 0): 0.3,
    ("informative", "1e-4", 1): 0.3,
    ("informative", "1e-3", 0): 0.5,
    ("informative", "1e-3", 1): 0.7,
    ("oracle", "1e-4", 0): 0.7,
    ("oracle", "1e-4", 1): 0.9,
}


def test_result(tmp_path: Path) -> None:
    result = collect(made(tmp_path, FINALS))
    grpo, informative, oracle = result["arms"]
    assert [arm["best"].split("=")[1] for arm in result["arms"]] == ["1e-4", "1e-3", "1e-4"]
    assert best_of(grpo)["final"]["mean"] == pytest.approx(0.4)
    assert best_of(grpo)["auc"]["mean"] == pytest.approx((0.25 + 0.35) / 2)
    assert best_of(grpo)["discarded_share"]["mean"] == pytest.approx(0.5)
    assert (oracle["privileged"], informative["privileged"]) == (True, False)
    assert not oracle["solutions"] and not informative["solutions"]
    found = {(d["arm"], d["measure"]): d for d in result["differences"]}
    assert found["informative", "auc"]["value"] == pytest.approx(0.1)
    assert (found["informative", "auc"]["wins"], found["informative", "auc"]["n"]) == (2, 2)
    (share,) = result["gain_shares"]
    assert (share["arm"], share["of"]) == ("informative", "oracle")
    assert share["value"] == pytest.approx(0.1 / 0.2)


def test_unfinished_runs_are_listed_and_not_counted(tmp_path: Path) -> None:
    finals = {key: value for key, value in FINALS.items() if key != ("informative", "1e-3", 1)}
    plan = made(tmp_path, finals)
    missing = next(c for c in plan.cells() if (c.arm, c.variation.recipe.train.lr, c.seed) == ("informative", 1e-3, 1))
    report_cases.write_run(missing.directory, [report_cases.row(0, 0, 0.2)], missing.variation.recipe, 1)
    result = collect(plan, {})
    informative = best_of(result["arms"][1])
    assert informative["final"]["n"] == 1 and informative["final"]["sd"] is None
    assert [run["state"] for run in informative["runs"]] == ["done", "unfinished"]
    found = next(d for d in result["differences"] if d["arm"] == "informative" and d["measure"] == "auc")
    assert (found["seeds"], found["low"]) == ([0], None)


def test_compare_json_is_json(tmp_path: Path) -> None:
    plan = made(tmp_path, {})
    file = write_result(plan, collect(plan, {next(iter(plan.cells())).directory: "error: no"}))
    data = json.loads(file.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert data["arms"][0]["variations"][0]["runs"][0]["state"] == "failed"
    assert data["arms"][0]["variations"][0]["final"] == {"mean": None, "sd": None, "n": 0}


def test_without_held_out_tasks_the_table_has_the_reward_in_training(tmp_path: Path) -> None:
    plan = make_plan(["grpo", "informative"], [0], tmp_path / "c", budget=10000)
    plan.write()
    for cell, reward in zip(plan.cells(), (0.125, 0.375)):
        rows = [report_cases.row(0, 0), report_cases.row(1, 5000, reward_mean=0.0625)]
        rows.append(report_cases.row(2, 10000, ended="budget", reward_mean=reward))
        report_cases.write_run(cell.directory, rows, cell.variation.recipe, cell.seed)
    console = Console(width=140, file=StringIO())
    for table in compare_tables(collect(plan)):
        console.print(table)
    said = console.file.getvalue()
    assert "reward in training (no held-out tasks)" in said and "AUC" not in said and "T = 1" not in said
    assert ".062" in said and ".125" in said and ".375" in said and "against" not in said
