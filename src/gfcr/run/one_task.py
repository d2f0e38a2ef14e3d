"""One task's rollouts, without training: a real round whose selector knows one task.

Invariants: everything is the recipe's own (topology, guidance, environment, gates, verifiers, credit); nothing is written or learnt; what
it cost is booked by a run's own ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from gfcr.build import RolloutParts, model_path, refuse, rollout_parts
from gfcr.build_engine import embedded_engine, make_engine
from gfcr.context import View
from gfcr.control.slots import Pick
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import Usage, losses_of
from gfcr.errors import ConfigError, DataError
from gfcr.generate.parking import Parking
from gfcr.generate.render import TokenizerRenderer
from gfcr.recipe import Recipe
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.run.ledger import NOTHING, Ledger
from gfcr.task_sets import load_tasks
from gfcr.types import Cost, Decision, Group, Task

SHOWN = 3
"""Tasks that an error names, and reasons."""


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


@dataclass(frozen=True, slots=True)
class Standing:
    """Where in a run the round stands: at its start, unless a run was read (run/one_run.py)."""

    round: int = 0
    version: int = 0
    """Weights."""
    progress: float = 0.0
    """Share of the run that is over, 0..1."""
    step: int | None = None
    """Committed step of a run whose weights these are; None = the model as the recipe names it."""
    note: str = ""
    """What of the run was not taken over; empty = all of it was."""


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """What came of it."""

    group: Group
    decisions: Sequence[Decision]
    ledger: Ledger
    """Of this round alone."""
    usage: Usage
    """Tokens through the model for it, as the engine counts them."""
    tool_seconds: float
    """The environment's work."""
    seconds: float
    spilled: dict[str, int]
    """Generated tokens that no rollout has, by reason."""
    spilled_context: Cost = NOTHING
    """Context tokens (`prefilled`, `cached`) of these."""
    standing: Standing = field(default_factory=Standing)


@contextmanager
def sampling_parts(recipe: Recipe, seed: int) -> Iterator[RolloutParts]:
    """What generates and judges, without a trainer; the model is the recipe's as it stands. Raises ConfigError, DataError or
    MissingExtra like a run."""
    refuse(recipe, trains=False)
    loaded = load_tasks(recipe.tasks)
    from gfcr.engine.models import load_ends, load_model, load_tokenizer  # torch

    place = model_path(recipe.model.path)
    tokenizer = load_tokenizer(place)
    decode = TokenizerRenderer(tokenizer).decoder()
    if recipe.engine.name == "embedded":
        model = load_model(place, recipe.engine.device, recipe.engine.dtype)
        engine = embedded_engine(recipe, model, decode)
    else:
        model, engine = load_ends(place), make_engine(recipe, place, decode)
    with closing(rollout_parts(recipe, seed, loaded, tokenizer, engine, model)) as parts:
        yield parts


@contextmanager
def closing(parts: RolloutParts) -> Iterator[RolloutParts]:
    """The parts, whose processes and connections end with the block."""
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
    found = [t for t in (*parts.tasks, *parts.heldout) if wanted and t.id.startswith(wanted)]
    if len(found) == 1 or (found and found[0].id == wanted):
        return found[0]
    if found:
        raise DataError(f"--task {wanted}: {len(found)} tasks have ids that begin so", "give more of the id")
    first = ", ".join(t.id[:12] for t in parts.tasks[:SHOWN])
    raise DataError(f"--task {wanted!r}: no task of the recipe has this id", f"give an index from 0, or an id such as {first}")


def own_task(parts: RolloutParts, prompt: str) -> Task:
    """A task of the caller's own words, of the domain of the recipe's tasks, with neither reference nor solution. One of the recipe's
    own prompts gives that task. Raises ConfigError for a prompt without words."""
    if not prompt.strip():
        raise ConfigError(f"--prompt {prompt!r} has no words", "give a prompt, or --task INDEX for a task of the recipe")
    own = Task(parts.tasks[0].domain, prompt, tools=parts.tasks[0].tools)
    return next((t for t in (*parts.tasks, *parts.heldout) if t.prompt == prompt), own)


def idle(recipe: Recipe) -> list[str]:
    """Methods of a recipe that do nothing for a task without a solution, by name."""
    return [found.name for found, settings in recipe.methods() if "reads solutions" in {*found.traits, *settings.traits()}]


def sample_task(parts: RolloutParts, task: Task, standing: Standing = Standing()) -> Sampled:
    """Play one round of the recipe on one task. Raises DataError when no rollout came of it, with the reasons."""
    slots = replace(parts.slots, select=Only(task), refill=None, store=(), parking=Parking())
    settings = parts.round_settings.model_copy(update={"groups": 1, "min_groups": 1})
    view = View(standing.round, standing.version, parts.seed, slots.posterior, slots.memory, standing.progress)
    before, started = parts.engine.usage(), perf_counter()
    round_ = Round(standing.round, slots, settings, view, Budget(None), parts.renderer, parts.stop)
    WaveDriver(parts.engine, parts.cascade, slots.judge, parts.host).drive(round_)
    after = parts.engine.usage()
    names = ("prefilled", "decoded", "scored", "cached")
    usage = Usage(**{name: getattr(after, name) - getattr(before, name) for name in names})
    groups = list(round_.groups.values())
    if not groups:
        raise DataError(f"no group could be opened: {round_.reason}", "look at the task and at the recipe's budget")
    if not groups[0].members:
        raise _nothing(parts, groups[0], round_.decisions)
    ledger = Ledger(judging=parts.cascade.judging)
    ledger.settle_round(groups, dict(round_.failed), round_.failed_context, round_.booked)
    ledger.add(Cost(scored=usage.scored))
    spilled = Counter(round_.failed)
    if (lost := losses_of(parts.engine)) is not None:
        ledger.lose(lost.tokens)
        spilled.update(lost.tokens)
    return Sampled(
        groups[0],
        round_.decisions,
        ledger,
        usage,
        sum(m.rollout.cost.tool_seconds for m in groups[0].members.values() if m.sampled),
        perf_counter() - started,
        dict(spilled),
        round_.failed_context,
        standing,
    )


def _nothing(parts: RolloutParts, group: Group, decisions: Sequence[Decision]) -> DataError:
    """Why a group has no member: what broke, where something did."""
    broke = list(dict.fromkeys(d.reason for d in decisions if d.action in ("give_up", "fault") and d.reason))
    what = "; ".join(broke[:SHOWN]) if broke else group.reason
    environment = parts.recipe.generate.environment
    if environment is not None and any(words.startswith("environment_") for words in broke):
        return DataError(
            f"nothing could be sampled: {what}",
            f"the environment {environment.name!r} cannot play this task: give one of its own, --task INDEX",
        )
    if broke:
        return DataError(f"nothing could be sampled: {what}", "mend what broke, or try again with another --seed")
    return DataError(f"nothing could be sampled: {what}", "give a prompt that the model reads and has room for")
