"""What judging cost, and how often the cheap verifiers are wrong: the ledger's page on verification.

Invariants: cumulative over a run and part of its committed state; error rates come from verdicts that were also given by the dearest
verifier, each weighted by the inverse of the chance with which it was sent there, so that asking more about negatives than about
positives (appeals) biases nothing; a rate nobody measured is None, never 0.

The rates of a cheap verifier (0 and 1 its verdict, right and wrong the dearest one's; the two-phase estimator of Begg and Greenes 1983,
Biometrics 39): with q_c the share of right answers among those it called c, and N_c how many it called so,

    false negatives  P(0 | right) = N_0 q_0 / (N_0 q_0 + N_1 q_1)
    false positives  P(1 | wrong) = N_1 (1 - q_1) / (N_1 (1 - q_1) + N_0 (1 - q_0))

Intervals: 2.5 and 97.5 % of these under Jeffreys' Beta posteriors of q_0, q_1 and N_1 / (N_0 + N_1), drawn from a fixed seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gfcr.run.seeds import generator

DRAWS = 4_000
"""Of the posterior, for an interval."""
BUDGET_SPENT = "verification_budget"
"""First word of the evidence of a verdict that was not asked for because the budget is spent."""


@dataclass(slots=True)
class Use:
    """What one verifier was asked."""

    calls: int = 0
    seconds: float = 0.0
    """Of its work, as the verdicts tell it; verdicts met before took none."""
    tokens: int = 0
    """Read or written by a model that judges."""

    def add(self, calls: int, seconds: float, tokens: int) -> None:
        self.calls, self.seconds, self.tokens = self.calls + calls, self.seconds + seconds, self.tokens + tokens


@dataclass(slots=True)
class Stratum:
    """Answers of which one cheap verifier said the same."""

    said: int = 0
    """How many."""
    asked: int = 0
    """Of them: how many the dearest verifier decided too."""
    abstained: int = 0
    """Of them: how many it was asked about and did not decide."""
    right: int = 0
    """Of `asked`: right by the dearest verifier."""
    weight: float = 0.0
    """Sum over `asked` of 1 / (chance of being asked)."""
    weight_squares: float = 0.0
    weight_right: float = 0.0
    """The sum of weights over `right`."""

    def decide(self, right: bool, chance: float) -> None:
        weight = 1.0 / chance
        self.asked, self.right = self.asked + 1, self.right + right
        self.weight, self.weight_squares = self.weight + weight, self.weight_squares + weight * weight
        self.weight_right += weight * right

    def beta(self) -> tuple[float, float]:
        """Jeffreys' posterior of the share of right answers, for as many equally weighted answers as the weights are worth."""
        worth = self.weight**2 / self.weight_squares if self.weight_squares else 0.0
        share = self.weight_right / self.weight if self.weight else 0.0
        return worth * share + 0.5, worth * (1.0 - share) + 0.5


@dataclass(frozen=True, slots=True)
class Rate:
    """An error rate with its 95 % interval."""

    value: float | None
    """None where no answer that counts was asked about."""
    low: float | None
    high: float | None
    n: int
    """Answers it rests on."""

    def data(self) -> dict[str, Any]:
        return {"value": _short(self.value), "low": _short(self.low), "high": _short(self.high), "n": self.n}


