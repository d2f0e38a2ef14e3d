"""Groups and members: what one task's credit is computed over.

Invariants: a group has its own id (one task may have several groups at once); members are keyed by rollout id; admission
sets flags and never deletes; a dropped member names its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from gfcr.types.rollout import Rollout
from gfcr.types.signals import Signals, Status
from gfcr.types.task import Task


class Role(StrEnum):
    FRESH = "fresh"
    GUIDED = "guided"
    """Sampled under guidance that tells something about the task (a hint, an example): says nothing about how hard the task is
    without it, so no posterior and no zero-variance test of difficulty reads it."""
    RESUMED = "resumed"
    REPLAYED = "replayed"
    INJECTED = "injected"
    DEMO = "demo"
    """A teacher's or a data set's solution: nobody's rollout; its tokens are in no generation count."""


class GroupState(StrEnum):
    OPEN = "open"
    PARKED = "parked"
    CLOSED = "closed"
    ABANDONED = "abandoned"


class Drop(StrEnum):
    """Why a member reached no loss; each becomes a metric, and its generated tokens count as discarded."""

    UNSCORABLE = "unscorable"
    ZERO_VARIANCE = "zero_variance"
    SURPLUS = "surplus"
    """Its group was beyond the batch size (dynamic sampling)."""
    LOW_SPREAD = "low_spread"
    """Its group's rewards differ less than those of others (StarPO-S)."""
    OVERLONG = "overlong"
    REPLACED = "replaced"
    """An injected member took its place."""
    REFUSED = "refused"
    """A demonstration that the verifiers do not call right."""
    FAILED = "failed"
    ABANDONED = "abandoned"
    PRUNED = "pruned"
    STALE = "stale"
    NO_LOSS = "no_loss"
    """Its method uses it for the baseline only, or not at all (an answer in no preference pair, a wrong one under rejection
    sampling)."""


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """What the optimiser gets for one member (S in the survey)."""

    advantage: float | np.ndarray | None = 0.0
    """One value for all RL tokens, or float32[n] over the trained path's tokens (0 where none). None = no RL loss: the
    member's own tokens are trained by cross-entropy or in preference pairs, or `rewards` say what a critic needs."""
    weight: float = 1.0
    """Multiplies the member's RL loss (off-policy weight, noise correction)."""
    ce_weight: float = 0.0
    """Cross-entropy weight of its CE tokens; without an advantage of its own tokens too."""
    rewards: np.ndarray | None = None
    """float32[n] over the trained path's tokens: the reward that comes with each, for a critic to turn into advantages;
    None = there is nothing to turn."""

    @property
    def reinforces(self) -> bool:
        """Whether the member's own tokens have an RL loss."""
        return self.advantage is not None or self.rewards is not None


@dataclass(frozen=True, slots=True)
class Preference:
    """A preference label for pairwise losses."""

    chosen: str
    """Rollout id."""
    rejected: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One judgement over several members."""

    ranking: tuple[tuple[str, ...], ...]
    """Rollout ids, best first; ids in one tuple tie. Empty = the judge abstained."""
    order_shown: tuple[str, ...]
    judge: str
    version: str = ""
    evidence: str = ""


@dataclass(slots=True, eq=False)
class Member:
    """A rollout's part in a group. The Round writes the flags, Filter the signals, credit the credit."""

    rollout: Rollout
    role: Role = Role.FRESH
    in_baseline: bool = True
    in_loss: bool = True
    cohort: str = ""
    """Members normalised together where a method splits the group; empty = one cohort."""
    signals: Signals = Signals()
    credit: Credit | None = None
    """None before credit, and for members outside the loss."""
    drop: Drop | None = None
    """None = it reached the loss (or has not been decided yet)."""
    source: str | None = None
    """Id of the replay artifact a member was taken from; None for fresh ones."""

    @property
    def fresh(self) -> bool:
        """Sampled for its group, by the policy alone."""
        return self.role in (Role.FRESH, Role.RESUMED)

    @property
    def sampled(self) -> bool:
        """Sampled for its group, with or without guidance: its tokens were generated for it."""
        return self.role in (Role.FRESH, Role.GUIDED, Role.RESUMED)


@dataclass(slots=True, eq=False)
class Group:
    """What one task's credit is computed over (T(x) in the survey)."""

    id: str
    task: Task
    round: int
    """The round it was opened in."""
    version: int
    """The weights' version it was opened at."""
    planned: int = 0
    """Rollouts allocated so far."""
    stage: int = 0
    """Completed allocation stages."""
    state: GroupState = GroupState.OPEN
    reason: str = ""
    """Why it is in its state; empty while open."""
    members: dict[str, Member] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    preferences: list[Preference] = field(default_factory=list)

    def fresh(self) -> list[Member]:
        return [m for m in self.members.values() if m.fresh]

    def outcomes(self) -> tuple[int, int]:
        """(right, wrong) among the fresh members whose correctness is known: the input of every zero-variance test,
        posterior and trace."""
        right = wrong = 0
        for member in self.members.values():
            if member.fresh and (correct := member.signals.correct) is not None:
                right, wrong = right + correct, wrong + (not correct)
        return right, wrong

    @property
    def helped(self) -> bool:
        """Whether it has a right answer that its policy did not find by itself: a guided one, an injected one, a solution."""
        return any(
            m.drop is None and (m.role in (Role.INJECTED, Role.DEMO) or (m.role is Role.GUIDED and m.signals.correct is True))
            for m in self.members.values()
        )

    @property
    def composition(self) -> str:
        """`all_right`, `all_wrong`, `mixed`, or `unscored` when no fresh member could be judged."""
        right, wrong = self.outcomes()
        if not right and not wrong:
            return "unscored"
        return "mixed" if right and wrong else "all_right" if right else "all_wrong"

    def unscorable(self) -> int:
        return sum(m.signals.status is Status.UNSCORABLE for m in self.members.values())
