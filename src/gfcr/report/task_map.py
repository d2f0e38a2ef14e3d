"""The task map and the methods' own sections of a run's page. Invariant: everything on them is counted from committed rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gfcr.functions import short_name
from gfcr.recipe import Recipe
from gfcr.registry import Slot
from gfcr.report.bars import Part
from gfcr.report.samples import prompt_text
from gfcr.report.words import KINDS
from gfcr.run.task_history import History, Kind
from gfcr.types import Status

LISTED = 12
"""Tasks named on the page: those that took the most tokens."""
KIND_COLOURS = {Kind.EASY: "right", Kind.BOUNDARY: "mixed", Kind.HARD: "c4", Kind.UNSOLVED: "wrong", Kind.UNJUDGED: "muted"}
_JUDGES = (Slot.GATE, Slot.VERIFIER)


def task_map(history: History) -> dict[str, Any]:
    """Tasks by kind, as bars and with the tokens each kind took, and the dearest tasks."""
    met = [task for task in history.tasks.values() if task.visits]
    spent = {kind: Counter[str]() for kind in Kind}
    for task in met:
        spent[task.kind].update(task.tokens())
    tokens = {kind: found.total() for kind, found in spent.items()}
    kinds = history.kinds()
    rows = [
        {
            "kind": str(kind),
            "colour": KIND_COLOURS[kind],
            "count": count,
            "visits": sum(len(t.visits) for t in met if t.kind is kind),
            "tokens": tokens[kind],
            "share": tokens[kind] / total if (total := sum(tokens.values())) else None,
            "trained": spent[kind]["trained on"] / tokens[kind] if tokens[kind] else None,
            "meaning": KINDS[kind],
        }
        for kind, count in kinds.items()
        if count
    ]
    dear = sorted(met, key=lambda t: -sum(t.tokens().values()))[:LISTED]
    return {
        "met": len(met),
        "known": history.known,
        "bar": [Part(str(k), n, n / len(met), KIND_COLOURS[k], KINDS[k]) for k, n in kinds.items() if n] if met else [],
        "rows": rows,
        "dear": [
            {
                "id": t.task.id[:10],
                "kind": str(t.kind),
                "prompt": prompt_text(t.task)[:160],
                "right": t.right,
                "judged": t.right + t.wrong,
                "mean": t.mean,
                "visits": len(t.visits),
                "unscorable": t.count(Status.UNSCORABLE),
                "tokens": sum(t.tokens().values()),
            }
            for t in dear
        ],
    }


def method_sections(recipe: Recipe, history: History, decisions: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """What each method of the recipe is and did. `decisions`: (slot, action) -> how often."""
    out = []
    for method, settings in recipe.methods():
        doc = " ".join((method.cls.__doc__ or "").split()) if method.cls else ""
        out.append(
            {
                "slot": str(method.slot),
                "name": short_name(method.name),
                "title": method.title,
                "arxiv": method.arxiv,
                "faithfulness": str(method.faithfulness),
                "criterion": method.criterion,
                "summary": doc,
                "traits": sorted(method.traits),
                "needs": sorted(method.needs),
                "settings": [
                    (name, value, " ".join((type(settings).model_fields[name].description or "").split()))
                    for name, value in settings.model_dump(mode="json").items()
                ],
                "did": _did(method.slot, short_name(method.name), history, decisions),
            }
        )
    return out


def _did(slot: Slot, name: str, history: History, decisions: Mapping[tuple[str, str], int]) -> Sequence[tuple[str, int]]:
    """(what, how often) of one method."""
    if slot in _JUDGES:
        return [(word, n) for (who, word), n in sorted(history.verdicts.items()) if who == name]
    if slot in (Slot.CREDIT, Slot.CREDIT_BATCH):
        return [(f"advantage {sign}", n) for sign, n in sorted(history.credits.items())]
    if slot is Slot.TOPOLOGY:
        visits = [v for t in history.tasks.values() for v in t.visits]
        return [("groups", len(visits)), ("answers", sum(len(v.attempts) for v in visits))] if visits else []
    own = slot.split(".")[1]
    found = [(action, n) for (where, action), n in sorted(decisions.items()) if where == own]
    if slot is Slot.SELECT and history.tasks:
        found.append(("different tasks", sum(bool(t.visits) for t in history.tasks.values())))
    return found
