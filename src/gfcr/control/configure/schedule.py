"""A law or a length that changes over training. Invariant: the value depends on the round's number or the run's progress alone,
so every rollout of a round has the same, and a resumed run goes on with it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from gfcr.context import Build, Configuration, View
from gfcr.control.configure.base import altered, law_allowed, tokens_allowed, traits_of
from gfcr.errors import ConfigError
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group

What = Literal[
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "max_tokens"
]


@method(
    "schedule",
    Slot.CONFIGURE,
    title="schedule of the sampling law over training",
    arxiv="2508.08940",
    criterion="coverage",
    faithfulness=Faithfulness.OURS,
)
class Schedule:
    """One number of the law, or the longest answer, over training; several numbers are several entries of the list. The `decay` of
    the length is that of Train Long, Think Short (arXiv:2508.08940: B(t) = max(1, B0 gamma^floor(t / T)), B0 = 256), which
    also writes B(t) into the prompt and rewards answers near it; here it bounds the answer and nothing else. The paper's gamma
    and T are unconfirmed, so they are settings. All else is our design."""

    class Settings(FrozenModel):
        what: What = "temperature"
        """What changes."""
        shape: Literal["linear", "cosine", "steps", "decay"] = "linear"
        """`linear` and `cosine` go from `start` to `end`; `steps` follows `points`; `decay` multiplies by `gamma` every `every`
        rounds."""
        start: float = 1.0
        """Value at the beginning (B0 of `decay`)."""
        end: float = 1.0
        """Value of `linear` and `cosine` at the end."""
        by: Literal["progress", "round"] = "progress"
        """What it follows: the share of the run that is over (of its budget or of its steps), or the number of the round."""
        over: int = Field(100, ge=1)
        """Rounds from `start` to `end`, with by = "round"."""
        points: tuple[tuple[float, float], ...] = ()
        """(share of the run, or round, value from there on), rising; `start` holds before the first."""
        gamma: float = Field(0.5, gt=0)
        """Factor of `decay`. UNCONFIRMED."""
        every: int = Field(20, ge=1)
        """Rounds between two factors (T). UNCONFIRMED."""

        def traits(self) -> frozenset[str]:
            return frozenset().union(*[traits_of({self.what: value}) for value in self.values()])

        def values(self) -> tuple[float, ...]:
            """Values it may pass through, extremes first."""
            if self.shape == "steps":
                return (self.start, *[value for _, value in self.points])
            return (self.start,) if self.shape == "decay" else (self.start, self.end)

        def at(self, progress: float, round_: int) -> float:
            """The value at a share of the run, or in a round (from 0)."""
            if self.shape == "decay":
                return max(1.0, self.start * self.gamma ** (round_ // self.every))
            if self.shape == "steps":
                place = progress if self.by == "progress" else round_
                return next((value for start, value in reversed(self.points) if start <= place), self.start)
            x = progress if self.by == "progress" else min(1.0, round_ / self.over)
            if self.shape == "cosine":
                x = (1 - math.cos(math.pi * x)) / 2
            return self.start + (self.end - self.start) * x

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings
        if settings.shape == "steps" and not settings.points:
            raise ConfigError(
                "control.configure 'schedule': shape = \"steps\" without points", "give points = [[0.5, 0.7]], say"
            )
        if any(a[0] >= b[0] for a, b in zip(settings.points, settings.points[1:])):
            raise ConfigError(
                f"control.configure 'schedule': points = {settings.points} do not rise", "order them by their first number"
            )
        if settings.shape == "decay" and (settings.what != "max_tokens" or settings.gamma > 1):
            raise ConfigError(
                f"control.configure 'schedule': shape = \"decay\" with what = {settings.what!r}, gamma = {settings.gamma:g}",
                'decay is for what = "max_tokens" and a gamma of at most 1',
            )
        for value in settings.values():
            if settings.what == "max_tokens":
                tokens_allowed("schedule", value, build.max_tokens)
            else:
                law_allowed("schedule", **{settings.what: self._whole(value)})

    def edit(self, how: Configuration, group: Group, view: View) -> Configuration:
        value = self._whole(self.settings.at(view.progress, view.round))
        if self.settings.what == "max_tokens":
            return replace(how, max_tokens=value)
        return altered(how, **{self.settings.what: value})

    def _whole(self, value: float) -> Any:
        """Token counts are whole: a length is rounded down, so that it is a bound, top-k to the nearest."""
        if self.settings.what == "max_tokens":
            return max(1, math.floor(value))
        return round(value) if self.settings.what == "top_k" else round(value, 6)
