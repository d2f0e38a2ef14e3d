"""The driver that a recipe names."""

from __future__ import annotations

from time import perf_counter
from typing import Literal

from gfcr.drivers.base import Plays
from gfcr.drivers.stream import StreamDriver
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import Engine
from gfcr.filter.cascade import Cascade
from gfcr.filter.slots import GroupJudge


def make_driver(
    name: Literal["waves", "stream"],
    engine: Engine,
    cascade: Cascade,
    judge: GroupJudge | None = None,
    plays: Plays | None = None,
) -> WaveDriver | StreamDriver:
    """`name`: run.driver of the recipe."""
    if name == "stream":
        return StreamDriver(engine, cascade, perf_counter, judge, plays)
    return WaveDriver(engine, cascade, judge, plays)
