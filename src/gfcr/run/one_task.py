"""One task's rollouts, without training: a real round whose selector knows one task.

Invariant: everything is the recipe's own (topology, guidance, environment, gates, verifiers, credit); nothing is written or learnt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from gfcr.build import RolloutParts, model_path, refuse, rollout_parts
from gfcr.build_engine import embedded_engine, make_engine
from gfcr.context import View
from gfcr.control.slots import Pick
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import Usage
from gfcr.errors import DataError
from gfcr.generate.render import TokenizerRenderer
from gfcr.recipe import Recipe
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.task_sets import load_tasks
from gfcr.types import Decision, Group, Task

SHOWN = 3
"""Tasks that an error names."""


class Only:
    """A selector of one task, once."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def select(self, n: int, exclude: Set[str], view: View) -> list[Pick]:
        return [] if self.task.id in exclude else [Pick(self.task, "asked for")]

    def observe(self, groups: Sequence[Group], view: View) -> None:
        """One task teaches a selector nothing."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is nothing to load."""


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """What came of it."""

    group: Group
    decisions: Sequence[Decision]
    usage: Usage
    """Tokens through the model for it, as the engine counts them."""
    seconds: float
    spilled: dict[str, int]
    """Generated tokens that no rollout has, by reason."""


@contextmanager
def sampling_parts(recipe: Recipe, seed: int) -> Iterator[RolloutParts]:
    """What generates and judges, without a trainer; the model is the recipe's as it stands. Raises ConfigError, DataError or
    MissingExtra like a run."""
    refuse(recipe)
    loaded = load_tasks(recipe.tasks)
    from gfcr.engine.models import load_model, load_tokenizer  # torch

    place = model_path(recipe.model.path)
    tokenizer = load_tokenizer(place)
    decode = TokenizerRenderer(tokenizer).decoder()
    model = load_model(place, recipe.engine.device, recipe.engine.dtype)
    embedded = recipe.engine.name == "embedded"
    engine = embedded_engine(recipe, model, decode) if embedded else make_engine(recipe, place, decode)
    parts = rollout_parts(recipe, seed, loaded, tokenizer, engine, model)
    try:
        yield parts
    finally:
        parts.engine.close()
        parts.cascade.close()
        for part in (parts.host, parts.slots.select):
            if (close := getattr(part, "close", None)) is not None:
                close()


def find_task(parts: RolloutParts, wanted: str) -> Task:
    """The task of an id (or the beginning of one), or at an index of the recipe's tasks. Raises DataError when there is none, or several."""
    if wanted.lstrip("-").isdigit() and len(wanted) < 9:
        if 0 <= int(wanted) < len(parts.tasks):
            return parts.tasks[int(wanted)]
        raise DataError(
            f"--task {wanted}: the recipe has {len(parts.tasks)} tasks", f"give 0 to {len(parts.tasks) - 1}, or a task's id"
        )
    found = [t for t in (*parts.tasks, *parts.heldout) if t.id.startswith(wanted)]
    if len(found) == 1 or (found and found[0].id == wanted):
        return found[0]
    if found:
        raise DataError(f"--task {wanted}: {len(found)} tasks have ids that begin so", "give more of the id")
    first = ", ".join(t.id[:12] for t in parts.tasks[:SHOWN])
    raise DataError(f"--task {wanted}: no task of the recipe has this id", f"give an index from 0, or an id such as {first}")


def sample_task(parts: RolloutParts, task: Task) -> Sampled:
    """Play one round of the recipe on one task."""
    slots = replace(parts.slots, select=Only(task), refill=None, store=())
    settings = parts.round_settings.model_copy(update={"groups": 1, "min_groups": 1})
    view = View(0, 0, parts.seed, slots.posterior, slots.memory)
    before, started = parts.engine.usage(), perf_counter()
    round_ = Round(0, slots, settings, view, Budget(None), parts.renderer, parts.stop)
    WaveDriver(parts.engine, parts.cascade, slots.judge, parts.host).drive(round_)
    after = parts.engine.usage()
    names = ("prefilled", "decoded", "scored", "cached")
    usage = Usage(**{name: getattr(after, name) - getattr(before, name) for name in names})
    groups = list(round_.groups.values())
    if not groups:
        raise DataError(f"no group could be opened: {round_.reason}", "look at the task and at the recipe's budget")
    if not groups[0].members:
        raise DataError(f"nothing could be sampled: {groups[0].reason}", "give a prompt that the model reads and has room for")
    return Sampled(groups[0], round_.decisions, usage, perf_counter() - started, dict(round_.failed))
