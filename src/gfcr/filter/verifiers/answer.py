"""The final answer against the reference: an exact comparison after extraction, for GSM8K-like rows.

Invariants: where the answer stands is said by the recipe and never guessed; only numbers and blanks are normalised, so nothing is
right by resemblance; linear in the answer's length (`bounded`). Symbolic mathematics comes with its own verifier.
"""

from __future__ import annotations

from gfcr.context import Build
from gfcr.domains.answers import Extract, extract, reference_answer, same
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Status, StopReason, Task, Verdict


@method(
    "answer",
    Slot.VERIFIER,
    title="final answer, exact after extraction",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("binary correctness",),
)
class Answer:
    """Right iff the extracted answer equals the reference: as exact numbers (`1,234.0` = `1234`, `0.5` = `1/2`), else as text. An
    answer without the mark is wrong."""

    class Settings(FrozenModel):
        mode: Extract
        r"""Where the final answer stands: `hash` (after the last ####), `boxed` (the last \boxed{}), `tags` (the last
        <answer></answer>), `last-number`, `whole`."""
        accept_cut: bool = False
        """Judge an answer that the length limit cut by what it says, unless the cut may have gone through the final answer. False:
        such an answer is wrong."""

    name, version, bounded = "answer", "1", True

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if task.reference is None:
            return Verdict(self.name, self.version, Status.UNSCORABLE, evidence="the task has no reference")
        if stop in (StopReason.CANCELLED, StopReason.PARKED, StopReason.FAILED):
            return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=f"ended by us ({stop})")
        wanted = reference_answer(task.reference, self.settings.mode)
        if wanted is None:
            return Verdict(
                self.name,
                self.version,
                Status.UNSCORABLE,
                evidence=f"the reference {_short(str(task.reference))} is not one number",
            )
        if not stop.finished and not self.settings.accept_cut:
            return self._verdict(False, f"cut off ({stop})")
        found = extract(text, self.settings.mode)
        if found is None:
            return self._verdict(False, f"no final answer ({self.settings.mode})")
        if not stop.finished and text.rstrip().endswith(found):
            return self._verdict(False, f"cut off ({stop}) at or inside its final answer {_short(found)}")
        right = same(found, wanted)
        return self._verdict(right, f"{_short(found)} {'equals' if right else 'is not'} {_short(wanted)}")

    def _verdict(self, right: bool, evidence: str) -> Verdict:
        return Verdict(self.name, self.version, Status.SCORED, float(right), right, evidence)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
