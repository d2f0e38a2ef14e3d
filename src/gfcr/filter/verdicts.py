"""Verdicts in one line, for gates and verifiers. Invariant: what ended an answer is looked at before its text: what we ended ourselves
says nothing about the policy, what a limit cut is no whole answer.
"""

from __future__ import annotations

from typing import Protocol

from gfcr.types import Span, Status, StopReason, Verdict

OURS = (StopReason.CANCELLED, StopReason.PARKED, StopReason.FAILED)
"""Reasons that are ours: nobody knows what would have come."""


class Named(Protocol):
    """Whose word it is."""

    name: str
    version: str


def scored(
    judge: Named, score: float, correct: bool | None, evidence: str, answer: str | None = None, spans: tuple[Span, ...] = ()
) -> Verdict:
    return Verdict(judge.name, judge.version, Status.SCORED, float(score), correct, evidence, answer=answer, spans=spans)


def place(start: int, end: int, kind: str = "answer") -> tuple[Span, ...]:
    """The span of a verdict, none where it would be empty."""
    return (Span(start, end, kind),) if start < end else ()


def unscorable(judge: Named, evidence: str) -> Verdict:
    return Verdict(judge.name, judge.version, Status.UNSCORABLE, evidence=evidence)


def passes(judge: Named, evidence: str) -> Verdict:
    """A gate lets the answer through; it says nothing about correctness."""
    return scored(judge, 1.0, None, evidence)


def refused(judge: Named, evidence: str, spans: tuple[Span, ...] = ()) -> Verdict:
    """A gate refuses the answer."""
    return Verdict(judge.name, judge.version, Status.INVALID, evidence=evidence, spans=spans)


def cut(judge: Named, stop: StopReason, accept_cut: bool) -> Verdict | None:
    """The verdict on an answer that did not end by itself: UNSCORABLE where we ended it, wrong where a limit cut it (unless
    `accept_cut`); None where the text is to be judged."""
    if stop in OURS:
        return unscorable(judge, f"ended by us ({stop}): nobody knows what would have come")
    return None if stop.finished or accept_cut else scored(judge, 0.0, False, f"cut off ({stop})")


def unjudged(judge: Named, stop: StopReason) -> Verdict | None:
    """A gate's word on an answer that did not end by itself: it passes, because the verifier says what a cut answer is worth;
    None where the text is to be judged."""
    if stop in OURS:
        return unscorable(judge, f"ended by us ({stop}): nobody knows what would have come")
    return None if stop.finished else passes(judge, f"not judged: {stop}")


def short(value: object, width: int = 60) -> str:
    """A value for evidence: one line, at most `width` characters."""
    text = repr(value)
    return text if len(text) <= width else text[: width - 3] + "..."
