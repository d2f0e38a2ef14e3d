"""A verifier that errs on purpose, for experiments with noise.

Invariants: a draw is a function of the run's seed, the label, the draw's purpose and the rollout, so a resumed run errs in the same
places; tasks that the run does not train on are judged without errors, so measurements stay clean; evidence says what was done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.shape.noise import Rates
from gfcr.registry import Faithfulness, Slot, find, method, settings_of
from gfcr.run.seeds import stream_key
from gfcr.types import Status, StopReason, Task, Verdict, derive_id


@method(
    "noisy",
    Slot.VERIFIER,
    title="a verifier with errors",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("binary correctness",),
)
class Noisy:
    """Another verifier whose verdicts on training tasks are flipped at the given rates; its score becomes 1 or 0. With `share` below 1 it
    leaves the other answers to the next verifier, so that one group is judged by several with rates of their own."""

    class Settings(Rates):
        of: str = "exact"
        """The verifier that is told apart from the noise, by name."""
        options: dict[str, Any] = Field(default_factory=dict)
        """Its settings."""
        label: str = "noisy"
        """Name of the verdicts; two noisy verifiers in one recipe want two."""
        share: float = Field(1.0, ge=0, le=1)
        """Share of the answers it judges; it abstains from the others."""

    version = "1"

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.name, self.seed = settings, settings.label, build.seed
        inner = find(Slot.VERIFIER, settings.of)
        if inner.name == "noisy" or inner.cls is None:
            raise ConfigError("filter.verifiers 'noisy' is of itself", "set its `of` to the verifier that should err")
        self.inner = inner.cls(settings_of(inner, settings.options), build)
        self.bounded = bool(getattr(self.inner, "bounded", False))
        self.tasks = frozenset(t.id for t in build.tasks)

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        """Without a rollout's id equal answers err alike."""
        return self.judge_keyed(task, text, stop, derive_id(task.id, text))

    def judge_keyed(self, task: Task, text: str, stop: StopReason, key: str) -> Verdict:
        """The verdict with this rollout's errors."""
        s = self.settings
        if self._uniform("share", key) >= s.share:
            return Verdict(
                self.name, self.version, Status.UNSCORABLE, evidence=f"left to the next verifier (share {s.share:g})"
            )
        verdict = self.inner.judge(task, text, stop)
        if verdict.status is not Status.SCORED or verdict.correct is None or task.id not in self.tasks:
            return replace(verdict, verifier=self.name, version=self.version)
        rate = s.false_negative if verdict.correct else s.false_positive
        flipped = self._uniform("flip", key) < rate
        correct = verdict.correct != flipped
        evidence = f"flipped on purpose (rate {rate:g}): {verdict.evidence}" if flipped else verdict.evidence
        return replace(
            verdict, verifier=self.name, version=self.version, score=float(correct), correct=correct, evidence=evidence
        )

    def _uniform(self, purpose: str, key: str) -> float:
        """In [0, 1)."""
        return (stream_key(self.seed, f"noisy:{purpose}", self.name, key) >> 11) * 2.0**-53
