"""Judging reasoning-gym tasks: the data set's own scorer, and a gate for tagged answers.

Invariants: a scorer is a third party's code and may hang, so it runs in a process that can be killed, unless it is one of
BOUNDED; what it cannot decide is UNSCORABLE; taking the answer out of the text is linear in its length.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gfcr.context import Build
from gfcr.domains.answers import Extract, extract
from gfcr.domains.gym.entries import library, score
from gfcr.domains.gym.source import DOMAIN
from gfcr.errors import ConfigError
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Status, StopReason, Task, Verdict

OPEN, CLOSE = "<answer>", "</answer>"
BOUNDED = frozenset({"basic_arithmetic", "chain_sum"})
"""Data sets whose scorers (read in 0.1.25) compare decimals or text and are linear in the answer: a call through a process of its
own costs more than the whole verdict."""
_OURS = (StopReason.CANCELLED, StopReason.PARKED, StopReason.FAILED)


@method(
    "reasoning-gym",
    Slot.VERIFIER,
    title="reasoning-gym scorer",
    arxiv="2505.24760",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("binary correctness",),
)
class GymVerifier:
    """Right iff the data set's own `score_answer` gives at least `threshold`; the reward is 1 or 0. Its rules are its own: that of
    `chain_sum` strips commas wherever they stand, so that `-,4` is -4 to it (as the last number of a text it is 4)."""

    name, version = "reasoning-gym", "1"

    class Settings(FrozenModel):
        answer: Extract = Extract.LAST_NUMBER
        """What of the text is the answer: its last number, what stands in `<answer>..</answer>` (`tags`), all of it (`whole`), ..."""
        threshold: float = Field(1.0, gt=0, le=1)
        """Score from which an answer is right; several data sets give partial scores below 1."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings
        if foreign := next((task for task in build.tasks if task.domain != DOMAIN), None):
            raise ConfigError(
                f"filter.verifiers 'reasoning-gym': the tasks are of the domain {foreign.domain!r}, whose scorer it does not have",
                "set tasks.source = 'reasoning-gym', or choose another verifier",
            )
        self.bounded = {str(task.meta.get("dataset")) for task in build.tasks} <= BOUNDED

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if task.domain != DOMAIN:
            return self._unscorable(f"a task of the domain {task.domain!r}, not {DOMAIN!r}")
        if stop in _OURS:
            return self._unscorable(f"ended by us ({stop}): nobody knows what would have come")
        if not stop.finished:
            return self._scored(False, f"cut off ({stop})")
        answer = (extract(text, self.settings.answer) or "").replace("\N{MINUS SIGN}", "-")
        if not answer:
            return self._scored(False, f"no answer found ({self.settings.answer})")
        found = score({**task.meta, "answer": task.reference}, answer)
        return self._scored(
            found >= self.settings.threshold, f"{answer[:40]!r} scores {found:g}, wanted {task.reference[:40]!r}"
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickled in its own process: import the library now, while the process starts, and not in the first call's time."""
        self.__dict__.update(state)
        library()

    def _scored(self, right: bool, why: str) -> Verdict:
        return Verdict(self.name, self.version, Status.SCORED, float(right), right, why)

    def _unscorable(self, why: str) -> Verdict:
        return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=why)


@method("answer-tags", Slot.GATE, title="answer tags", criterion="reliability", faithfulness=Faithfulness.OURS)
class AnswerTags:
    """Refuses a finished answer without exactly one filled `<answer>..</answer>`."""

    name, version, bounded = "answer-tags", "1", True

    class Settings(FrozenModel):
        alone: bool = False
        """Whether text outside the tags is refused too (white space is not text)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if not stop.finished:  # the verifier says what a cut answer is worth
            return Verdict(self.name, self.version, Status.SCORED, 1.0, evidence=f"not judged: {stop}")
        why = self._fault(text)
        if why:
            return Verdict(self.name, self.version, Status.INVALID, evidence=why)
        return Verdict(self.name, self.version, Status.SCORED, 1.0, evidence="one answer in tags")

    def _fault(self, text: str) -> str:
        before, _, rest = text.partition(OPEN)
        inside, close, after = rest.partition(CLOSE)
        if not (close and inside.strip()) or text.count(OPEN) > 1 or text.count(CLOSE) > 1:
            return f"{text.count(OPEN)} {OPEN} and {text.count(CLOSE)} {CLOSE}, wanted one filled pair"
        outside = (before + after).strip()
        return f"text outside the tags: {outside[:40]!r}" if self.settings.alone and outside else ""
