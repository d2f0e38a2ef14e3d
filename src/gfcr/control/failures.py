"""What becomes of requests, plays and groups that fail through nobody's answer: an engine, a tool or an environment broke.

Invariants: a policy never sees what an answer is worth, so it cannot select on it; every try has a bound; tokens of what failed are
booked as discarded under the failure's own reason, whatever the policy decides.
"""

from __future__ import annotations

from math import ceil
from typing import Protocol

from pydantic import Field

from gfcr.context import Build
from gfcr.errors import GfcrError
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method


class RunFailed(GfcrError):
    """A failure that the recipe does not tolerate."""


class FailurePolicy(Protocol):
    """What is tried again and which groups go on."""

    def again(self, reason: str, attempt: int) -> bool:
        """Whether what failed (`kind: words`) in its attempt number `attempt` (from 0) is tried again. Raises RunFailed where a failure
        ends the run."""

    def enough(self, judged: int, k: int) -> bool:
        """Whether a group that closes with this many judged members, of k planned, goes on."""


@method(
    "retry",
    Slot.FAILURES,
    title="try again, then do without",
    criterion="cost",
    faithfulness=Faithfulness.OURS,
)
class Retry:
    """A request (or, where an environment broke, its rollout from the beginning) is tried again `attempts` times, on fresh random
    streams; then the group does without it."""

    class Settings(FrozenModel):
        attempts: int = Field(2, ge=0)
        """Times what failed is tried again."""
        members: int = Field(2, ge=1)
        """A group that closes with fewer judged members (or than K, where that is less) is abandoned."""

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings

    def again(self, reason: str, attempt: int) -> bool:
        return attempt < self.settings.attempts

    def enough(self, judged: int, k: int) -> bool:
        return judged >= min(self.settings.members, k)


@method(
    "minimum-group",
    Slot.FAILURES,
    title="minimum viable group",
    criterion="cost",
    faithfulness=Faithfulness.OURS,
)
class MinimumGroup:
    """Nothing is tried again: what failed is missing, and a group goes on while enough of it is left. For environments whose
    failures repeat, and for slow ones."""

    class Settings(FrozenModel):
        share: float = Field(0.5, gt=0, le=1)
        """Share of K that must be judged, rounded up; 1 = the whole group or none of it."""

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings

    def again(self, reason: str, attempt: int) -> bool:
        return False

    def enough(self, judged: int, k: int) -> bool:
        return judged >= ceil(self.settings.share * k)


class Lenient:
    """A policy that keeps every group with an answer: for whoever needs one row per rollout (evaluation, another trainer's rows)."""

    def __init__(self, inner: FailurePolicy) -> None:
        self.again = inner.again

    def enough(self, judged: int, k: int) -> bool:
        return judged >= 1


@method(
    "fail-fast",
    Slot.FAILURES,
    title="the first failure ends the run",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
)
class FailFast:
    """For finding out what is wrong. The run ends at its last commit and can be resumed; an answer that nobody could judge is no
    failure of this kind and stays out of its group."""

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        pass

    def again(self, reason: str, attempt: int) -> bool:
        raise RunFailed(
            f"something failed, and control.failures is 'fail-fast': {reason}",
            'put right what it names and resume the run; or set control.failures = {name = "retry"}',
        )

    def enough(self, judged: int, k: int) -> bool:
        return judged >= min(2, k)
