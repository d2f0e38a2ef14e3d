"""A best-first tree with rules by name: which path goes on, where it is forked, what is given up, which paths are one (rules.py).

Invariants: leaves and open paths together never exceed k; the tree never decodes more than `tokens`; whatever is given up says why, and
its tokens are booked as discarded. Paths in one state are merged by going on with the best of them: tokens sampled after one path
are never put after another, where they would be no sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from pydantic import Field

from gfcr.context import Build, Configuration, View
from gfcr.errors import ConfigError
from gfcr.generate.growth import Look, Sample
from gfcr.generate.trees.plan import Grove, Plan, Shoot
from gfcr.generate.trees.rules import FORKS, PRUNES, SCORES, STATES, Fork, Prune, Score, State, by_value, named
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group, Path, StopReason


class BestFirstSettings(FrozenModel):
    k: int = Field(8, ge=1)
    """Leaves per prompt."""
    segment: int = Field(64, ge=1)
    """Tokens of a piece."""
    first: int = Field(2, ge=1)
    """Pieces to begin with."""
    branches: int = Field(2, ge=1)
    """Pieces that follow one, as far as k allows."""
    wide: int = Field(4, ge=1)
    """Paths that go on at once, the most promising ones; the others wait."""
    fork: str = "segment"
    """Where a path is forked: `segment`, `surprisal`, `random`, or a function of yours."""
    score: str = "logprob"
    """How promising a path is: `logprob`, `entropy`, `value` (p (1 - p) of the judged leaves below), or a function of yours."""
    prune: str = "none"
    """What is given up: `none`, `margin`, `duplicate`, or a function of yours."""
    margin: float = Field(1.0, ge=0)
    """Nats a token a path may lie below the best one."""
    merge: str = "none"
    """Key of the state that a path is in, equal ones being merged: `none`, `text` (the last `tail` characters), or a function of yours."""
    tail: int = Field(16, ge=1)
    """Characters of the text that `merge` compares."""
    tokens: int | None = Field(None, ge=1)
    """Most tokens a group decodes; None = k of the longest answers."""

    def worst_tokens(self, max_tokens: int) -> int:
        """Most tokens a group generates."""
        return self.k * max_tokens if self.tokens is None else self.tokens


@method(
    "best-first",
    Slot.TOPOLOGY,
    title="best-first tree",
    criterion="cost",
    faithfulness=Faithfulness.OURS,
    traits=("breaks: iid group", "shares prefixes", "grows in pieces"),
)
class BestFirst:
    """Segments; the most promising paths go on and branch, finished ones are forked until there are k leaves or no tokens left."""

    Settings = BestFirstSettings

    def __init__(self, settings: BestFirstSettings, build: Build) -> None:
        s = self.settings = settings
        self.fork: Fork = named(FORKS, s.fork, "fork")
        self.score: Score = named(SCORES, s.score, "score")
        self.prune: Prune | None = None if s.prune == "none" else named(PRUNES, s.prune, "prune")
        self.state: State | None = None if s.merge == "none" else named(STATES, s.merge, "merge")
        if build.decode is None and (self.prune or self.state):
            raise ConfigError(
                "generate.topology 'best-first' compares texts, and there is no tokenizer to read them",
                'set its prune = "none" and its merge = "none"',
            )
        self.decode = build.decode

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Grove:
        return _Growing(Plan.by_base(group, bases, how, view), self)


class _Growing(Grove):
    def __init__(self, plan: Plan, of: BestFirst) -> None:
        super().__init__(plan)
        self.of = of
        self.left = of.settings.worst_tokens(plan.how.max_tokens)
        """Tokens that may still be asked for; what a piece did not use comes back."""
        self.asked: dict[str, int] = {}
        """Most tokens of each piece of the last round."""
        self.open: list[str] = []
        """Shoots that could go on."""

    def sprout(self) -> Iterator[Sample | Look]:
        new = [self.shoots[name] for name in self.asked if name in self.shoots]
        self.left += sum(self.asked.values()) - sum(s.end - s.at for s in new)
        self.asked.clear()
        self._sort(new)
        if self.of.score is by_value and (ended := [s for s in new if s.name in self.done]):
            yield from map(self.look, ended)  # what is promising hangs on it
            return
        rng = self.draws()
        for tree, most in enumerate(self.plan.leaves):
            if self.rounds == 1:
                yield from (s for _ in range(min(self.of.settings.first, most)) if (s := self._ask(tree, None)))
            else:
                yield from self._tree(tree, most, rng)
        if not self.asked:
            self.dropped.update((name, "tree_budget: the tree had no tokens left for it") for name in self.open)

    def _sort(self, new: list[Shoot]) -> None:
        """Which of the new shoots end a leaf, which could go on, which are given up."""
        for shoot in new:
            if shoot.stop is not StopReason.MAX_TOKENS or self.room(shoot.tree, shoot.end) < 1:
                self.finish(shoot)
            else:
                self.open.append(shoot.name)
        for tree in range(len(self.plan.roots)):
            live = [self.shoots[name] for name in self.open if self.shoots[name].tree == tree]
            if self.of.prune is not None:
                found = [*(s for s in new if s.tree == tree and s.name in self.done), *live]
                self._drop(self.of.prune(self, found, self.of.settings.margin, self._text))
            if self.of.state is not None:
                best: dict[str, Shoot] = {}
                for shoot in self._ranked([s for s in live if s.name in self.open]):
                    kept = best.setdefault(self.of.state(self._text(shoot), self.of.settings.tail), shoot)
                    if kept is not shoot:
                        self._drop({shoot.name: f"merged: in the state of {kept.name}"})

    def _drop(self, reasons: Mapping[str, str]) -> None:
        self.dropped.update(reasons)
        self.open = [name for name in self.open if name not in reasons]
        for name in reasons:
            self.done.pop(name, None)

    def _tree(self, tree: int, most: int, rng: np.random.Generator) -> Iterator[Sample]:
        s = self.of.settings
        live = self._ranked([self.shoots[name] for name in self.open if self.shoots[name].tree == tree])
        ended = [shoot for shoot in self.shoots.values() if shoot.tree == tree and shoot.name in self.done]
        free = most - len(live) - len(ended)
        for shoot in live[: s.wide]:
            if (sample := self._ask(tree, (shoot, shoot.end))) is None:
                return
            self.open.remove(shoot.name)
            yield sample
            for _ in range(min(s.branches - 1, free)):
                if (sample := self._ask(tree, self.of.fork(self, shoot, rng) or (shoot, shoot.end))) is None:
                    return
                free -= 1
                yield sample
        if not live and free > 0 and not self.lost:
            for shoot in self._ranked(ended)[: min(s.wide, free)]:
                if (place := self.of.fork(self, shoot, rng)) is not None and (sample := self._ask(tree, place)) is not None:
                    yield sample

    def _ask(self, tree: int, place: tuple[Shoot, int] | None) -> Sample | None:
        """A piece from there on; None when the tree has no tokens left for it."""
        before, at = (None, self.start_of(tree)) if place is None else place
        limit = min(self.of.settings.segment, self.room(tree, at))
        if limit > self.left:
            return None
        name = f"{self.rounds}.{len(self.asked)}"
        self.asked[name], self.left = limit, self.left - limit
        return self.shoot(name, tree, before, at, limit)

    def _ranked(self, shoots: list[Shoot]) -> list[Shoot]:
        """The most promising first; equals in the order they were asked for."""
        return sorted(shoots, key=lambda shoot: -self.of.score(self, shoot))

    def _text(self, shoot: Shoot) -> str:
        assert self.of.decode is not None
        own = [node.segment.ids for node in self.own(shoot)]
        return self.of.decode(np.concatenate(own)) if own else ""
