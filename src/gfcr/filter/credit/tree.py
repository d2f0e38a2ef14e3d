"""Credit on trees: TreeRL, TreeRPO, TreePO, Tree-GRPO.

Invariants: they work on the tree of nodes (branches.py), so independent answers are a tree of depth one; an all-equal group gets exactly
0; a tree of one leaf gets 0 (the official codes assert, or fall back to the raw reward); a member's path holds the shared tokens too,
so a shared token is trained with the sum over the leaves below it, packed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.admission import REWARD_TOLERANCE
from gfcr.filter.credit.batch import rl_tokens
from gfcr.filter.credit.branches import Tree
from gfcr.filter.credit.group import GROUP_TRAITS, GroupBaseline, centred, rewards_of, standardised
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Credit, LossRole, Member

_LOCAL_ZERO = 1e-8
"""TreeRL's code takes a local advantage smaller than this for 0."""


class _ByBranch(GroupBaseline):
    """One advantage per branch."""

    def by_branch(self, tree: Tree, rewards: np.ndarray) -> np.ndarray:
        """float64[branches] from float64[members]."""
        raise TypeError("a credit on trees defines its branches' advantages")

    def credits(self, members: Sequence[Member]) -> list[Credit]:
        tree = Tree.of(members)
        tokens = tree.tokens(self.by_branch(tree, rewards_of(members)))
        return [Credit(np.where(rl_tokens(m.rollout), t, np.float32(0))) for m, t in zip(members, tokens)]


