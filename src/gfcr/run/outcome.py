"""What a run came to, from its metrics rows.

Invariants: reads committed rows only; a figure nobody measured is None; accuracy over tokens is compared at equal budgets, so
the area is divided by the budget, not by what was spent.
"""

from __future__ import annotations

import re
from collections import Counter
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
    """Discarded tokens by reason, those that were not there left out."""
    reward_start: float | None = None
    """Mean training reward of the first fifth of the steps (one at least); None where no step had one. Selection changes it, too."""
    reward_final: float | None = None
    """The same of the last fifth."""

    @property
    def discarded_share(self) -> float | None:
        return self.tokens_discarded / self.tokens if self.tokens else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"discarded_share": self.discarded_share}


def outcome(rows: Sequence[Row], budget: int | None) -> Outcome:
    """The outcome of a run with these rows (row 0 first) and this token budget."""
    last: Row = rows[-1] if rows else {}
    accuracy, greedy, rewards = evaluations(rows), evaluations(rows, "heldout_greedy"), _rewards(rows)
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
        discarded={reason: n for reason, n in (last.get("discarded_by_reason") or {}).items() if n},
        reward_start=rewards[0] if rewards else None,
        reward_final=rewards[-1] if rewards else None,
    )


def _rewards(rows: Sequence[Row]) -> list[float]:
    """Mean training reward of the first and of the last steps: a fifth of those with a reward, one at least."""
    known = [row["reward_mean"] for row in rows if row.get("step") and row.get("reward_mean") is not None]
    few = max(1, len(known) // 5)
    return [float(np.mean(known[:few])), float(np.mean(known[-few:]))] if known else []


def why_untrained(rows: Sequence[Row]) -> str:
    """Why no step of a run was trained: its groups over all steps by what became of them, the most frequent first, each with what a step
    said of it; what the last step said where no groups were counted. Empty where something was trained."""
    steps = [row for row in rows if row.get("step")]
    if not steps or not all(row.get("untrained") for row in steps):
        return ""
    kinds = Counter[str]()
    for row in steps:
        kinds.update(row.get("abandoned_by_reason") or {})
        closed = (row.get("groups") or 0) - (row.get("groups_abandoned") or 0) - (row.get("groups_parked") or 0)
        for kind in ("all_wrong", "all_right", "unscored", "mixed"):
            kinds[kind] += round((row.get(f"share_{kind}") or 0.0) * closed)
    if not kinds.total():
        return str(steps[-1]["untrained"])
    return ", ".join(f"{n} groups {kind}{_meaning(kind, steps)}" for kind, n in kinds.most_common() if n)


def _meaning(kind: str, steps: Sequence[Row]) -> str:
    """` (what it usually means)`, as the last step with such a group has it."""
    said = re.compile(rf"\d+ groups {re.escape(kind)}( \(.+?\))(?:, \d+ groups |$)")
    return next((found[1] for row in reversed(steps) if (found := said.search(str(row["untrained"])))), "")


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
