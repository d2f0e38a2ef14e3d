"""Where tokens and seconds went, as bars. Invariant: a bar's parts add up to what it says it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gfcr.report.words import COMPUTED, DROP_COLOURS, DROPS, reason


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    value: float
    share: float
    """Of the whole bar, 0..1."""
    colour: str
    meaning: str = ""


def generated(row: Mapping[str, Any], colours: Mapping[str, str] | None = None) -> list[Part]:
    """The generated tokens: trained on, and discarded by reason."""
    total, discarded = row["tokens_generated"] or 0, {name: n for name, n in (row["discarded_by_reason"] or {}).items() if n}
    if not total:
        return []
    palette = colours or drop_colours(discarded)
    kept = total - sum(discarded.values())
    parts = [Part("trained on", kept, kept / total, "c1", "reached the loss")]
    return parts + [
        Part(reason(name), count, count / total, palette[name], DROPS.get(name, ""))
        for name, count in sorted(discarded.items(), key=lambda item: -item[1])
        if count
    ]


def computed(row: Mapping[str, Any]) -> list[Part]:
    """Every count of the ledger on one scale."""
    values = [(label, row[key], meaning) for key, label, meaning in COMPUTED if row.get(key) is not None]
    largest = max((value for _, value, _ in values), default=0) or 1
    return [
        Part(label, value, value / largest, "muted" if label == "context reused" else "c1", meaning)
        for label, value, meaning in values
    ]


def seconds(rows: list[dict[str, Any]]) -> list[Part]:
    """Wall time of the steps; the rest is loading, committing and the evaluation before training."""
    names = (
        ("seconds_rounds", "rounds", "c1", "generation, judging, decisions"),
        ("seconds_training", "training", "c2", "optimiser steps"),
        ("seconds_evaluation", "evaluation", "c3", "held-out, after steps"),
    )
    sums = [(label, sum(row.get(key) or 0.0 for row in rows), colour, meaning) for key, label, colour, meaning in names]
    total = rows[-1]["seconds"] if rows else 0.0
    if not total:
        return []
    rest = max(0.0, total - sum(value for _, value, _, _ in sums))
    found = [*sums, ("rest", rest, "muted", "loading, the evaluation before training, commits")]
    whole = sum(value for _, value, _, _ in found)
    return [Part(label, value, value / whole, colour, meaning) for label, value, colour, meaning in found]


def drop_colours(discarded: Mapping[str, Any]) -> dict[str, str]:
    """A colour per reason: the order of the reasons decides, so that two bars agree."""
    known = [*(name for name in DROPS if name in discarded), *(name for name in discarded if name not in DROPS)]
    return {name: DROP_COLOURS[i % len(DROP_COLOURS)] for i, name in enumerate(known)}
