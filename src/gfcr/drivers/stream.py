"""The streaming driver: each rollout, and each act of an environment, is told as soon as it ends, and what the round asks then joins the
running streams; a slow environment holds up its own rollout and nobody else.

With an engine that has a virtual clock (the scripted one) it simulates a run without a model or real time. Invariants: the
order of events is the engine's order of completion, ties in ask order; times are the engine's clock; acts that take real time are told
in the order in which they are found over, which changes no draw (streams are keyed by name); it waits asleep, and only when nothing else
can go on.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait

from gfcr.asks import Ask
from gfcr.drivers.base import Driver
from gfcr.round import Round


class StreamDriver(Driver):
    """Drives a round to its end, completion by completion. `clock`: seconds, e.g. the scripted engine's `now`."""

    def drive(self, round_: Round) -> None:
        """Run the round; afterwards `round_.ready()` is its batch, or None with `round_.reason`."""
        while True:
            asks: list[Ask] = round_.ask()
            if round_.done:
                self.release()
                return
            self.submit(round_, asks)
            self.answer(round_, asks)
            told = self.played(round_, patient=False)
            if self.engine.live():
                self.grow(round_)
            if self.deliver(round_) or told or asks or self.engine.live():
                continue
            if not self._playing:
                raise RuntimeError(f"round {round_.number} waits for {len(round_.outstanding())} answers that nobody owes")
            wait(self._playing.values(), return_when=FIRST_COMPLETED)
