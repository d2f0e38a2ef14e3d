"""What a user's own code says of an answer, as a verdict: a function's return value, an endpoint's reply.

Invariants: a truth value or a finite number is a score; a mapping gives `score`, and may give `correct` (or `acc`), `evidence` and
`answer`; None abstains; everything else is UNSCORABLE, with what it was, and never reward 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal

from gfcr.types import Status, Verdict

RightAt = float | Literal["never"]


def said(value: Any, name: str, version: str, right_at: RightAt) -> Verdict:
    """The verdict. `right_at`: a number of at least this is right; "never": numbers say nothing about correctness."""

    def unscorable(why: str) -> Verdict:
        return Verdict(name, version, Status.UNSCORABLE, evidence=why)

    correct: Any = None
    evidence, answer = "", None
    if isinstance(value, Mapping):
        if "score" not in value:
            return unscorable(f"returned a mapping without 'score': {shown(value)}")
        found = value.get("correct")
        correct, evidence = plain(value.get("acc") if found is None else found), str(value.get("evidence", ""))
        if not (correct is None or (isinstance(correct, (bool, int, float)) and correct in (0, 1))):
            return unscorable(f"returned {shown(correct)} for correctness, not True or False (1 or 0)")
        answer = value["answer"] if isinstance(value.get("answer"), str) else None
        value = value["score"]
    value = plain(value)
    if value is None:
        return unscorable(evidence or "returned None: it abstains")
    if isinstance(value, bool):
        return Verdict(name, version, Status.SCORED, float(value), value, evidence or f"returned {value}", answer=answer)
    if not isinstance(value, Real):
        return unscorable(f"returned {shown(value)}, not a number")
    try:
        score = float(value)
    except OverflowError:
        return unscorable("returned a number too large for a reward")
    if not math.isfinite(score):
        return unscorable(f"returned {score}")
    if correct is None and not isinstance(right_at, str):
        correct = score >= right_at
    right = None if correct is None else bool(correct)
    return Verdict(name, version, Status.SCORED, score, right, evidence or f"returned {score:g}", answer=answer)


def plain(value: Any) -> Any:
    """A numpy or torch scalar as a Python value; everything else as it is."""
    return value.item() if type(value).__module__.split(".")[0] in ("numpy", "torch") and _size(value) == 1 else value


def _size(value: Any) -> int:
    size = getattr(value, "size", 1)
    return int(value.numel() if hasattr(value, "numel") else size)


def shown(value: Any) -> str:
    """A value and its type, at most some 70 characters."""
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
