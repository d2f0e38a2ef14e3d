"""Held-out evaluation.

Invariants: its random streams depend on the task and the sample alone, never on the run's seed or step, so that two runs
are compared on common random numbers; its tokens are booked in their own ledger column, outside the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gfcr.asks import GenerateAsk
from gfcr.drivers.assemble import Growing
from gfcr.drivers.base import MAX_IDLE_STEPS
from gfcr.engine.contract import Engine, Request, StopSpec
from gfcr.filter.cascade import Cascade
from gfcr.round import Renderer
from gfcr.run.seeds import stream_key
from gfcr.types import Node, Sampling, StopReason, Task, derive_id

HELDOUT_SEED = 20260529
"""Seed of every evaluation's streams."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of one evaluation."""

    accuracy: float | None
    """Mean correctness of the sampled answers at temperature 1; None when nothing could be judged."""
    greedy: float | None
    """Mean correctness of greedy answers; None when not asked for."""
    tokens: int
    """Tokens generated for it."""
    context: int
    """Context tokens computed for it."""
    unscorable: int
    """Answers that could not be judged; they are in no mean."""


def evaluate(
    engine: Engine,
    cascade: Cascade,
    render: Renderer,
    tasks: Sequence[Task],
    samples: int,
    greedy: bool,
    max_tokens: int,
    stop: StopSpec,
) -> Evaluation:
    """Sample `samples` answers per task at temperature 1, and one greedily."""
    sampled = _run(engine, cascade, render, tasks, samples, Sampling(), max_tokens, stop)
    if not greedy:
        return Evaluation(sampled[0], None, *sampled[1:])
    best = _run(engine, cascade, render, tasks, 1, Sampling(temperature=0.0), max_tokens, stop)
    return Evaluation(sampled[0], best[0], *(a + b for a, b in zip(sampled[1:], best[1:])))


def _run(
    engine: Engine,
    cascade: Cascade,
    render: Renderer,
    tasks: Sequence[Task],
    samples: int,
    sampling: Sampling,
    max_tokens: int,
    stop: StopSpec,
) -> tuple[float | None, int, int, int]:
    """(accuracy, tokens, context tokens, unscorable)."""
    growing: dict[str, tuple[Task, Growing]] = {}
    for task in tasks:
        path = (Node(derive_id("prompt", task.id), None, render(task)),)
        for i in range(samples):
            request = Request(
                derive_id("heldout", task.id, i),
                path,
                sampling,
                max_tokens,
                stream_key(HELDOUT_SEED, "heldout", task.id, i),
                stop,
            )
            work = Growing(GenerateAsk(request.id, "", task.id, request))
            growing[request.id] = (task, work)
            try:
                engine.submit(request)
            except ValueError:  # longer than the model: nobody can say how it would have answered
                work.stop = StopReason.FAILED
    idle = 0
    while engine.live() and idle <= MAX_IDLE_STEPS:
        chunks = engine.step()
        idle = 0 if chunks else idle + 1
        for chunk in chunks:
            growing[chunk.request][1].add(chunk)
    for _, work in growing.values():
        if work.stop is None:
            engine.cancel(work.ask.id)
            work.stop = StopReason.FAILED
    context = sum(p.computed for p in engine.prefilled())
    right = judged = tokens = unscorable = 0
    judged_all = cascade.judge_all([(task, work.rollout()) for task, work in growing.values()], training=False)
    for (_, work), signals in zip(growing.values(), judged_all):
        tokens += work.generated + work.lost
        correct = signals.correct
        if correct is None:
            unscorable += 1
        else:
            right, judged = right + correct, judged + 1
    return (right / judged if judged else None), tokens, context, unscorable
