"""The tree that a group's paths make: what credits on trees compute over.

Invariants: structure is read off node ids along the trained paths, never off text; a branch is a maximal stretch of nodes with one
set of members below it, so cutting a node in two, or a turn's observation between two nodes, changes no credit; independent answers
are a tree of depth one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gfcr.types import LossRole, Member, Path


@dataclass(frozen=True, slots=True)
class Branch:
    """Tokens that the same members pass through."""

    leaves: tuple[int, ...]
    """Members below it, by their place in the group."""
    start: int
    """First token, as offset of the trained path (one number for all its members)."""
    end: int
    """One past the last token; equal to `start` for a member whose path ends where others go on."""
    parent: int | None
    """Branch it leaves; None for the root, which holds what all members share."""
    own: int
    """Tokens of it with an RL loss."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Branches, each after the one it leaves; the first is the root."""

    branches: tuple[Branch, ...]
    lengths: tuple[int, ...]
    """Tokens of each member's path."""

    @classmethod
    def of(cls, members: Sequence[Member]) -> Tree:
        """The tree of the members' trained paths, one member or more."""
        paths = [m.rollout.trained_path for m in members]
        found: list[Branch] = []
        open_: list[tuple[tuple[int, ...], int, int, int | None]] = [(tuple(range(len(paths))), 0, 0, None)]
        while open_:  # each entry has fewer members than the one it comes from, or none that go on
            leaves, depth, start, parent = open_.pop()
            end, own = start, 0
            while _shared(paths, leaves, depth):
                segment = paths[leaves[0]][depth].segment
                end, depth = end + len(segment), depth + 1
                own += len(segment) * (segment.role is LossRole.RL)
            found.append(Branch(leaves, start, end, parent, own))
            here = len(found) - 1
            split: dict[str | int, list[int]] = {}  # by the node that follows; a path that ends is a branch of its own
            for leaf in leaves if len(leaves) > 1 else ():
                split.setdefault(paths[leaf][depth].id if len(paths[leaf]) > depth else leaf, []).append(leaf)
            open_ += [(tuple(below), depth, end, here) for below in reversed(split.values())]
        return cls(tuple(found), tuple(sum(len(n.segment) for n in path) for path in paths))

    @property
    def sizes(self) -> np.ndarray:
        """float64[branches]: members below each."""
        return np.array([len(b.leaves) for b in self.branches], np.float64)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """float64[branches]: sum over the members below each of float64[members]."""
        return np.array([values[list(b.leaves)].sum() for b in self.branches])

    def children(self) -> list[list[int]]:
        """Of each branch."""
        out: list[list[int]] = [[] for _ in self.branches]
        for i, branch in enumerate(self.branches):
            if branch.parent is not None:
                out[branch.parent].append(i)
        return out

    def tokens(self, values: np.ndarray) -> list[np.ndarray]:
        """Per member float32[n] over its trained path's tokens: the value of the branch each lies in, from
        float64[branches]."""
        out = [np.zeros(n, np.float32) for n in self.lengths]
        for branch, value in zip(self.branches, values):
            for leaf in branch.leaves:
                out[leaf][branch.start : branch.end] = value
        return out


def _shared(paths: Sequence[Path], leaves: Sequence[int], depth: int) -> bool:
    """Whether all of these paths have the same node at this depth."""
    first = paths[leaves[0]]
    return len(first) > depth and all(len(paths[i]) > depth and paths[i][depth].id == first[depth].id for i in leaves)
