"""A gate by name, and its word on one text."""

from __future__ import annotations

from typing import Any

from gfcr.registry import Slot, find, settings_of
from gfcr.types import Status, StopReason, Task, Verdict

TASK = Task("t", "q", "x")


def judge(gate: str, text: str, stop: StopReason = StopReason.EOS, task: Task = TASK, **settings: Any) -> Verdict:
    found = find(Slot.GATE, gate)
    assert found.cls is not None
    verdict = found.cls(settings_of(found, settings), None).judge(task, text, stop)
    assert isinstance(verdict, Verdict) and verdict.verifier == gate and verdict.evidence
    assert verdict.correct is None
    return verdict


def passes(gate: str, text: str, **more: Any) -> bool:
    """Whether it passes; fails when the gate says neither."""
    verdict = judge(gate, text, **more)
    assert verdict.status in (Status.SCORED, Status.INVALID), verdict
    return verdict.status is Status.SCORED
