"""EPTree, TreeRL's sampling (arXiv:2506.11902): whole chains, then forks at the tokens the policy was least sure of.

Invariants: the forked token itself is sampled anew; every chain and every fork is a leaf; a tree without a token to fork at is left as
it is. Not built: training on a part of the leaves only (the paper's arm with 16 of 30).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice

import numpy as np
from pydantic import Field

from gfcr.context import Build, Configuration, View
from gfcr.errors import ConfigError
from gfcr.generate.growth import Sample
from gfcr.generate.trees.plan import Grove, Plan, Shoot
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group, Path

Decode = Callable[[np.ndarray], str]


class TreeRLSettings(FrozenModel):
    trees: int = Field(6, ge=1)
    """M: chains to begin with, each the trunk of a tree."""
    forks: int = Field(2, ge=1)
    """N: tokens of each tree that are forked at in a round; one that has fewer repeats them."""
    rounds: int = Field(1, ge=0)
    """L."""
    continuations: int = Field(2, ge=1)
    """T: continuations of each fork."""
    stop_words: tuple[str, ...] = ("conclusion", "answer")
    """No fork after a token whose text holds one of these, in any case (official code)."""

    @property
    def per_tree(self) -> int:
        return 1 + self.forks * self.rounds * self.continuations

    @property
    def k(self) -> int:
        """Leaves planned: M (1 + N L T)."""
        return self.trees * self.per_tree

    def worst_tokens(self, max_tokens: int) -> int:
        """Most tokens a group generates; a fork keeps one token of its parent at least."""
        return self.trees * (max_tokens + (self.per_tree - 1) * max(max_tokens - 1, 0))


@method(
    "treerl",
    Slot.TOPOLOGY,
    title="TreeRL (EPTree)",
    arxiv="2506.11902",
    criterion="coverage",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("breaks: iid group", "shares prefixes", "grows in pieces", "fixed shape"),
)
class TreeRLTopology:
    """M chains; L times the N tokens of each tree with the greatest surprisal, -log pi of the sampled token, are forked at, T
    continuations each (TreeRL, arXiv:2506.11902; official code)."""

    Settings = TreeRLSettings

    def __init__(self, settings: TreeRLSettings, build: Build) -> None:
        if settings.stop_words and build.decode is None:
            raise ConfigError(
                "generate.topology 'treerl' looks for stop words, and there is no tokenizer to read them",
                "set its stop_words = []",
            )
        self.settings, self.decode = settings, build.decode

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Grove:
        plan = Plan.by_shape(group, bases, how, view, self.settings.per_tree)
        return _Growing(plan, self.settings, self.decode)


class _Growing(Grove):
    def __init__(self, plan: Plan, settings: TreeRLSettings, decode: Decode | None) -> None:
        super().__init__(plan)
        self.settings, self.decode = settings, decode
        self.most: dict[str, int] = {}
        """First token of a shoot that may not be forked at, because a stop word stands before it."""

    def sprout(self) -> Iterator[Sample]:
        trees = range(len(self.plan.roots))
        for shoot in self.shoots.values():
            self.finish(shoot)
        if self.rounds == 1:
            yield from (self.shoot(f"chain.{tree}", tree) for tree in trees)
        elif self.rounds <= 1 + self.settings.rounds:
            for tree in trees:
                for i, (shoot, token) in enumerate(self._forks(tree)):
                    for j in range(self.settings.continuations):
                        yield self.shoot(f"{self.rounds}.{tree}.{i}.{j}", tree, shoot, shoot.at + token)

    def _forks(self, tree: int) -> list[tuple[Shoot, int]]:
        """(shoot, its token) of the tree's N least likely tokens; fewer repeat, and where none is allowed there is none."""
        found: list[tuple[float, int, int, Shoot]] = []
        for order, shoot in enumerate(s for s in self.shoots.values() if s.tree == tree):
            logprobs = shoot.logprobs()
            found += [(float(logprobs[i]), order, i, shoot) for i in range(1, self._allowed(shoot))]
        found.sort(key=lambda one: one[:3])
        return list(islice(cycle([(shoot, i) for _, _, i, shoot in found[: self.settings.forks]]), self.settings.forks))

    def _allowed(self, shoot: Shoot) -> int:
        """Tokens of a shoot up to the first that holds a stop word, that one counted."""
        if shoot.name not in self.most:
            ids = shoot.ids()
            words = [word.lower() for word in self.settings.stop_words]
            hits = (i for i, t in enumerate(ids) if words and self.decode and _holds(self.decode(ids[i : i + 1]), words))
            self.most[shoot.name] = next(hits, len(ids) - 1) + 1
        return self.most[shoot.name]


def _holds(text: str, words: Sequence[str]) -> bool:
    text = text.lower()
    return any(word in text for word in words)