@method(
    "treerl",
    Slot.CREDIT,
    title="TreeRL",
    arxiv="2506.11902",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=(*GROUP_TRAITS, "per-token advantages"),
)
class TreeRL(_ByBranch):
    """A(n) = ((V(n) - V(root)) + (V(n) - V(parent))) / sqrt(leaves below n) for every token of branch n, V = mean of the leaves' rewards
    less those of the others (TreeRL, arXiv:2506.11902; formula second-hand)."""

    class Settings(FrozenModel):
        form: Literal["paper", "code"] = "paper"
        """`code`: the official code's order: V less its token-weighted mean, divided by the root of the leaves *before* the
        difference, and a branch whose local part is 0 has the one of the branch before it."""
        leave_one_out: bool = True
        """Centre each leaf's reward by the mean of the others (n / (n - 1) times as large as by the mean of all)."""
        divide: Literal["sqrt", "none"] = "sqrt"
        """By the root of the number of leaves below, so that shared tokens do not dominate; `none` is the ablation."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def by_branch(self, tree: Tree, rewards: np.ndarray) -> np.ndarray:
        n = len(rewards)
        centre = centred(rewards) * (n / (n - 1) if self.settings.leave_one_out else 1.0)
        if not centre.any():
            return np.zeros(len(tree.branches))
        sizes, sums = tree.sizes, tree.sums(centre)
        root = np.sqrt(sizes) if self.settings.divide == "sqrt" else np.ones_like(sizes)
        parents = [b.parent for b in tree.branches]
        if self.settings.form == "paper":
            value = sums / sizes
            before = np.array([value[0] if p is None else value[p] for p in parents])
            return np.asarray(((value - value[0]) + (value - before)) / root)
        own = np.array([b.own for b in tree.branches], np.float64)
        mean = (own * sums).sum() / (own * sizes).sum() if own.any() else 0.0
        value = (sums / sizes - mean) / root
        if not tree.branches[0].own:  # the prompt is no step: its leaves' centred rewards sum to 0
            value[0] = 0.0
        local = value - np.array([0.0 if p is None else value[p] for p in parents])
        for i, p in enumerate(parents):
            if p is not None and tree.branches[p].own and abs(local[i]) < _LOCAL_ZERO:
                local[i] = local[p]
        return np.asarray(local + value)


@method(
    "treerpo",
    Slot.CREDIT,
    title="TreeRPO",
    arxiv="2506.05183",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=(*GROUP_TRAITS, "per-token advantages"),
)
class TreeRPO(_ByBranch):
    """A leaf's value is its reward, a branch's the mean of its children's; the children of one branch are a group:
    A(child) = (value - mu) / (sqrt(mu (1 - mu)) + eps) (TreeRPO, arXiv:2506.05183; the normaliser is UNCONFIRMED)."""

    class Settings(FrozenModel):
        spread: Literal["bernoulli", "std", "none"] = "bernoulli"
        """What the difference is divided by. UNCONFIRMED: `bernoulli`, sqrt(mu (1 - mu)), which does not blow {.49, .51} up; it
        needs rewards from 0 to 1."""
        eps: float = Field(1e-6, ge=0)
        """Added to the spread."""
        least: float = Field(0.1, ge=0)
        """Children whose values lie within less than this get 0. UNCONFIRMED (about .1)."""
        count: Literal["step", "leaf"] = "step"
        """`step`: a branch is one sample however many leaves pass through it (its advantage is divided by their number, and the
        rows' sum is the advantage). `leaf`: it counts once per leaf. UNCONFIRMED."""

        def traits(self) -> frozenset[str]:
            bounded = {"assumes: rewards from 0 to 1"} if self.spread == "bernoulli" else set()
            return frozenset(bounded if self.spread == "none" else bounded | {"divides by std"})

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def by_branch(self, tree: Tree, rewards: np.ndarray) -> np.ndarray:
        s, children = self.settings, tree.children()
        value, out = np.zeros(len(tree.branches)), np.zeros(len(tree.branches))
        for i in range(len(tree.branches) - 1, -1, -1):  # children stand after their parent
            below = children[i]
            value[i] = value[below].mean() if below else rewards[tree.branches[i].leaves[0]]
            if len(below) > 1 and np.ptp(value[below]) >= max(s.least, REWARD_TOLERANCE):
                out[below] = self._group(value[below])
        return np.asarray(out / tree.sizes if s.count == "step" else out)

    def _group(self, values: np.ndarray) -> np.ndarray:
        if self.settings.spread == "std":
            return standardised(values, "population", self.settings.eps)
        centre = centred(values)
        if self.settings.spread == "none":
            return centre
        if (wrong := values[(values < -REWARD_TOLERANCE) | (values > 1 + REWARD_TOLERANCE)]).size:
            raise ConfigError(
                f"filter.credit 'treerpo' with spread = 'bernoulli' needs rewards from 0 to 1, and a step is worth {wrong[0]:.6g}",
                "set its spread to 'std' or 'none', or use rewards from 0 to 1",
            )
        mean = values.mean()
        return np.asarray(centre / (np.sqrt(max(mean * (1 - mean), 0.0)) + self.settings.eps))


@method(
    "treepo",
    Slot.CREDIT,
    title="TreePO",
    arxiv="2508.17445",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=(*GROUP_TRAITS, "needs: batch normalisation"),
)
class TreePO(GroupBaseline):
    """For every depth d above the leaf r - mean of the leaves that share its first d segments; one advantage per leaf combines them
    (TreePO, arXiv:2508.17445, eq. 5 and 6). Groups of one are skipped, depth 0 (the whole group) always counts; whitening over the batch's
    tokens follows."""

    class Settings(FrozenModel):
        combine: Literal["average", "group_size"] = "average"
        """Plain mean over depths, or weighted by the size of each group (worse in the paper's ablation)."""
        depth: Literal["segments", "forks"] = "segments"
        """`segments`: every own segment of the path is a depth, as in the official code, so an unbranched stretch of several counts
        several times. `forks`: each set of leaves counts once."""
        most: int = Field(14, ge=1)
        """Depths at most, depth 0 included (official script: 14)."""
        skip_equal: bool = False
        """Leave out groups below the root whose rewards are all equal (hurts in the paper's ablation)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def of(self, members: Sequence[Member]) -> np.ndarray:
        rewards, out = rewards_of(members), np.zeros(len(members))
        levels = self._levels(members)
        means = {group: centred(rewards[list(group)]) for groups in levels for group in groups}
        for leaf, groups in enumerate(levels):
            kept = [(means[g][g.index(leaf)], len(g)) for i, g in enumerate(groups) if i == 0 or self._counts(means[g])]
            weights = [size if self.settings.combine == "group_size" else 1 for _, size in kept]
            out[leaf] = float(np.average([a for a, _ in kept], weights=weights))
        return out

    def _counts(self, centre: np.ndarray) -> bool:
        return len(centre) > 1 and not (self.settings.skip_equal and not centre.any())

    def _levels(self, members: Sequence[Member]) -> list[list[tuple[int, ...]]]:
        """Per leaf, the members it shares each depth with, from the whole group on."""
        if self.settings.depth == "forks":
            branches = Tree.of(members).branches
            found: list[list[tuple[int, ...]]] = [[] for _ in members]
            for branch in branches:
                for leaf in branch.leaves if branch.parent is None or len(branch.leaves) > 1 else ():
                    found[leaf].append(branch.leaves)
            return [groups[: self.settings.most] for groups in found]
        prefixes = [_prefixes(m)[: self.settings.most] for m in members]
        sharing: dict[tuple[str, ...], list[int]] = {}
        for leaf, own in enumerate(prefixes):
            for prefix in own:
                sharing.setdefault(prefix, []).append(leaf)
        return [[tuple(sharing[prefix]) for prefix in own] for own in prefixes]


def _prefixes(member: Member) -> list[tuple[str, ...]]:
    """What stands above the leaf at each depth: ids up to the d-th own segment, the last one left out; depth 0 is empty."""
    out: list[tuple[str, ...]] = [()]
    ids: tuple[str, ...] = ()
    for node in member.rollout.trained_path:
        ids = (*ids, node.id)
        if node.segment.role is LossRole.RL:
            out.append(ids)
    return out[: max(len(out) - 1, 1)]


@method(
    "tree-grpo",
    Slot.CREDIT,
    title="Tree-GRPO",
    arxiv="2509.21240",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=(*GROUP_TRAITS, "divides by std"),
)
class TreeGRPO(GroupBaseline):
    """A = GRPO over the task's answers + GRPO over those of one tree (Tree-GRPO, arXiv:2509.21240). A rollout's tree is
    `meta["tree"]` where its topology names it, else its first own node; a tree of one leaf adds 0 (the code adds the raw reward)."""

    class Settings(FrozenModel):
        std: Literal["population", "sample"] = "sample"
        """`sample` (ddof 1) is the official code's."""
        eps: float = Field(1e-6, ge=0)
        """Added to both stds."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def of(self, members: Sequence[Member]) -> np.ndarray:
        rewards, s = rewards_of(members), self.settings
        out = standardised(rewards, s.std, s.eps)
        trees: dict[str, list[int]] = {}
        for i, member in enumerate(members):
            trees.setdefault(_tree_of(member), []).append(i)
        for inside in trees.values():
            if len(inside) > 1:
                out[inside] += standardised(rewards[inside], s.std, s.eps)
        return out


def _tree_of(member: Member) -> str:
    first = next((n.id for n in member.rollout.trained_path if n.segment.role is LossRole.RL), member.rollout.id)
    return str(member.rollout.meta.get("tree", first))
