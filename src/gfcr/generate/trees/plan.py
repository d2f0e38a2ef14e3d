"""What every tree of samples is made of: shoots (pieces at their place), rounds of them, and leaves with shared nodes.

Invariants: a round of shoots is complete before the next is planned, and shoots are looked at in the order they were named, so that
neither the order in which requests end nor a resume changes a tree; every own token is decoded once, and what is forked off shares
what was computed before the fork; leaves are made at the end, when all forks are known, so that a stretch which several leaves share
is the same node objects in all of them; every draw has a name (run/seeds.py: group, stage, round of the tree).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gfcr.context import Configuration, View
from gfcr.generate.growth import Copied, Leaf, Look, Lost, Outcome, Piece, Played, Sample, Seen, Spill, Want, cut
from gfcr.run.seeds import generator
from gfcr.types import Group, Node, Path, Signals, StopReason, path_length

MOST_ROUNDS = 10_000
"""Rounds of shoots one tree may have; more is a fault of its rules."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a grove grows from."""

    group: str
    stage: int
    seed: int
    how: Configuration
    roots: tuple[Path, ...]
    """Prompt and guidance of each tree."""
    leaves: tuple[int, ...]
    """Leaves each tree is to have."""

    @classmethod
    def by_base(cls, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Plan:
        """One tree per distinct base, with as many leaves as rollouts have that base."""
        found: dict[tuple[str, ...], list[Path]] = {}
        for base in bases:
            found.setdefault(tuple(node.id for node in base), []).append(base)
        roots = tuple(same[0] for same in found.values())
        return cls(group.id, group.stage, view.seed, how, roots, tuple(map(len, found.values())))

    @classmethod
    def by_shape(cls, group: Group, bases: Sequence[Path], how: Configuration, view: View, per_tree: int) -> Plan:
        """As many trees of `per_tree` leaves as the rollouts fill, one at least; each on the base of its first rollout."""
        roots = tuple(bases[i * per_tree] for i in range(max(1, len(bases) // per_tree)))
        return cls(group.id, group.stage, view.seed, how, roots, (per_tree,) * len(roots))


@dataclass(frozen=True, slots=True, eq=False)
class Shoot:
    """A sampled piece at its place in a tree."""

    name: str
    tree: int
    parent: str
    """Shoot it leaves; empty = it starts at the root."""
    at: int
    """Flat offset of its first token."""
    path: Path
    """From the root to its last token, as it was sampled."""
    new: tuple[Node, ...]
    stop: StopReason
    seed: int

    @property
    def end(self) -> int:
        """Flat offset one past its last token."""
        return self.at + sum(len(n.segment) for n in self.new)

    def logprobs(self) -> np.ndarray:
        """float64[n] of its own tokens."""
        return values(self.new)

    def ids(self) -> np.ndarray:
        """int32[n] of its own tokens."""
        return np.concatenate([n.segment.ids for n in self.new]) if self.new else np.empty(0, np.int32)


def values(nodes: Sequence[Node], track: str = "") -> np.ndarray:
    """float64[n]: log-probabilities of the nodes' sampled tokens, or a track (NaN where there is none)."""
    parts = []
    for node in nodes:
        found = node.segment.tracks.get(track) if track else node.segment.logprobs
        parts.append(np.full(len(node.segment), np.nan) if found is None else found.astype(np.float64))
    return np.concatenate(parts) if parts else np.empty(0)


class Grove(Copied, ABC):
    """The trees of one allocation of one group; a topology says in `sprout` what is sampled next."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rounds = 0
        """Of shoots, so far."""
        self.shoots: dict[str, Shoot] = {}
        """In the order in which they were asked for."""
        self.done: dict[str, StopReason] = {}
        """Shoots that leaves end with."""
        self.dropped: dict[str, str] = {}
        """Shoots that nothing goes on from, `reason: words`."""
        self.signals: dict[str, Signals] = {}
        """Of those that were looked at."""
        self.lost = 0
        """Pieces that did not come: no budget, or they failed too often. What could go on for ever must end then."""
        self._pending: dict[str, tuple[int, str, int]] = {}
        """Samples of this round: (tree, parent, offset)."""
        self._arrived: dict[str, Piece] = {}
        self._asked: list[str] = []
        self._looking: set[str] = set()
        self._cuts: dict[tuple[str, int], Path] = {}

    @abstractmethod
    def sprout(self) -> Iterable[Sample | Look]:
        """What to sample (`shoot`) or look at (`look`) now that everything asked for is in; nothing = the trees are grown."""

    # ---- the round's side --------------------------------------------------------------------------------------

    def start(self) -> list[Want]:
        return self._go_on()

    def tell(self, outcome: Outcome) -> list[Want]:
        if isinstance(outcome, Seen):
            self.signals[outcome.name.removeprefix("look.")] = outcome.signals
            self._looking.discard(outcome.name)
        elif isinstance(outcome, Piece):
            self._arrived[outcome.name] = outcome
        elif isinstance(outcome, Lost) and outcome.name in self._looking:
            self._looking.discard(outcome.name)
        elif isinstance(outcome, Lost):
            self._pending.pop(outcome.name)
            self.lost += 1
        else:
            assert not isinstance(outcome, Played), "a tree of samples plays no acts"
        if self._looking or len(self._arrived) < len(self._pending):
            return []
        for name in self._asked:
            if (piece := self._arrived.get(name)) is not None:
                tree, parent, at = self._pending[name]
                new, n = [], path_length(piece.path)
                for node in reversed(piece.path):
                    n -= len(node.segment)
                    if n < at:
                        break
                    new.append(node)
                self.shoots[name] = Shoot(name, tree, parent, at, piece.path, tuple(reversed(new)), piece.stop, piece.seed)
        self._pending.clear()
        self._arrived.clear()
        self._asked.clear()
        return self._go_on()

    def _go_on(self) -> list[Want]:
        self.rounds += 1
        if self.rounds > MOST_ROUNDS:
            raise RuntimeError(f"the trees of group {self.plan.group} have grown {MOST_ROUNDS} rounds; their rules have no end")
        wants: list[Want] = list(self.sprout())
        return wants or self._harvest()

    # ---- for topologies ----------------------------------------------------------------------------------------

    def draws(self, purpose: str = "tree") -> np.random.Generator:
        """This round's draws."""
        return generator(self.plan.seed, purpose, self.plan.group, self.plan.stage, self.rounds)

    def start_of(self, tree: int) -> int:
        """Flat offset of a tree's first own token."""
        return path_length(self.plan.roots[tree])

    def own(self, shoot: Shoot) -> tuple[Node, ...]:
        """Nodes of the answer up to the shoot's end."""
        return shoot.path[len(self.plan.roots[shoot.tree]) :]

    def room(self, tree: int, at: int) -> int:
        """Tokens an answer may still have at a flat offset."""
        return self.plan.how.max_tokens - (at - self.start_of(tree))

    def shoot(
        self, name: str, tree: int, before: Shoot | None = None, at: int | None = None, limit: int | None = None
    ) -> Sample:
        """Ask for a piece: from the root, or after `before` (None = at its end, else cut there), of at most `limit` tokens."""
        root = self.plan.roots[tree]
        if before is None:
            path, parent, at = root, "", self.start_of(tree)
        else:
            at = before.end if at is None else at
            path, parent = self._head(before, at), self._holding(before, at)
        room = self.room(tree, at)
        if room < 1:
            raise ValueError(f"the tree of group {self.plan.group} asks for the piece {name!r} where an answer has no room")
        law, later = self.plan.how.at(at - self.start_of(tree))
        self._pending[name] = tree, parent, at
        self._asked.append(name)
        most = room if limit is None else min(room, limit)
        of = "" if before is None else before.name
        return Sample(name, path, law, most, later, fork_of=of, fork_at=at if of else 0, retain=True)

    def look(self, shoot: Shoot) -> Look:
        """Have a finished shoot judged now; what comes of it is in `signals`."""
        self._looking.add(f"look.{shoot.name}")
        return Look(f"look.{shoot.name}", shoot.path, self.done[shoot.name])

    def finish(self, shoot: Shoot, stop: StopReason | None = None) -> None:
        """A leaf ends with this shoot."""
        self.done[shoot.name] = shoot.stop if stop is None else stop

    def line(self, shoot: Shoot, at: int | None = None) -> list[Shoot]:
        """The shoots a path goes through, from the root on, up to `at` (None = the shoot's end)."""
        found = [shoot]
        while found[-1].parent:
            found.append(self.shoots[found[-1].parent])
        return [s for s in reversed(found) if at is None or s.at < at]

    def _head(self, shoot: Shoot, at: int) -> Path:
        """The path up to a flat offset; equal asks give the same objects."""
        if at == path_length(shoot.path):
            return shoot.path
        holder = self._holding(shoot, at)
        if not holder:
            return self.plan.roots[shoot.tree]
        key = holder, at
        if key not in self._cuts:
            self._cuts[key] = cut(self.shoots[holder].path, at)[0]
        return self._cuts[key]

    def _holding(self, shoot: Shoot, at: int) -> str:
        """The shoot of its line that holds the token before `at`; empty = the root does."""
        while at <= shoot.at:
            if not shoot.parent:
                return ""
            shoot = self.shoots[shoot.parent]
        return shoot.name

    # ---- leaves ------------------------------------------------------------------------------------------------

    def _harvest(self) -> list[Want]:
        """The leaves, on nodes that are cut wherever one of them leaves another; what no leaf goes through is spilled."""
        lines = {name: self.line(self.shoots[name]) for name in self.shoots if name in self.done}
        used = {s.name: s for line in lines.values() for s in line}
        paths: dict[str, Path] = {}
        for shoot in (s for s in self.shoots.values() if s.name in used):  # a parent stands before what leaves it
            before = self.plan.roots[shoot.tree] if not shoot.parent else _up_to(paths[shoot.parent], shoot.at)
            forks = {s.at for s in used.values() if s.parent == shoot.name and s.at < shoot.end}
            own = _cut_at(shoot.new, {at - shoot.at for at in forks})
            if own and own[0].parent != before[-1].id:
                own = (replace(own[0], parent=before[-1].id), *own[1:])
            paths[shoot.name] = (*before, *own)
        several = len(self.plan.roots) > 1
        out: list[Want] = [
            Leaf(
                name,
                paths[name],
                self.done[name],
                tuple(s.name for s in line),
                seed=line[-1].seed,
                meta={"tree": f"{self.plan.stage}.{line[-1].tree}"} if several else {},
                judged=self.signals.get(name),
            )
            for name, line in lines.items()
        ]
        unused = (name for name in self.shoots if name not in used)
        return out + [Spill(name, self.dropped.get(name, "unfinished: no leaf goes through it")) for name in unused]


def _up_to(path: Path, at: int) -> Path:
    """The nodes before a flat offset that is a border between nodes."""
    n = 0
    for i, node in enumerate(path):
        if n == at:
            return path[:i]
        n += len(node.segment)
    return path


def _cut_at(nodes: Path, places: Iterable[int]) -> Path:
    """Nodes cut at offsets from their start."""
    out: Path = ()
    done = 0
    for place in sorted(places):
        head, nodes = cut(nodes, place - done)
        out, done = (*out, *head), place
    return (*out, *nodes)
