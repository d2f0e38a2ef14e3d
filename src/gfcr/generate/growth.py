"""How a group's rollouts grow, for topologies whose next request depends on what came of the last: what a growth wants, and what
it is told.

Invariants: a growth is pure (no clock, no I/O, no randomness but run/seeds.py) and waits only for what it asked; a piece, a
play or a look has a name of its own within the growth, from which ids and stream keys are derived, so that neither the order in
which things end nor a resume changes a draw; every piece ends in a leaf or is told to be spilled; shared nodes are shared
objects, so that what several leaves have in common is decoded once, stored once and booked once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from gfcr.environments.acts import Act, Acted
from gfcr.types import (
    POLICY,
    Cost,
    Drop,
    Node,
    Path,
    Role,
    Sampling,
    Segment,
    Signals,
    StepScore,
    StopReason,
    Verdict,
    path_length,
)
from gfcr.types.frozen import quickly_made

# ---- what a growth wants -------------------------------------------------------------------------------------------------


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Tokens of the policy's after `path`. Told: Piece or Lost."""

    name: str
    path: Path
    sampling: Sampling
    max_tokens: int
    later: tuple[tuple[int, Sampling], ...] = ()
    """(new tokens so far, law from there on), ascending."""
    fork_of: str = ""
    """Name of a piece that was `retain`ed: what was computed for it is shared; empty = nothing is."""
    fork_at: int = 0
    """Flat offset up to which it is shared."""
    retain: bool = False
    """Forks of it may follow."""
    strings: tuple[str, ...] = ()
    """Stop strings besides the recipe's."""
    turn: int = 0
    """Number of the turn it is part of, from 0."""
    author: str = POLICY
    trained: bool = True
    """Whether its tokens are in the loss; False for an agent that does not learn."""
    frees: bool = False
    """No other fork of `fork_of` follows: what was computed for it may go once this one has taken it over."""


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Play:
    """An act of an environment. Told: Played or Lost."""

    name: str
    act: Act


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """Judge a path that is no leaf yet (a first attempt, say). Told: Seen or Lost."""

    name: str
    path: Path
    stop: StopReason


@dataclass(frozen=True, slots=True, eq=False)
class Weigh:
    """Log-probabilities of a path's tokens under a law and the current weights. Told: Weighed or Lost."""

    name: str
    path: Path
    start: int
    """Flat offset of the first token asked for; the rest is context. At least 1."""
    law: Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Spill:
    """A piece that no leaf goes through: its tokens are booked as discarded under `reason`."""

    piece: str
    reason: str
    tokens: int | None = None
    """Only this many of them, its last ones: a leaf may go through the others. None = all."""


@dataclass(frozen=True, slots=True, eq=False)
class Waste:
    """What was done and no leaf has: booked as discarded under `reason`."""

    cost: Cost
    """Environment steps and tool seconds."""
    reason: str
    """`kind: words`."""


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What the environment itself said of a rollout."""

    verdict: Verdict | None = None
    """None = it gave none."""
    steps: tuple[StepScore, ...] = ()
    """Rewards of turns, in flat offsets of the path."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A finished rollout: becomes a member and is judged."""

    name: str
    path: Path
    stop: StopReason
    pieces: tuple[str, ...]
    """Pieces it goes through; each piece's cost is booked with the first leaf that names it."""
    train_path: Path | None = None
    state_keys: tuple[str, ...] = ()
    seed: int = 0
    cost: Cost = Cost()
    """Environment steps and tool seconds that are its own."""
    meta: Mapping[str, str] = field(default_factory=dict)
    given: Given = Given()
    judged: Signals | None = None
    """Signals it has already (from a Look on the same tokens), so that nobody is asked twice; None = ask the cascade."""
    role: Role | None = None
    """Its member's role; None = GUIDED where its path has guidance that tells about the task, else FRESH."""
    cohort: str = ""
    """Members normalised together; empty = the group's one cohort."""
    in_baseline: bool = True
    in_loss: bool = True
    drop: Drop | None = None
    """Why it is judged but stays out of baseline and loss; None = it does not."""


