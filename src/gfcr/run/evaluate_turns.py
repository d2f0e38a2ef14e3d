"""Held-out evaluation of rollouts that take turns with an environment: a round of its own, without learning.

Invariants: those of evaluate.py (streams of the task and the sample alone, tokens in a column of their own, outside the budget); nothing
of it reaches the run's posteriors, replay or selectors; an answer that nobody could judge, or whose environment broke for good, is in no
mean and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from gfcr.context import View
from gfcr.control.configure.base import FixedConfiguration
from gfcr.control.failures import Lenient
from gfcr.control.posterior import PosteriorSettings, PosteriorTable
from gfcr.control.slots import Allocation, Pick
from gfcr.drivers.base import Plays
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import Engine, StopSpec
from gfcr.filter.cascade import Cascade
from gfcr.replay.memory import Memory, MemorySettings
from gfcr.round import Renderer, Round, RoundSettings
from gfcr.run.budget import Budget
from gfcr.run.evaluate import HELDOUT_SEED, Evaluation
from gfcr.slots import Slots
from gfcr.types import Credit, Group, Member, Sampling, Task


class _Each:
    """Each of the tasks, in order."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tasks

    def select(self, n: int, exclude: Set[str], view: View) -> list[Pick]:
        return [Pick(task, "held out") for task in self.tasks[:n]]

    def observe(self, groups: Sequence[Group], view: View) -> None:
        """Nothing is learnt."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is no state."""


class _Once:
    """So many rollouts per task, in one stage."""

    def __init__(self, n: int) -> None:
        self.n = n

    def allocate(self, groups: Sequence[Group], view: View) -> dict[str, Allocation]:
        return {g.id: Allocation(0 if g.stage else self.n, "held out") for g in groups}


class _NoCredit:
    def credit(self, group: Group, members: Sequence[Member]) -> Mapping[str, Credit | None]:
        return {m.rollout.id: None for m in members}


def evaluate_turns(
    engine: Engine,
    cascade: Cascade,
    render: Renderer,
    tasks: Sequence[Task],
    samples: int,
    greedy: bool,
    max_tokens: int,
    stop: StopSpec,
    slots: Slots,
    plays: Plays,
) -> Evaluation:
    """As `evaluate`, with the topology of `slots`, or what it names as `evaluated` (a tree's: independent rollouts)."""
    parts = (engine, cascade, render, tasks, max_tokens, stop, slots, plays)
    sampled = _run(*parts, samples, Sampling())
    if not greedy:
        return Evaluation(sampled[0], None, *sampled[1:])
    best = _run(*parts, 1, Sampling(temperature=0.0))
    return Evaluation(sampled[0], best[0], *(a + b for a, b in zip(sampled[1:], best[1:])))


def _run(
    engine: Engine,
    cascade: Cascade,
    render: Renderer,
    tasks: Sequence[Task],
    max_tokens: int,
    stop: StopSpec,
    slots: Slots,
    plays: Plays,
    samples: int,
    sampling: Sampling,
) -> tuple[float | None, int, int, int]:
    """(accuracy, tokens, context tokens, unscorable)."""
    own = Slots(
        select=_Each(tasks),
        configure=FixedConfiguration(sampling, max_tokens),
        topology=getattr(slots.topology, "evaluated", slots.topology),
        allocate=_Once(samples),
        credit=_NoCredit(),
        posterior=PosteriorTable(tasks, PosteriorSettings()),
        memory=Memory(MemorySettings()),
        failures=Lenient(slots.failures),
    )
    settings = RoundSettings(
        groups=len(tasks), k=samples, max_tokens=max_tokens, max_context=engine.capabilities().max_length, max_waves=1
    )
    view = View(0, 0, HELDOUT_SEED, own.posterior, own.memory)
    round_ = Round(0, own, settings, view, Budget(None), render, stop)
    WaveDriver(engine, cascade, None, plays, training=False).drive(round_)
    members = [member for group in round_.groups.values() for member in group.members.values()]
    told = [member.signals.correct for member in members]
    judged = [correct for correct in told if correct is not None]
    context = sum(member.rollout.cost.prefilled for member in members) + round_.failed_context.prefilled
    return (
        sum(judged) / len(judged) if judged else None,
        round_.budget.spent,
        context,
        len(tasks) * samples - len(judged),
    )
