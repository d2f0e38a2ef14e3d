"""What Filter measured. Invariant: None is never 0; an UNSCORABLE verdict has no score and no correctness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MOST_SCORE = 1e30
"""Scores and rewards beyond it are no numbers that a batch (float32) could add up."""


class Status(StrEnum):
    SCORED = "scored"
    INVALID = "invalid"
    """A gate refused the answer; its credit is the recipe's `invalid_reward`."""
    UNSCORABLE = "unscorable"
    """The judge's own time-out or crash, an abstention, a bad reference: says nothing about the policy."""


@dataclass(frozen=True, slots=True)
class Span:
    """A place in the answer's text that a verdict speaks of."""

    start: int
    """First character of the text judged."""
    end: int
    """One past the last character."""
    kind: str = "evidence"
    """What was found there: `line` (the offending line), `step`, `answer` (the final answer), ..."""
    value: float | None = None
    """A score of the place; None where it is only pointed at."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One verifier's or gate's word on one rollout."""

    verifier: str
    version: str
    status: Status
    score: float | None = None
    """None unless SCORED."""
    correct: bool | None = None
    """None where the verifier does not decide correctness."""
    evidence: str = ""
    """The reason in words."""
    seconds: float = 0.0
    answer: str | None = None
    """The final answer the verifier found, in its canonical form (equal answers, equal text); None where it looks for none."""
    spans: tuple[Span, ...] = ()
    tokens: int = 0
    """Tokens read or written by a model to reach it; they are `Cost.judged` in the ledger."""

    def __post_init__(self) -> None:
        for name, wanted in _VERDICT.items():
            value = getattr(self, name)
            if type(value) not in wanted:
                object.__setattr__(self, name, _plain(name, value, wanted))
        if self.tokens < 0 or not all(type(span) is Span for span in self.spans):
            raise ValueError(
                f"verdict of {self.verifier}: tokens {self.tokens}, spans {ascii(self.spans)[:60]}; spans are Span objects"
            )
        if (self.status is Status.SCORED) != (self.score is not None):
            raise ValueError(f"verdict of {self.verifier}: status {self.status} with score {self.score}")
        if self.score is not None and not abs(self.score) < MOST_SCORE:
            raise ValueError(f"verdict of {self.verifier}: the score is {self.score}; an undecided answer is UNSCORABLE")


_VERDICT: dict[str, tuple[type, ...]] = {
    "verifier": (str,),
    "version": (str,),
    "status": (Status,),
    "score": (float, int, type(None)),
    "correct": (bool, type(None)),
    "evidence": (str,),
    "seconds": (float, int),
    "answer": (str, type(None)),
    "spans": (tuple,),
    "tokens": (int,),
}


def _plain(name: str, value: Any, wanted: tuple[type, ...]) -> Any:
    """The value as one of these types: NumPy's scalars, subclasses and lists are taken. Raises TypeError for what is another thing."""
    value = value.item() if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0 else value
    if isinstance(value, list) and tuple in wanted:
        return tuple(value)
    if isinstance(value, wanted) and (not isinstance(value, bool) or bool in wanted):
        return value
    raise TypeError(f"a verdict's {name} is {ascii(value)[:60]} ({type(value).__name__}), not {wanted[0].__name__}")


@dataclass(frozen=True, slots=True)
class StepScore:
    """A score of a span of the rollout."""

    start: int
    """First token, as flat offset of the path."""
    end: int
    """One past the last token."""
    kind: str
    """`step`, `turn`, `token`, `evidence`."""
    value: float | None
    """None where the scorer abstained."""
    n: int = 1
    """How many estimates the value averages (Monte Carlo roll-outs, votes)."""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Signals:
    """All that Filter measured on one member (phi in the survey)."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    primary: str | None = None
    """Name of the verdict that decides correctness; None before judging."""
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    """Rewards by name before weighting."""
    reward: float | None = None
    """Combined task reward; None = unscorable."""
    shaped: float | None = None
    """What credit reads when a method shapes the reward; None = use `reward`. Correctness, zero-variance tests and
    posteriors never read it."""
    steps: tuple[StepScore, ...] = ()
    uncertainty: float | None = None
    novelty: float | None = None

    @property
    def verdict(self) -> Verdict | None:
        return self.verdicts.get(self.primary) if self.primary else None

    @property
    def status(self) -> Status:
        verdict = self.verdict
        return verdict.status if verdict else Status.UNSCORABLE

    @property
    def correct(self) -> bool | None:
        """The primary verdict's correctness; an INVALID answer is wrong; None when nobody could say."""
        verdict = self.verdict
        if verdict is None or verdict.status is Status.UNSCORABLE:
            return None
        return False if verdict.status is Status.INVALID else verdict.correct

    @property
    def credit_reward(self) -> float | None:
        return self.reward if self.shaped is None else self.shaped
