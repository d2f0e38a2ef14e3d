"""Filter's slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gfcr.context import View
from gfcr.types import Comparison, Credit, Group, Member, Signals, StopReason, Task, Verdict


class Verifier(Protocol):
    """A gate or a verifier. Sees the policy's own tokens only, decoded; never raises for what the policy wrote. One that draws (a noisy
    one, for experiments) has `judge_keyed(task, text, stop, key)` too, which is asked instead; the key is the rollout's id."""

    name: str
    version: str

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict: ...


class StepScorer(Protocol):
    """Scores spans of the answer."""

    name: str

    def score(self, task: Task, text: str, stop: StopReason) -> Sequence[tuple[int, int, float | None]]:
        """(start, end, value) in offsets of the answer's tokens."""


class GroupJudge(Protocol):
    """Compares a group's members."""

    def compare(self, group: Group) -> list[Comparison]: ...


class Value(Protocol):
    """Learning value of a closed group's members: fills uncertainty and novelty."""

    def value(self, group: Group, view: View) -> dict[str, Signals]:
        """New signals by rollout id, for members whose signals change."""


class Shaper(Protocol):
    """Shapes rewards (length, brevity). Correctness and posteriors never see the result."""

    def shape(self, group: Group, view: View) -> dict[str, float]:
        """Shaped reward by rollout id, of an admitted group's members in the baseline; absent = the reward as it is."""


class GroupCredit(Protocol):
    """Credit within one group."""

    def credit(self, group: Group, members: Sequence[Member]) -> Mapping[str, Credit | None]:
        """Credit by rollout id, None for a member that leaves the loss; `members` are those in the baseline, all with a
        reward. May add to `group.preferences`."""


class BatchCredit(Protocol):
    """Credit across the batch (whitening), or a change to each member's; several in the order of the recipe."""

    def credit(self, groups: Sequence[Group]) -> None:
        """Replaces members' credit in place."""
