"""Exact verification by program: the lab domain's interpreter, elsewhere equality of text.

Invariant: pure and linear in the answer's length (`bounded`), so it may run in the driver's process.
"""

from __future__ import annotations

from collections.abc import Sequence

from gfcr.context import Build
from gfcr.domains.programs import verify as programs
from gfcr.registry import Faithfulness, Settings, Slot, method
from gfcr.types import Status, StopReason, Task, Verdict

LAB = "programs"


@method(
    "exact",
    Slot.VERIFIER,
    title="exact outcome",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("binary correctness", "judges ended answers"),
)
class Exact:
    """Right iff the answer is the reference: in the lab domain the final pair, elsewhere the whole text, stripped."""

    name, version, bounded = "exact", "1", True

    def __init__(self, settings: Settings, build: Build) -> None:
        self._lab = programs.ExactVerifier()

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if task.domain == LAB:
            return self._lab.judge(task, text, stop)
        if task.reference is None:
            return Verdict(self.name, self.version, Status.UNSCORABLE, evidence="the task has no reference")
        if stop in (StopReason.CANCELLED, StopReason.PARKED, StopReason.FAILED):
            return Verdict(
                self.name, self.version, Status.UNSCORABLE, evidence=f"ended by us ({stop}): nobody knows what would have come"
            )
        right = stop.finished and text.strip() == str(task.reference).strip()
        why = "equals the reference" if right else f"cut off ({stop})" if not stop.finished else "differs from the reference"
        answer = text.strip() if stop.finished else None
        return Verdict(self.name, self.version, Status.SCORED, float(right), right, why, answer=answer)


@method("format", Slot.GATE, title="answer format", criterion="reliability", faithfulness=Faithfulness.OURS)
class Format:
    """Refuses answers that state no result at all; never one that the exact verifier would accept."""

    name, version, bounded = "format", "1", True

    def __init__(self, settings: Settings, build: Build) -> None:
        self._lab = programs.FormatGate()

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if task.domain == LAB:
            return self._lab.judge(task, text, stop)
        if stop.finished and not text.strip():
            return Verdict(self.name, self.version, Status.INVALID, evidence="the answer is empty")
        return Verdict(self.name, self.version, Status.SCORED, 1.0, evidence="not empty")


@method(
    "program-steps",
    Slot.STEPS,
    title="exact step labels of register programs",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
)
class ProgramSteps:
    """Labels every trace line of a lab answer."""

    name, version, bounded = "program-steps", "1", True

    def __init__(self, settings: Settings, build: Build) -> None:
        self._lab = programs.ProgramSteps()

    def score(self, task: Task, text: str, stop: StopReason) -> Sequence[tuple[int, int, float | None]]:
        return self._lab.score(task, text, stop) if task.domain == LAB else ()