@dataclass(slots=True)
class Judging:
    """Cumulative figures of a run."""

    use: dict[str, Use] = field(default_factory=dict)
    """By gate, verifier or step scorer, in training."""
    evaluation: dict[str, Use] = field(default_factory=dict)
    """The same in held-out evaluation, which no budget limits."""
    strata: dict[str, dict[str, Stratum]] = field(default_factory=dict)
    """Cheap verifier or gate -> what it said (`right`, `wrong`) -> how the dearest one decided."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Calls not made because the verification budget was spent, by verifier."""

    def book(self, name: str, training: bool, calls: int, seconds: float, tokens: int) -> None:
        (self.use if training else self.evaluation).setdefault(name, Use()).add(calls, seconds, tokens)

    def said(self, name: str, right: bool) -> Stratum:
        stratum = self.strata.setdefault(name, {}).setdefault("right" if right else "wrong", Stratum())
        stratum.said += 1
        return stratum

    def rates(self, name: str) -> dict[str, Rate]:
        """`false_negative` and `false_positive` of a cheap verifier, where both its verdicts were asked about; of a gate, which says
        nothing about right answers, the share `refused_right` of right answers among those it refused."""
        found = self.strata.get(name, {})
        wrong, right = found.get("wrong", Stratum()), found.get("right", Stratum())
        if not right.said:
            return {"refused_right": _share(wrong)}
        rng = generator(0, "judging", name)
        n = {"wrong": wrong.said, "right": right.said}
        q0, q1 = rng.beta(*wrong.beta(), DRAWS), rng.beta(*right.beta(), DRAWS)
        p1 = rng.beta(n["right"] + 0.5, n["wrong"] + 0.5, DRAWS)
        s0 = wrong.weight_right / wrong.weight if wrong.weight else None
        s1 = right.weight_right / right.weight if right.weight else None
        out = {}
        for key, draws, among in (
            ("false_negative", (1 - p1) * q0 / ((1 - p1) * q0 + p1 * q1), wrong.right + right.right),
            ("false_positive", p1 * (1 - q1) / (p1 * (1 - q1) + (1 - p1) * (1 - q0)), _wrong(wrong) + _wrong(right)),
        ):
            value = _value(key, n, s0, s1)
            low, high = (float(x) for x in np.quantile(draws, (0.025, 0.975)))
            out[key] = Rate(None, None, None, among) if value is None else Rate(value, min(low, value), max(high, value), among)
        return out

    def metrics(self) -> dict[str, Any]:
        """What a metrics row tells; empty for a run whose verifiers were never measured nor limited."""
        out: dict[str, Any] = {}
        if self.strata:
            out["verifier_rates"] = {name: {k: r.data() for k, r in self.rates(name).items()} for name in self.strata}
            out["verifier_asked"] = {
                name: {said: [s.said, s.asked, s.abstained, s.right] for said, s in parts.items()}
                for name, parts in self.strata.items()
            }
        if self.skipped:
            out["verifier_skipped"] = dict(self.skipped)
        return out

    def use_metrics(self) -> dict[str, Any]:
        """Calls and judge tokens by name; seconds by name under a key of their own, since they are no function of the run's state."""
        return {
            "verifier_calls": {name: u.calls for name, u in self.use.items()},
            "seconds_verifiers": {name: round(u.seconds, 4) for name, u in self.use.items()},
        }

    def state_dict(self) -> dict[str, Any]:
        """Seconds, which no resume repeats, stand apart from what it does."""
        parts = {"use": self.use, "evaluation": self.evaluation}
        return {
            **{part: {name: [u.calls, u.tokens] for name, u in found.items()} for part, found in parts.items()},
            **{f"{part}_seconds": {name: u.seconds for name, u in found.items()} for part, found in parts.items()},
            "strata": {
                name: {said: [getattr(s, key) for key in _STRATUM] for said, s in parts.items()}
                for name, parts in self.strata.items()
            },
            "skipped": dict(self.skipped),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """In place: the cascade and the ledger share this object."""
        for part in ("use", "evaluation"):
            seconds = state.get(f"{part}_seconds", {})
            found = {name: Use(calls, seconds.get(name, 0.0), tokens) for name, (calls, tokens) in state.get(part, {}).items()}
            setattr(self, part, found)
        self.strata = {
            name: {said: Stratum(*values) for said, values in parts.items()} for name, parts in state.get("strata", {}).items()
        }
        self.skipped = Counter(state.get("skipped", {}))


_STRATUM = ("said", "asked", "abstained", "right", "weight", "weight_squares", "weight_right")


def _wrong(stratum: Stratum) -> int:
    return stratum.asked - stratum.right


def _value(key: str, n: Mapping[str, int], s0: float | None, s1: float | None) -> float | None:
    """The point estimate; None where one of the verdicts was said and never asked about, or no answer counts."""
    if (s0 is None and n["wrong"]) or (s1 is None and n["right"]):
        return None
    zero, one = s0 or 0.0, s1 or 0.0
    if key == "false_negative":
        part, whole = n["wrong"] * zero, n["wrong"] * zero + n["right"] * one
    else:
        part, whole = n["right"] * (1 - one), n["right"] * (1 - one) + n["wrong"] * (1 - zero)
    return part / whole if whole > 0 else None


def _share(stratum: Stratum) -> Rate:
    if not stratum.asked:
        return Rate(None, None, None, 0)
    value = stratum.weight_right / stratum.weight
    draws = generator(0, "judging", "share").beta(*stratum.beta(), DRAWS)
    low, high = (float(x) for x in np.quantile(draws, (0.025, 0.975)))
    return Rate(value, min(low, value), max(high, value), stratum.asked)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 5)
