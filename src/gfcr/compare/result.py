"""What a comparison found, as JSON data: read from the run directories, whatever their state.

Invariants: only finished runs enter a mean or a difference; unfinished and failed ones are listed with their state; the best
variation of an arm is the one with the highest mean AUC, and every variation is listed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gfcr import __version__
from gfcr.compare.plan import Arm, Cell, Plan, Variation, describe
from gfcr.compare.statistics import Spread, gain_share, paired_difference, spread
from gfcr.run.directory import RunDirectory
from gfcr.run.outcome import outcome

RESULT = "compare.json"
MEASURES = {
    "auc": "mean accuracy over the budget",
    "final": "final accuracy, temperature 1",
    "final_greedy": "final accuracy, greedy",
}
SUMMARISED = ("final", "final_greedy", "auc", "reward_start", "reward_final", "tokens", "discarded_share", "seconds", "steps")
_CURVE = ("tokens_generated", "seconds", "heldout_accuracy", "heldout_greedy")
_LEDGER = (
    "tokens_generated",
    "tokens_discarded",
    "tokens_prefilled",
    "tokens_cached",
    "tokens_scored",
    "tokens_trained",
    "tokens_evaluated",
    "discarded_by_reason",
)


def collect(plan: Plan, notes: Mapping[Path, str] | None = None) -> dict[str, Any]:
    """The comparison's result. `notes`: by run directory, what a failed child said last."""
    runs = {cell.directory: _read(plan, cell, (notes or {}).get(cell.directory, "")) for cell in plan.cells()}
    by_variation: dict[Path, list[dict[str, Any]]] = {}
    for cell in plan.cells():
        by_variation.setdefault(cell.variation.file, []).append(runs[cell.directory])
    arms = [_arm(arm, by_variation) for arm in plan.arms]
    return {
        "schema": 1,
        "gfcr": __version__,
        "budget": plan.budget,
        "seeds": list(plan.seeds),
        "first": arms[0]["name"],
        "tasks": plan.arms[0].variations[0].recipe.tasks.model_dump(mode="json"),
        "arms": arms,
        "differences": _differences(arms),
        "gain_shares": _gain_shares(arms),
    }


def write_result(plan: Plan, result: Mapping[str, Any]) -> Path:
    """Write compare.json, whole or not at all."""
    file = plan.out / RESULT
    part = file.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(file)
    return file


def best_of(arm: Mapping[str, Any]) -> dict[str, Any]:
    """An arm's best variation."""
    return next(v for v in arm["variations"] if v["label"] == arm["best"])


def finished_runs(variation: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Finished runs by seed."""
    return {run["seed"]: run for run in variation["runs"] if run["state"] == "done"}


def _read(plan: Plan, cell: Cell, note: str) -> dict[str, Any]:
    """One run as JSON data."""
    rows: list[dict[str, Any]] = []
    environment: dict[str, Any] = {}
    if RunDirectory.exists(cell.directory):
        with RunDirectory.read(cell.directory) as run:
            rows, environment = run.metrics(), run.environment
    found = outcome(rows, plan.budget)
    state = "done" if found.ended else "failed" if note else "unfinished" if rows else "not started"
    last = rows[-1] if rows else {}
    return {
        "seed": cell.seed,
        "directory": str(cell.directory.relative_to(plan.out)),
        "state": state,
        "note": note,
        **found.as_json(),
        "curve": [[row[key] for key in _CURVE] for row in rows if row.get("heldout_accuracy") is not None],
        "ledger": {key: last.get(key) for key in _LEDGER},
        "environment": environment,
    }


def _arm(arm: Arm, runs: Mapping[Path, list[dict[str, Any]]]) -> dict[str, Any]:
    found = [_variation(variation, runs[variation.file]) for variation in arm.variations]
    measured = [v for v in found if v["auc"]["mean"] is not None]
    best = max(measured, key=lambda v: v["auc"]["mean"]) if measured else found[0]
    return {
        "name": arm.name,
        "privileged": arm.privileged,
        "solutions": arm.solutions,
        "methods": describe(arm.variations[0].recipe),
        "best": best["label"],
        "variations": found,
    }


def _variation(variation: Variation, runs: list[dict[str, Any]]) -> dict[str, Any]:
    done = [run for run in runs if run["state"] == "done"]
    return {
        "label": variation.label,
        "hash": variation.recipe.hash(),
        "lr": variation.recipe.train.lr,
        **{name: asdict(_spread(done, name)) for name in SUMMARISED},
        "start": asdict(_spread(done, "start")),
        "runs": runs,
    }


def _spread(runs: list[dict[str, Any]], name: str) -> Spread:
    return spread([run[name] for run in runs])


def _paired(arms: list[dict[str, Any]], measure: str) -> tuple[list[int], list[list[float]]]:
    """(seeds that every arm finished, the measure per arm and seed)."""
    found = [
        {seed: run[measure] for seed, run in finished_runs(best_of(arm)).items() if run[measure] is not None} for arm in arms
    ]
    seeds = sorted(set.intersection(*map(set, found)))
    return seeds, [[values[seed] for seed in seeds] for values in found]


def _differences(arms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each arm's best variation against the first arm's, seed by seed."""
    out = []
    for arm in arms[1:]:
        for measure in MEASURES:
            seeds, (base, ours) = _paired([arms[0], arm], measure)
            out.append(
                {
                    "arm": arm["name"],
                    "against": arms[0]["name"],
                    "measure": measure,
                    "seeds": seeds,
                    "wins": sum(a > b for a, b in zip(ours, base)),
                    **asdict(paired_difference(ours, base)),
                }
            )
    return out


def _gain_shares(arms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each arm recovers of a yardstick's gain in AUC over the first arm."""
    out = []
    for yardstick in arms[1:]:
        if not yardstick["privileged"]:
            continue
        for arm in arms[1:]:
            if arm is yardstick or arm["privileged"]:
                continue
            seeds, (base, ours, best) = _paired([arms[0], arm, yardstick], "auc")
            out.append(
                {
                    "arm": arm["name"],
                    "over": arms[0]["name"],
                    "of": yardstick["name"],
                    "seeds": seeds,
                    **asdict(gain_share(base, ours, best)),
                }
            )
    return out
