"""The streaming driver: each rollout is told as soon as it ends, and what the round asks then joins the running streams.

With an engine that has a virtual clock (the scripted one) it simulates a run without a model or real time. Invariant: the
order of events is the engine's order of completion, ties in ask order; times are the engine's clock.
"""

from __future__ import annotations

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
            if self.engine.live():
                self.grow(round_)
            if not self.deliver(round_) and not asks and not self.engine.live():
                raise RuntimeError(f"round {round_.number} waits for {len(round_.outstanding())} answers that nobody owes")
