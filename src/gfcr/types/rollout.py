"""Nodes and rollouts. Invariants: nodes are shared and frozen, siblings of a tree share node objects; a rollout's path
runs from the prompt to termination; offsets count the path's tokens flat, the prompt included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from gfcr.types.cost import Cost
from gfcr.types.frozen import quickly_made
from gfcr.types.segment import Segment, SegmentKind, StopReason


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A segment at its place in a tree of segments."""

    id: str
    parent: str | None
    """Id of the node before it; None for a root."""
    segment: Segment


Path = tuple[Node, ...]


@quickly_made
@dataclass(frozen=True, slots=True)
class Times:
    """Wall-clock seconds; facts recorded by the driver, never read by a decision in deterministic mode."""

    queued: float = 0.0
    generated: float = 0.0
    judged: float = 0.0


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One trajectory from prompt to termination (tau in the survey)."""

    id: str
    task_id: str
    path: Path
    stop: StopReason
    train_path: Path | None = None
    """The context it is trained under when that differs from the one it was sampled in (a hint removed, say); None
    when both are the same. ACTION nodes are the path's own."""
    state_keys: tuple[str, ...] = ()
    """Per turn, the key of the environment state it ended in; empty for single-turn tasks."""
    seed: int = 0
    """The 64-bit key of its random stream (run/seeds.py)."""
    cost: Cost = Cost()
    times: Times = Times()
    meta: Mapping[str, str] = field(default_factory=dict)

    @property
    def trained_path(self) -> Path:
        return self.path if self.train_path is None else self.train_path

    @property
    def response_length(self) -> int:
        """Tokens the policy wrote (ACTION)."""
        return sum(len(n.segment) for n in self.path if n.segment.kind is SegmentKind.ACTION)

    def actions(self) -> Iterator[Segment]:
        return (n.segment for n in self.path if n.segment.kind is SegmentKind.ACTION)

    def own_tokens(self) -> np.ndarray:
        """int32[n]: the policy's own tokens, all a verifier may see."""
        parts = [s.ids for s in self.actions()]
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, np.int32)


def path_ids(path: Path) -> np.ndarray:
    """int32[n]: all tokens of a path in order."""
    if len(path) == 1:
        return path[0].segment.ids
    return np.concatenate([n.segment.ids for n in path]) if path else np.empty(0, np.int32)


def path_length(path: Path) -> int:
    return sum(len(n.segment) for n in path)
