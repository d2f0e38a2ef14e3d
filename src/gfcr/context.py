"""What methods are built with and what they see of a round. Invariant: methods read these and never write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gfcr.types import Artifact, Path, Sampling, Segment, Task


class Difficulty(Protocol):
    """Beta posteriors of tasks' success probabilities (control/posterior.py)."""

    def beta(self, ids: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(a, b), float64[n] each: parameters of each task's Beta posterior."""


class Memory(Protocol):
    """Replay as it stood at the round's start (replay/memory.py)."""

    def of_task(self, task_id: str) -> Sequence[Artifact]:
        """Artifacts of a task, oldest first."""


@dataclass(frozen=True)
class Build:
    """Facts of the recipe that methods may need when they are built."""

    seed: int
    tasks: Sequence[Task]
    groups: int
    """Groups a round plans."""
    k: int
    """Rollouts a group plans (K)."""
    max_tokens: int
    """Longest answer, in tokens."""
    privileged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Named sets of task ids that only oracles may use; empty when the source has none."""
    decode: Callable[[np.ndarray], str] | None = None
    """Token ids -> text; None without a tokenizer."""


@dataclass(frozen=True)
class View:
    """What a slot sees of the current round."""

    round: int
    version: int
    """Weights in use."""
    seed: int
    difficulty: Difficulty
    memory: Memory


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One rollout a topology plans."""

    path: Path
    sampling: Sampling
    max_tokens: int
    branch: int = 0
    """Part of the stream's key: siblings of a fork differ in it."""
    fork_of: int | None = None
    """Index, among the group's members, of the stream it leaves; None = its own."""
    fork_at: int = 0


@dataclass(frozen=True, slots=True)
class Seed:
    """What conditions generation besides the prompt."""

    segments: tuple[Segment, ...]
    """Put after the prompt: GUIDANCE, FORCED or replayed ACTION tokens."""
    reason: str
    train_without: bool = False
    """Train on the context without them."""
    source: str | None = None
    """Artifact id; None when not from replay."""
