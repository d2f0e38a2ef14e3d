"""The page of a comparison. Invariant: means and intervals are those of compare.json; each run's own curve lies beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from gfcr.compare.result import MEASURES, best_of, finished_runs
from gfcr.report import bars, charts
from gfcr.report.charts import Line, axis, fraction, thousands
from gfcr.report.page import render as render_template
from gfcr.report.words import DROPS

ACCURACY, GREEDY = 2, 3
"""Columns of a run's curve; 0 are tokens, 1 seconds."""
GRID = 121
"""Points of a mean curve."""


def render(result: Mapping[str, Any]) -> str:
    """The page as HTML."""
    arms = result["arms"]
    colours = {arm["name"]: f"c{i % 8 + 1}" for i, arm in enumerate(arms)}
    runs = {arm["name"]: [run for _, run in sorted(finished_runs(best_of(arm)).items())] for arm in arms}
    unfinished = [
        (arm["name"], v["label"], run) for arm in arms for v in arm["variations"] for run in v["runs"] if run["state"] != "done"
    ]
    environments = [run["environment"] for found in runs.values() for run in found if run["environment"]]
    return render_template(
        "compare.html",
        result=result,
        arms=arms,
        colours=colours,
        best={arm["name"]: best_of(arm) for arm in arms},
        charts={
            "tokens": _curves(runs, colours, 0, ACCURACY, "Held-out accuracy at temperature 1", result["budget"], charts.WIDE),
            "greedy": _curves(runs, colours, 0, GREEDY, "Greedy, against generated tokens", result["budget"]),
            "seconds": _curves(runs, colours, 1, ACCURACY, "Temperature 1, against seconds", None),
        },
        intervals=_intervals(result, colours),
        differences={(d["arm"], d["measure"]): d for d in result["differences"]},
        varied=any(len(arm["variations"]) > 1 for arm in arms),
        ledgers=_ledgers(arms),
        unfinished=unfinished,
        seeds=sorted({run["seed"] for found in runs.values() for run in found}),
        methods=_methods(arms),
        facts=environments[0] if environments else {},
    )


def _curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    colours: Mapping[str, str],
    across: int,
    up: int,
    title: str,
    budget: int | None,
    canvas: charts.Canvas = charts.SMALL,
) -> Markup:
    """A thin line per seed, a thick one for the mean."""
    points = {
        name: [[(float(p[across]), p[up]) for p in run["curve"] if p[up] is not None] for run in found]
        for name, found in runs.items()
    }
    points = {name: [curve for curve in curves if curve] for name, curves in points.items()}
    furthest = [curve[-1][0] for curves in points.values() for curve in curves]
    if not furthest:
        return Markup("")
    over = axis(
        "generated tokens" if across == 0 else "seconds",
        furthest,
        thousands if across == 0 else charts.plain,
        high=float(budget) if budget else None,
    )
    lines = []
    for name, curves in points.items():
        if len(curves) > 1:
            lines += [
                Line(name, [x for x, _ in curve], [y for _, y in curve], colours[name], "thin", hover=False) for curve in curves
            ]
        if curves:
            grid, mean = mean_curve(curves, float(budget) if budget else None)
            lines.append(Line(name, grid, mean, colours[name]))
    return charts.line_chart(
        title,
        over,
        axis("accuracy", [], fraction, high=1.0),
        lines,
        "Thick: mean over seeds. Thin: each seed." if any(len(c) > 1 for c in points.values()) else "",
        canvas,
    )


def mean_curve(curves: Sequence[Sequence[tuple[float, float]]], budget: float | None) -> tuple[list[float], list[float | None]]:
    """Mean over curves on a common grid: straight lines between evaluations, last values held to the budget; without one the
    grid ends where the first curve does."""
    end = budget if budget is not None else min(curve[-1][0] for curve in curves)
    grid = np.linspace(max(curve[0][0] for curve in curves), end, GRID)
    values = np.mean([np.interp(grid, *np.array(curve, float).T) for curve in curves], axis=0)
    return grid.tolist(), values.tolist()


def _intervals(result: Mapping[str, Any], colours: Mapping[str, str]) -> Markup:
    """Every arm's differences to the first, by measure; empty for one arm."""
    blocks = [
        (
            title,
            [
                (d["arm"], colours[d["arm"]], d["value"], d["low"], d["high"])
                for d in result["differences"]
                if d["measure"] == measure
            ],
        )
        for measure, title in MEASURES.items()
    ]
    return charts.interval_chart(
        f"Differences to {result['first']}, paired by seed, with 95 % intervals", blocks, f"difference to {result['first']}"
    )


def _ledgers(arms: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[bars.Part], float]]:
    """Per arm, the fate of its generated tokens summed over its best variation's finished runs."""
    rows: list[tuple[str, dict[str, Any]]] = []
    for arm in arms:
        ledgers = [run["ledger"] for run in finished_runs(best_of(arm)).values()]
        reasons = {
            name: sum((entry["discarded_by_reason"] or {}).get(name, 0) for entry in ledgers)
            for name in dict.fromkeys(n for entry in ledgers for n in (entry["discarded_by_reason"] or {}))
        }
        rows.append(
            (
                arm["name"],
                {"tokens_generated": sum(entry["tokens_generated"] or 0 for entry in ledgers), "discarded_by_reason": reasons},
            )
        )
    present = {name for _, row in rows for name in row["discarded_by_reason"]}
    palette = bars.drop_colours(dict.fromkeys([*(n for n in DROPS if n in present), *sorted(present - set(DROPS))]))
    return [(name, bars.generated(row, palette), row["tokens_generated"]) for name, row in rows]


def _methods(arms: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """(slot, each arm's methods), for slots in which arms differ or that any fills."""
    slots = dict.fromkeys(m["slot"] for arm in arms for m in arm["methods"])
    return [(slot, ["; ".join(_call(m) for m in arm["methods"] if m["slot"] == slot) for arm in arms]) for slot in slots]


def _call(found: Mapping[str, Any]) -> str:
    """`name(setting=value, ...)`."""
    inner = ", ".join(f"{k}={v}" for k, v in found["settings"].items())
    return f"{found['name']}({inner})" if inner else str(found["name"])
