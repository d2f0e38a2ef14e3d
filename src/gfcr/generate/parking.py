"""Groups that wait for a later round: answers cut at the round's token limit, and groups that an allocator parks.

Partial rollouts (Kimi k1.5, arXiv:2501.12599, section 2.6; APRIL, arXiv:2509.18521): what a round does not finish is kept with ids,
log-probabilities and versions, and goes on first in a later one. Invariants: a group waits whole, its finished members with it; no
token is lost or sampled twice; what waits is part of the run's state, its rollouts being those that were committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gfcr.context import Configuration
from gfcr.types import Group, Member, Node, Path, Rollout, Sampling


@dataclass(frozen=True, slots=True)
class Leg:
    """An answer's next stretch: what is left of it, from the end of its path on."""

    index: int
    """The rollout's number in its group."""
    key: int
    """Of its random stream; positions continue, so do the draws."""
    left: int
    """Tokens it may still have, in all."""
    sampling: Sampling
    later: tuple[tuple[int, Sampling], ...] = ()
    """(tokens from here on, law from there on), ascending."""
    resumes: int = 0
    """Times it was resumed, this one included."""

    def after(self, tokens: int) -> Leg:
        """The leg that follows once this one has given `tokens`. One that gave none is no resumption used up."""
        law, later = Configuration(self.sampling, self.left, self.later).at(tokens)
        return replace(self, left=self.left - tokens, sampling=law, later=later, resumes=self.resumes + (tokens > 0))


@dataclass(slots=True, eq=False)
class Waiting:
    """A parked group and what its round knew of it."""

    group: Group
    legs: dict[str, Leg] = field(default_factory=dict)
    """By id of the parked rollout, which is among the group's members; empty for one that an allocator parked."""
    next_member: int = 0
    prompt: Path = ()
    marks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What guidance said of nodes: sets of node ids by name (round_state.MARKS)."""
    limits: dict[str, int] = field(default_factory=dict)
    """Longest answer after a node, in tokens."""

    def worst(self, limit: int) -> int:
        """Most tokens its next round may generate, `limit` each."""
        return sum(min(leg.left, limit) for leg in self.legs.values())


class Parking:
    """What waits, the longest first."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> Sequence[Waiting]:
        return list(self._waiting.values())

    def put(self, waiting: Waiting) -> None:
        """Park a group, behind those that wait already."""
        self._waiting.pop(waiting.group.id, None)
        self._waiting[waiting.group.id] = waiting

    def take(self, waiting: Waiting) -> None:
        """It goes on, or is given up."""
        self._waiting.pop(waiting.group.id, None)

    def state_dict(self) -> dict[str, Any]:
        return {"waiting": self.waiting()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Rollouts that were read one by one share their nodes again."""
        self._waiting = {w.group.id: _sharing(w) for w in state["waiting"]}


def _sharing(waiting: Waiting) -> Waiting:
    """With one object per node of the same id and content."""
    known: dict[tuple[str, int, str], Node] = {}

    def shared(path: Path) -> Path:
        return tuple(known.setdefault((n.id, len(n.segment), n.segment.role), n) for n in path)

    def whole(rollout: Rollout) -> Rollout:
        train = None if rollout.train_path is None else shared(rollout.train_path)
        return replace(rollout, path=shared(rollout.path), train_path=train)

    group = waiting.group
    members: dict[str, Member] = {i: replace(m, rollout=whole(m.rollout)) for i, m in group.members.items()}
    return replace(waiting, group=replace(group, members=members), prompt=shared(waiting.prompt))