@dataclass(frozen=True, slots=True, eq=False)
class Note:
    """A decision of the topology's, for the record."""

    action: str
    reason: str
    """`kind: words`."""
    data: Mapping[str, str | int] = field(default_factory=dict)


Want = Sample | Play | Look | Weigh | Spill | Waste | Leaf | Note

# ---- what it is told -----------------------------------------------------------------------------------------------------


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What was sampled: `path` is the asked one and the new nodes."""

    name: str
    path: Path
    stop: StopReason
    seed: int
    """Key of its stream."""

    def new(self, asked: Path) -> tuple[Node, ...]:
        """The nodes sampled; several where the weights or the law changed in between, none for an empty piece."""
        return self.path[len(asked) :]


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Played:
    name: str
    acted: Acted


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    name: str
    signals: Signals


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    name: str
    logprobs: np.ndarray
    """float32[n] over the path's tokens; NaN before `start`."""


@dataclass(frozen=True, slots=True, eq=False)
class Lost:
    """What was wanted will not come: the budget is spent, or it failed more often than it may be tried."""

    name: str
    reason: str
    """`kind: words`; `budget: ...` when no room was left."""


Outcome = Piece | Played | Seen | Weighed | Lost


class Growth(Protocol):
    """One allocation of one group while it grows. It is over when nothing it wanted is outstanding."""

    def start(self) -> Sequence[Want]:
        """What it wants first."""

    def tell(self, outcome: Outcome) -> Sequence[Want]:
        """What it wants next; empty while it waits for more outcomes, and at its end."""

    def copy(self) -> Growth:
        """One like it, which later events to this one do not change."""


class Copied:
    """`copy` for growths that keep their state in containers and frozen objects."""

    def copy(self) -> Any:
        new = object.__new__(type(self))
        new.__dict__.update({name: _copied(value) for name, value in self.__dict__.items()})
        return new


def _copied(value: Any) -> Any:
    if isinstance(value, Copied):
        return value.copy()
    if isinstance(value, dict):
        return type(value)({key: _copied(inner) for key, inner in value.items()})
    return type(value)(_copied(inner) for inner in value) if isinstance(value, (list, set, deque)) else value


# ---- shared means --------------------------------------------------------------------------------------------------------


def cut(path: Path, at: int) -> tuple[Path, Path]:
    """A path in two at a flat offset, 0 <= at <= its length. A node that lies across is split, log-probabilities and tracks with it;
    the halves' ids name the node and the tokens they hold of it, so that equal parts have equal ids in whatever order one cuts."""
    before: list[Node] = []
    for i, node in enumerate(path):
        n = len(node.segment)
        if at >= n:
            before.append(node)
            at -= n
            continue
        if at == 0:
            return tuple(before), path[i:]
        name, _, place = node.id.partition("@")
        start = int(place.partition("-")[0]) if place else 0
        head = Node(f"{name}@{start}-{start + at}", node.parent, part(node.segment, 0, at))
        tail = Node(f"{name}@{start + at}-{start + n}", head.id, part(node.segment, at, n))
        after = path[i + 1 :]
        return (*before, head), (tail, *((replace(after[0], parent=tail.id), *after[1:]) if after else ()))
    if at:
        raise ValueError(f"a cut {at} tokens beyond the end of a path of {path_length(path)}")
    return tuple(before), ()


def part(segment: Segment, start: int, end: int) -> Segment:
    """Tokens start..end of a segment with all that is aligned with them."""
    return replace(
        segment,
        ids=segment.ids[start:end],
        logprobs=None if segment.logprobs is None else segment.logprobs[start:end],
        tracks={name: track[start:end] for name, track in segment.tracks.items()},
    )
