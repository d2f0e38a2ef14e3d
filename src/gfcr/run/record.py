"""What is committed, and what a resume gets. Invariant: a resume point names one committed step, and its batches are exactly
those the optimiser took since the checkpoint, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gfcr.types import Batch, Decision, Group


@dataclass(frozen=True, slots=True, eq=False)
class StepRecord:
    """One step, as the run loop hands it over."""

    step: int
    """Rises with every commit; the first may be 0 or 1."""
    round: int
    version: int
    """Published weights after this step."""
    groups: Sequence[Group] = ()
    """Every group of the round, with all members, kept and dropped."""
    batch: Batch | None = None
    """What the optimiser took; None for a round that ended without a batch."""
    decisions: Sequence[Decision] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """JSON data; `step`, `round` and `version` are added."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """State of everything but weights and optimiser after this step: see run/state.py for what it may hold."""
    checkpoint: Callable[[Path], object] | None = None
    """Writes weights and optimiser state as safetensors to the path it gets; None = no checkpoint at this step."""
    progress: float = 0.0
    """What the trainer's schedule read at this step (share of the budget spent, 0 to 1); given back for the replay."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayStep:
    """One optimiser step to make again."""

    step: int
    round: int
    version: int
    """Published weights after it."""
    progress: float
    batch: Batch | None


@dataclass(frozen=True, slots=True, eq=False)
class ResumePoint:
    """Where a run continues: load `checkpoint`, train on `batches()` in order, load `state`."""

    step: int | None
    """The last committed step; None when nothing was committed yet."""
    round: int | None
    version: int | None
    state: dict[str, Any]
    """As committed with `step`; empty when nothing was committed."""
    checkpoint: Path | None
    """Newest checkpoint; None = start from the initial weights."""
    checkpoint_step: int | None
    steps: tuple[int, ...]
    """Committed steps after the checkpoint."""
    load: Callable[[int], ReplayStep]

    def batches(self) -> Iterator[ReplayStep]:
        """The steps after the checkpoint, one in memory at a time. Raises Tampered for data that differ from their digest."""
        return (self.load(step) for step in self.steps)
