"""The wave driver: deterministic, one wave of requests at a time.

Invariants: requests are submitted in the order the round asked them; all of a wave's rollouts are told, in that order, before
any verdict, so that batch composition is a pure function of committed state; the clock is recorded, never read to decide.
"""

from __future__ import annotations

from time import perf_counter

from gfcr.drivers.base import Driver, Plays
from gfcr.engine.contract import Engine
from gfcr.filter.cascade import Cascade
from gfcr.filter.slots import GroupJudge
from gfcr.round import Round


class WaveDriver(Driver):
    """Drives a round to its end, wave by wave."""

    def __init__(
        self,
        engine: Engine,
        cascade: Cascade,
        judge: GroupJudge | None = None,
        plays: Plays | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(engine, cascade, perf_counter, judge, plays, training)

    def drive(self, round_: Round) -> None:
        """Run the round; afterwards `round_.ready()` is its batch, or None with `round_.reason`."""
        while True:
            asks = round_.ask()
            if round_.done:
                self.release()
                return
            if not asks:
                raise RuntimeError(f"round {round_.number} waits for {len(round_.outstanding())} answers that nobody owes")
            self.submit(round_, asks)
            while self.engine.live():
                self.grow(round_)
            self.deliver(round_)
            self.played(round_, patient=True)
            self.answer(round_, asks)
