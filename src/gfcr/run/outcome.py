"""What a run came to, from its metrics rows.

Invariants: reads committed rows only; a figure nobody measured is None; accuracy over tokens is compared at equal budgets, so
the area is divided by the budget, not by what was spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run in figures."""

    ended: str | None
    """Why it is over: `budget`, `steps`, `no_tasks`; None while it is not."""
    steps: int
    tokens: int
    """Generated, discarded ones included."""
    tokens_discarded: int
    seconds: float
    """Wall clock, over all resumes."""
    start: float | None
    """Held-out accuracy at temperature 1 before training; None without a held-out set."""
    final: float | None
    """The last held-out accuracy at temperature 1."""
    start_greedy: float | None
    final_greedy: float | None
    auc: float | None
    """Accuracy integrated over generated tokens from 0 to the budget, divided by the budget; None without either."""
    discarded: dict[str, int] = field(default_factory=dict)
    """Discarded tokens by reason."""

    @property
    def discarded_share(self) -> float | None:
        return self.tokens_discarded / self.tokens if self.tokens else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"discarded_share": self.discarded_share}


def outcome(rows: Sequence[Row], budget: int | None) -> Outcome:
    """The outcome of a run with these rows (row 0 first) and this token budget."""
    last: Row = rows[-1] if rows else {}
    accuracy, greedy = evaluations(rows), evaluations(rows, "heldout_greedy")
    return Outcome(
        ended=last.get("ended") or None,
        steps=last.get("step", 0),
        tokens=last.get("tokens_generated", 0),
        tokens_discarded=last.get("tokens_discarded", 0),
        seconds=last.get("seconds", 0.0),
        start=accuracy[0][1] if accuracy else None,
        final=accuracy[-1][1] if accuracy else None,
        start_greedy=greedy[0][1] if greedy else None,
        final_greedy=greedy[-1][1] if greedy else None,
        auc=area(accuracy, budget),
        discarded=dict(last.get("discarded_by_reason") or {}),
    )


def evaluations(
    rows: Sequence[Row], key: str = "heldout_accuracy", against: str = "tokens_generated"
) -> list[tuple[float, float]]:
    """(generated tokens, accuracy) at each evaluation."""
    return [(row[against], row[key]) for row in rows if row.get(key) is not None]


def area(curve: Sequence[tuple[float, float]], budget: int | None) -> float | None:
    """Mean of the curve over 0..budget tokens: straight lines between evaluations, the last value held to the budget."""
    if not curve or not budget:
        return None
    x, y = np.array(curve, float).T
    inside = x[(x > 0) & (x < budget)]
    grid = np.concatenate([[0.0], inside, [float(budget)]])
    return float(np.trapezoid(np.interp(grid, x, y), grid) / budget)
