"""The environment's own verdict as a verifier. Invariant: a rollout without one is unscorable, never wrong."""

from __future__ import annotations

from gfcr.context import Build
from gfcr.registry import Faithfulness, Settings, Slot, method
from gfcr.types import Status, StopReason, Task, Verdict


@method(
    "environment",
    Slot.VERIFIER,
    title="the environment's verdict",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("needs: environment",),
)
class EnvironmentVerdict:
    """What the environment says of the whole episode (`Environment.verify`); the cascade hands it over instead of asking."""

    name, version, bounded, of_environment = "environment", "1", True, True

    def __init__(self, settings: Settings, build: Build) -> None:
        pass

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        return Verdict(self.name, self.version, Status.UNSCORABLE, evidence="no environment gave a verdict on this answer")
