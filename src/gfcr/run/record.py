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
    progress: float = 0.0
    """What the trainer's schedule read at this step (share of the budget spent, 0 to 1); given back for the replay."""
    decisions: Sequence[Decision] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """JSON data; `step`, `round` and `version` are added."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """State of everything but weights and optimiser after this step: see run/state.py for what it may hold."""
    checkpoint: Callable[[Path], object] | None = None
    """Writes weights and optimiser state as safetensors files into the new directory it is given; None = no checkpoint."""


class Batches:
    """The batches the optimiser took since the checkpoint, read from disk one at a time."""

    def __init__(self, steps: tuple[int, ...], load: Callable[[int], tuple[Batch, float]]) -> None:
        self.steps, self._load = steps, load
        """Their steps, in order."""

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[tuple[Batch, float]]:
        """(batch, progress) in the order they were trained on; empty batches, which nobody trained on, are left out. Raises
        Tampered for data that differ from their digest."""
        return (found for step in self.steps if len((found := self._load(step))[0]))


@dataclass(frozen=True, slots=True, eq=False)
class ResumePoint:
    """Where a run continues: load `checkpoint`, train on `batches` in order, load `state`."""

    step: int
    """The last committed step."""
    round: int
    version: int
    state: dict[str, Any]
    """As committed with `step`."""
    checkpoint: Path | None
    """Directory of the newest checkpoint; None = start from the initial weights."""
    checkpoint_step: int | None
    batches: Batches
    """Of the steps after the checkpoint."""
