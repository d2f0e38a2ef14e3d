"""The page of one run. Invariant: everything on it is read from committed steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from gfcr.compare.plan import describe
from gfcr.recipe import Recipe, parse
from gfcr.report import bars, charts
from gfcr.report.charts import Axis, Line, axis, fraction, smooth, thousands
from gfcr.report.page import render as render_template
from gfcr.report.samples import choose
from gfcr.report.task_map import method_sections, task_map
from gfcr.report.text import toml
from gfcr.report.verifiers import verification
from gfcr.report.words import FACTS, STOPS, reason
from gfcr.run.directory import RunDirectory
from gfcr.run.outcome import outcome, why_untrained
from gfcr.run.task_history import read_history
from gfcr.types import Decision

Row = dict[str, Any]
MOST_DECISIONS = 40
"""Kinds of decisions listed."""


def render(run: RunDirectory) -> str:
    """The page as HTML."""
    stored, rows = run.recipe, run.metrics()
    recipe = parse(stored["recipe"], str(run.path))
    if not rows:
        rows = [{"step": 0, "tokens_generated": 0, "tokens_discarded": 0, "seconds": 0.0, "discarded_by_reason": {}}]
    last, history = rows[-1], read_history(run)
    decisions = list(run.decisions())
    acted = Counter((decision.slot, decision.action) for decision in decisions)
    return render_template(
        "run.html",
        name=recipe.name,
        seed=stored["seed"],
        hash=stored["hash"],
        directory=run.path.name,
        recipe=recipe,
        outcome=outcome(rows, recipe.budget.tokens),
        measured=sum(row.get("heldout_accuracy") is not None for row in rows),
        trained=sum(not row.get("untrained") for row in rows if row["step"]),
        untrained=why_untrained(rows),
        methods=describe(recipe),
        charts=_charts(rows, recipe),
        generated=bars.generated(last),
        computed=bars.computed(last),
        seconds=bars.seconds(rows),
        spent=_spent(rows),
        stops=_stops(last),
        samples=choose(run, rows),
        solutions=[method.name for method, _ in recipe.methods() if "reads solutions" in method.traits],
        privileged=sum(row.get("privileged") or 0 for row in rows),
        injected=any(row.get("injected") for row in rows),
        tasks=task_map(history),
        source={"recognised": None, "notes": 0, "first_notes": [], **(stored.get("tasks") or {})},
        sections=method_sections(recipe, history, acted),
        verification=verification(last),
        decisions=_decisions(decisions),
        toml=toml(stored["recipe"]),
        facts=[(FACTS.get(key, key), value) for key, value in run.environment.items()],
        head=run.head,
    )


def _charts(rows: Sequence[Row], recipe: Recipe) -> dict[str, Markup]:
    """All charts of the page by name."""
    budget = recipe.budget.tokens
    steps = [row for row in rows if row["step"] > 0]
    token_axis = axis(
        "generated tokens", [float(row["tokens_generated"]) for row in rows], thousands, high=float(budget) if budget else None
    )
    second_axis = axis("seconds", [row["seconds"] for row in rows])
    out = {}
    for key, x, column in (("tokens", token_axis, "tokens_generated"), ("seconds", second_axis, "seconds")):
        out[f"accuracy_{key}"] = _accuracy(rows, x, column)
        out[f"reward_{key}"] = _reward(steps, x, column)
    at = [float(row["tokens_generated"]) for row in steps]
    out["composition"] = _composition(steps, token_axis)
    lengths = [row.get("response_length_mean") for row in steps]
    tails = [row.get("response_length_p90") for row in steps]
    known = [v for v in [*lengths, *tails] if v is not None]
    out["length"] = charts.line_chart(
        "Answer length, tokens",
        token_axis,
        axis("tokens", known),
        [Line("mean", at, lengths, "c1"), Line("90th percentile", at, tails, "c1", "dashed")],
    )
    out["unjudged"] = _unjudged(steps, token_axis)
    entropy = [row.get("entropy_mean") for row in steps]
    out["entropy"] = charts.line_chart(
        "Entropy of the policy, nats per token",
        token_axis,
        axis("nats", [v for v in entropy if v is not None], fraction),
        [Line("entropy", at, entropy, "c4")],
    )
    return out


def _accuracy(rows: Sequence[Row], x: Axis, column: str) -> Markup:
    measured = [row for row in rows if row.get("heldout_accuracy") is not None]
    at = [float(row[column]) for row in measured]
    return charts.line_chart(
        f"Held-out accuracy against {x.label}",
        x,
        axis("accuracy", [], fraction, high=1.0),
        [
            Line("temperature 1", at, [row["heldout_accuracy"] for row in measured], "c1", points=True),
            Line("greedy", at, [row.get("heldout_greedy") for row in measured], "c2", points=True),
        ],
    )


def _reward(steps: Sequence[Row], x: Axis, column: str) -> Markup:
    at = [float(row[column]) for row in steps]
    raw = [row.get("reward_mean") for row in steps]
    known = [v for v in raw if v is not None]
    inside = not known or (min(known) >= 0 and max(known) <= 1)
    y = axis("reward", [], fraction, high=1.0) if inside else axis("reward", known, fraction, low=None)
    return charts.line_chart(
        f"Training reward against {x.label}",
        x,
        y,
        [Line("each step", at, raw, "c3", "thin"), Line("mean of 5 steps", at, smooth(raw, 5), "c3")],
        "On the tasks that were chosen: a selector changes this figure without the model changing.",
    )


def _composition(steps: Sequence[Row], x: Axis) -> Markup:
    known = [row for row in steps if row.get("share_mixed") is not None]
    layers = [
        (label, colour, [v or 0.0 for v in smooth([row[key] for row in known], 3)])
        for key, label, colour in (
            ("share_all_right", "all right", "right"),
            ("share_mixed", "mixed: these teach", "mixed"),
            ("share_all_wrong", "all wrong", "wrong"),
            ("share_unscored", "not judged", "muted"),
        )
        if any(row.get(key) for row in known)
    ]
    return charts.stacked_chart(
        "What groups were made of, mean of 3 steps",
        x,
        axis("share", [], fraction, high=1.0),
        [float(row["tokens_generated"]) for row in known],
        layers,
    )


def _unjudged(steps: Sequence[Row], x: Axis) -> Markup:
    """Shares of answers that nobody could judge, that a gate refused, that the length limit cut."""
    at = [float(row["tokens_generated"]) for row in steps]
    lines = [
        Line(name, at, [row.get(key) for row in steps], colour)
        for name, key, colour in (
            ("could not be judged (UNSCORABLE)", "share_unscorable", "c2"),
            ("refused by a gate (INVALID)", "share_invalid", "c4"),
            ("cut off", "share_truncated", "c6"),
        )
    ]
    known = [v for line in lines for v in line.ys if v is not None]
    return charts.line_chart(
        "Answers that were not simply judged, share of each step",
        x,
        axis("share", [*known, 0.1], fraction),
        lines,
        "What could not be judged is in no baseline and no loss; what a gate refused counts as a wrong answer.",
    )


def _spent(rows: Sequence[Row]) -> Markup:
    """Cumulative generated tokens by fate over the steps."""
    reasons = {name: n for name, n in (rows[-1]["discarded_by_reason"] or {}).items() if n}
    if len(rows) < 2 or not rows[-1]["tokens_generated"]:
        return Markup("")
    colours = bars.drop_colours(reasons)
    kept = [float(row["tokens_generated"] - sum((row["discarded_by_reason"] or {}).values())) for row in rows]
    layers = [("trained on", "c1", kept)] + [
        (reason(name), colours[name], [float((row["discarded_by_reason"] or {}).get(name, 0)) for row in rows])
        for name in reasons
    ]
    total = [float(row["tokens_generated"]) for row in rows]
    return charts.stacked_chart(
        "Generated tokens so far, by what became of them",
        axis("step", [float(rows[-1]["step"])]),
        axis("tokens", total, thousands),
        [float(row["step"]) for row in rows],
        layers,
    )


def _stops(last: Row) -> list[tuple[str, int, float, str]]:
    stops = dict(last.get("stops") or {})
    total = sum(stops.values())
    return [
        (reason(name), count, count / total, STOPS.get(name, ""))
        for name, count in sorted(stops.items(), key=lambda item: -item[1])
    ]


def _decisions(decisions: Sequence[Decision]) -> dict[str, Any]:
    """Decisions by slot, action and reason, numbers in the reasons left out."""
    counts = Counter[tuple[str, str, str]]()
    examples: dict[tuple[str, str, str], str] = {}
    for decision in decisions:
        key = (decision.slot, decision.action, re.sub(r"-?\d*\.?\d+(e[-+]?\d+)?", "#", decision.reason))
        counts[key] += 1
        examples.setdefault(key, decision.reason)
    order = {slot: i for i, slot in enumerate(dict.fromkeys(slot for slot, _, _ in counts))}
    listed = sorted(counts.most_common(MOST_DECISIONS), key=lambda item: (order[item[0][0]], -item[1]))
    return {
        "total": counts.total(),
        "hidden": max(0, len(counts) - MOST_DECISIONS),
        "rows": [(*key, number, examples[key] if examples[key] != key[2] else "") for key, number in listed],
    }
