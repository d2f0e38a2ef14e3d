"""The wave driver: deterministic, one wave of requests at a time.

Invariants: requests are submitted in the order the round asked them; all of a wave's rollouts are told before any verdict,
and in ask order, so that batch composition is a pure function of committed state; nothing reads a clock to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TypeVar

from gfcr.asks import Ask, CompareAsk, Compared, Failed, GenerateAsk, Generated, JudgeAsk, Judged, ScoreAsk, Scored
from gfcr.control.slots import Action, Prefix
from gfcr.drivers.assemble import Growing
from gfcr.engine.contract import Engine
from gfcr.filter.cascade import Cascade
from gfcr.filter.slots import GroupJudge
from gfcr.round import Round
from gfcr.types import StopReason

A = TypeVar("A")


class WaveDriver:
    """Drives a round to its end."""

    def __init__(self, engine: Engine, cascade: Cascade, judge: GroupJudge | None = None) -> None:
        self.engine, self.cascade, self.judge = engine, cascade, judge

    def drive(self, round_: Round) -> None:
        """Run the round; afterwards `round_.ready()` is its batch, or None with `round_.reason`."""
        while True:
            asks = round_.ask()
            if round_.done:
                return
            if not asks:
                raise RuntimeError(f"round {round_.number} waits for {len(round_.outstanding())} answers that nobody owes")
            self._generate(round_, _of(asks, GenerateAsk))
            for judged in _of(asks, JudgeAsk):
                round_.tell(Judged(judged.id, self.cascade.judge(judged.task, judged.rollout)))
            for compared in _of(asks, CompareAsk):
                round_.tell(Compared(compared.id, self.judge.compare(compared.group) if self.judge else []))
            scored = _of(asks, ScoreAsk)
            if scored:
                for score in self.engine.score([a.item for a in scored]):
                    round_.tell(Scored(score.id, score.logprobs))

    def _generate(self, round_: Round, asks: Sequence[GenerateAsk]) -> None:
        if not asks:
            return
        started = perf_counter()
        growing = {ask.id: Growing(ask) for ask in asks}
        refused: dict[str, str] = {}
        for ask in asks:
            try:
                self.engine.submit(ask.request)
            except ValueError as error:
                refused[ask.id] = f"refused: {error}"
        stopper = round_.slots.stop
        while self.engine.live():
            for chunk in self.engine.step(stopper.every if stopper else None):
                growing[chunk.request].add(chunk)
            if stopper is not None:
                self._stop(round_, growing)
        for cost in self.engine.prefilled():
            growing[cost.request].prefill(cost)
        queued, finished = started, perf_counter()
        for ask in asks:
            work = growing[ask.id]
            if ask.id in refused:
                round_.tell(Failed(ask.id, refused[ask.id]))
            elif work.stop in (None, StopReason.FAILED):
                round_.tell(Failed(ask.id, "engine: no finite token" if work.stop else "lost: the engine forgot it", work.generated))
            else:
                round_.tell(Generated(ask.id, work.rollout(queued, finished)))

    def _stop(self, round_: Round, growing: dict[str, Growing]) -> None:
        alive = [g for g in growing.values() if g.stop is None and g.chunks]
        prefixes = [Prefix(g.ask.id, g.ask.group, g.ids(), g.logprobs()) for g in alive]
        for rollout, action in round_.decide(prefixes).items():
            if action is Action.CONTINUE:
                continue
            chunk = self.engine.cancel(rollout)
            if chunk is not None:
                growing[rollout].add(chunk)
            growing[rollout].stop = StopReason.PRUNED if action is Action.PRUNE else StopReason.EARLY_EXIT


def _of(asks: Sequence[Ask], kind: type[A]) -> list[A]:
    return [a for a in asks if isinstance(a, kind)]
