"""The report's section on verification. Invariant: a rate that nobody measured is a dash, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RATES = {
    "false_negative": "right answers called wrong",
    "false_positive": "wrong answers called right",
    "refused_right": "right answers among those refused",
}


@dataclass(frozen=True, slots=True)
class RateRow:
    """One measured rate."""

    name: str
    """The cheap verifier or gate."""
    what: str
    value: str
    interval: str
    n: int


@dataclass(frozen=True, slots=True)
class UseRow:
    """What one verifier was asked."""

    name: str
    calls: int
    seconds: float
    skipped: int


def verification(last: Mapping[str, Any]) -> dict[str, Any]:
    """`use` and `rates` of the section, `asked` in words; all empty for a run of before there was such a record. `last`: the newest
    metrics row."""
    calls, seconds, skipped = (last.get(key) or {} for key in ("verifier_calls", "seconds_verifiers", "verifier_skipped"))
    use = [UseRow(name, n, float(seconds.get(name, 0.0)), int(skipped.get(name, 0))) for name, n in calls.items()]
    use += [UseRow(name, 0, 0.0, int(n)) for name, n in skipped.items() if name not in calls]
    rates = [
        RateRow(name, RATES[key], _percent(rate["value"]), _interval(rate), rate["n"])
        for name, found in (last.get("verifier_rates") or {}).items()
        for key, rate in found.items()
    ]
    asked = [
        f"{name}: of {said[0]} answers it called {word}, {said[1]} were decided by the dearest verifier too"
        + (f", which abstained on {said[2]} more" if said[2] else "")
        for name, parts in (last.get("verifier_asked") or {}).items()
        for word, said in parts.items()
    ]
    return {"use": use, "rates": rates, "asked": asked}


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _interval(rate: Mapping[str, Any]) -> str:
    return "" if rate["low"] is None else f"{100 * rate['low']:.1f} to {100 * rate['high']:.1f} %"
