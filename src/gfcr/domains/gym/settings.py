"""What a recipe says under `[tasks.gym]`. Invariant: nothing here imports reasoning-gym; a recipe is read without it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gfcr.registry import FrozenModel


class GymDataset(BaseModel):
    """A procedural data set by name; the other keys are its own parameters (`min_terms`, `max_digits`, ...)."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    def parameters(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class Shot(FrozenModel):
    """A worked example, shown as an earlier turn of the chat."""

    question: str
    answer: str


class GymSettings(FrozenModel):
    """Tasks from reasoning-gym and how they are asked; the same words ask the training and the held-out tasks."""

    datasets: tuple[GymDataset, ...] = Field((GymDataset(name="chain_sum"),), min_length=1)
    """Data sets to draw from, in equal shares."""
    size: int = Field(1000, ge=1)
    """Distinct training tasks wanted; fewer when the parameters allow no more, and the run says so."""
    seed: int = Field(1, ge=0)
    """Seed of the training tasks. Several data sets seed task i with seed + i, so that near seeds overlap; what is held out is
    left out whatever the seed."""
    heldout: str | None = None
    """A frozen held-out set of 100: `digit_sums`, `chain_sum`, `basic_arithmetic`, `answer_tags`; None = no evaluation."""
    system: str | None = None
    """System message; None = what the chat template puts there."""
    shots: tuple[Shot, ...] = ()
    """Worked examples before the question."""
    question: str = "{question}"
    """What is asked; `{question}` and the entry's metadata (`{expression}`, ...) are filled in."""
    category: tuple[str, ...] = ()
    """Metadata (`num_terms`, ...) whose values name the task's category beside its data set: difficulty is shared over it."""
