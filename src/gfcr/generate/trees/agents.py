"""Trees of turns with an environment (Tree-GRPO, arXiv:2509.21240): a node is a whole step of an agent, what it says and what it reads.

Invariants: a chain begins at a reset, or in the kept state of the environment after a step of another chain of its tree, whose tokens and
engine prefix it shares as the same nodes; a round of chains is complete before the next is drawn, tree by tree, so that the order in which
things end changes nothing; leaves are made when all trees are grown; every piece is in a leaf, or discarded as `pruned` or under the
failure that broke it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from gfcr.context import Build, Configuration, View
from gfcr.generate.growth import Copied, Note, Outcome, Spill, Want
from gfcr.generate.interactive.episode import Episode, Mark
from gfcr.generate.interactive.plan import Plan
from gfcr.generate.interactive.settings import TurnSettings
from gfcr.generate.interactive.topology import Interactive
from gfcr.registry import Faithfulness, Slot, method
from gfcr.run.seeds import generator
from gfcr.types import Cost, Group, Path


class AgentTreeSettings(TurnSettings):
    """Official script: M = 2, N = 2, L = 1, K = 3, turns = 3."""

    trees: int = Field(2, ge=1)
    """M: trees of a group, each with one chain to begin with."""
    expand: int = Field(2, ge=1)
    """N: chains that a tree grows in a round."""
    rounds: int = Field(1, ge=0)
    """L."""
    keep: int = Field(3, ge=1)
    """K: leaves kept per tree, drawn; the others are pruned. At most 1 + N L."""
    pick: Literal["uniform", "value"] = "uniform"
    """Where chains begin: at steps drawn uniformly with replacement, the root included (the paper), or at the N states whose judged leaves
    disagree most, p (1 - p) with p = (right + 1) / (judged + 2), equals by lot (ours)."""
    merge: Literal["none", "state"] = "none"
    """`state`: steps of a tree that ended in one state of the environment (equal keys) are one place to begin at (ours)."""

    @model_validator(mode="after")
    def _enough_leaves(self) -> AgentTreeSettings:
        if self.keep > self.per_tree:
            raise ValueError(
                f"keep = {self.keep} leaves of a tree that has {self.per_tree} (1 + expand * rounds): lower keep, or grow more"
            )
        return self

    @property
    def per_tree(self) -> int:
        """Chains of a tree."""
        return 1 + self.expand * self.rounds

    @property
    def k(self) -> int:
        """Leaves planned: M K."""
        return self.trees * self.keep

    def worst_tokens(self, max_tokens: int) -> int:
        """Most tokens a group generates: every chain may begin at the root."""
        return self.trees * self.per_tree * max_tokens


@method(
    "tree-grpo",
    Slot.TOPOLOGY,
    title="Tree-GRPO (trees of turns)",
    arxiv="2509.21240",
    criterion="cost",
    faithfulness=Faithfulness.CONFIRMED,
    traits=(
        "breaks: iid group",
        "shares prefixes",
        "fixed shape",
        "interactive",
        "needs: environment",
        "needs: snapshots",
    ),
)
class TreeGRPO:
    """M chains of turns; L times N steps of each tree are drawn, and a chain grows on from the state after each; K leaves per tree are
    kept (Tree-GRPO, arXiv:2509.21240; official code). Credit: `tree-grpo`, which reads `meta["tree"]`.

    With `merge = "state"` a tree becomes a graph of states. Shared are expansion and value: of the steps that ended in one state only the one
    reached with the fewest own tokens is begun at, and the leaves below any of them count for the state (`pick = "value"`). Not shared are
    tokens: a leaf holds, and is credited for, the path it was sampled in, and nothing sampled after one path is ever put after another. A
    chain that reaches a known state goes on to its end; a credit that compares turns by their state is `gigpo`. What was done for leaves that
    were not kept (environment steps, tool seconds) is booked with the tree's first leaf. Held-out rollouts are independent ones."""

    Settings = AgentTreeSettings

    def __init__(self, settings: AgentTreeSettings, build: Build) -> None:
        self.settings = settings
        turns = {name: getattr(settings, name) for name in TurnSettings.model_fields}
        self.evaluated = Interactive(Interactive.Settings(**turns), build)

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> AgentTrees:
        s = self.settings
        plan = self.evaluated.plan(group, how, view, held=True)

        def draws(tree: int, number: int) -> np.random.Generator:
            return generator(view.seed, "agent-tree", group.id, group.stage, tree, number)

        trees = max(1, len(bases) // s.keep)
        return AgentTrees([AgentTree(s, plan, draws, group.stage, i, bases[i * s.keep]) for i in range(trees)])


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A node that chains may begin after: the root, or a step that something was said after."""

    session: str
    mark: Mark
    state: str
    """Key of the environment's state; empty = not known."""

    def above(self, chain: Episode) -> bool:
        """Whether a chain goes through it."""
        return tuple(chain.pieces[: len(self.mark.pieces)]) == self.mark.pieces


@dataclass
class AgentTree(Copied):
    """One tree while it grows."""

    settings: AgentTreeSettings
    plan: Plan
    draws: Callable[[int, int], np.random.Generator]
    stage: int
    number: int
    base: Path
    chains: list[Episode] = field(default_factory=list)
    rounds: int = 0
    grown: bool = False
    merged: set[tuple[str, ...]] = field(default_factory=set)
    """Pieces of the steps whose merging is on record."""

    def start(self) -> list[Want]:
        return self._chain(None)

    def tell(self, index: int, outcome: Outcome) -> list[Want]:
        wants = list(self.chains[index].tell(outcome))
        if not self.grown and all(chain.ended for chain in self.chains):
            wants += self._expand()
        return wants

    def _chain(self, at: Step | None) -> list[Want]:
        index = self.number * self.settings.per_tree + len(self.chains)
        begun = (None, "") if at is None else (at.mark, at.session)
        self.chains.append(Episode(self.plan, index, self.base, *begun))
        return self.chains[-1].start()

    def _expand(self) -> list[Want]:
        """A round of chains, or none when there are enough."""
        steps = self.steps()
        if self.rounds >= self.settings.rounds or not steps:
            self.grown = True
            return []
        self.rounds += 1
        states, wants = self._states(steps)
        rng, n = self.draws(self.number, self.rounds), self.settings.expand
        if self.settings.pick == "uniform":
            chosen = [int(i) for i in rng.integers(len(states), size=n)]
        else:
            worth = [self._worth(same) for same in states]
            order = sorted(rng.permutation(len(states)).tolist(), key=lambda i: -worth[i])
            chosen = [order[i % len(order)] for i in range(n)]
        for i in chosen:
            wants += self._chain(min(states[i], key=lambda step: step.mark.used))
        return wants

    def steps(self) -> list[Step]:
        """Nodes that are no leaves, each once, in the order in which the chains were begun."""
        found: dict[tuple[str, ...], Step] = {}
        for chain in self.chains:
            for mark in chain.marks:  # a branched chain's first mark is the node it began at
                state = mark.states[-1] if mark.states else self.chains[0].initial
                found.setdefault(mark.pieces, Step(chain.session, mark, state))
        return list(found.values())

    def _states(self, steps: list[Step]) -> tuple[list[list[Step]], list[Want]]:
        """Steps by the state they are one of, and what is put on record about it."""
        if self.settings.merge == "none":
            return [[step] for step in steps], []
        found: dict[str | tuple[str, ...], list[Step]] = {}
        for step in steps:
            found.setdefault(step.state or step.mark.pieces, []).append(step)
        notes: list[Want] = []
        for first, *rest in found.values():
            for step in rest:
                if step.mark.pieces not in self.merged:
                    self.merged.add(step.mark.pieces)
                    notes.append(
                        Note("merge", f"same_state: {_named(step)} ended where {_named(first)} did", {"state": step.state})
                    )
        return list(found.values()), notes

    def _worth(self, same: Iterable[Step]) -> float:
        """How much the judged leaves below any of these steps disagree."""
        told = [chain.verdict.correct for chain in self.chains if chain.verdict and any(step.above(chain) for step in same)]
        judged = [right for right in told if right is not None]
        p = (sum(judged) + 1) / (len(judged) + 2)
        return p * (1 - p)

    def harvest(self) -> list[Want]:
        """The leaves that are kept; the others' pieces are given up, and all sessions end."""
        held = [chain for chain in self.chains if chain.doing == "held"]
        keep = min(self.settings.keep, len(held))
        drawn = self.draws(self.number, 0).permutation(len(held))[:keep].tolist()
        leaves = [held[i].leaf(held[i].verdict) for i in sorted(drawn)]
        kept = {held[i].index for i in drawn}
        wants: list[Want] = []
        if len(held) > keep:
            wants.append(Note("prune", f"drawn: {keep} of {len(held)} leaves are kept", {"tree": self.number}))
        rest = [chain for chain in self.chains if chain.index not in kept]
        extra = Cost(env_steps=sum(c.steps for c in rest), tool_seconds=sum(c.seconds for c in rest))
        for i, leaf in enumerate(leaves):
            wants.append(
                replace(
                    leaf, meta={**leaf.meta, "tree": f"{self.stage}.{self.number}"}, cost=leaf.cost if i else leaf.cost + extra
                )
            )
        used = {name for leaf in leaves for name in leaf.pieces}
        given_up = {name: None for chain in held for name in chain.pieces if name not in used}
        wants += [Spill(name, "pruned: of a leaf that was not drawn") for name in given_up]
        return wants + [want for chain in held for want in chain.dismiss()]


@dataclass
class AgentTrees(Copied):
    """The trees of one allocation."""

    trees: list[AgentTree]
    harvested: bool = False

    def start(self) -> list[Want]:
        return [want for tree in self.trees for want in tree.start()]

    def tell(self, outcome: Outcome) -> list[Want]:
        tree, index = divmod(int(outcome.name.partition(".")[0]), self.trees[0].settings.per_tree)
        wants = self.trees[tree].tell(index, outcome)
        if not self.harvested and all(tree.grown for tree in self.trees):
            self.harvested = True
            wants += [want for tree in self.trees for want in tree.harvest()]
        return wants


def _named(step: Step) -> str:
    turn = step.mark.dialogue.turn
    return f"turn {turn} of rollout {step.session.rpartition('.')[2]}" if turn else "the root"
