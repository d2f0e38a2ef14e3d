"""Laws that change within a rollout: by the place in an answer, and by the turn. Invariant: each segment has one law (the driver
cuts where it changes), so its log-probabilities can be scored again."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from gfcr.context import Build, Configuration, View
from gfcr.control.configure.base import LAYS_OUT, Change, altered, changed, law_allowed, tokens_allowed, traits_of
from gfcr.errors import ConfigError
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group


@method(
    "within",
    Slot.CONFIGURE,
    title="law by the place in the answer",
    criterion="coverage",
    faithfulness=Faithfulness.OURS,
    needs=("laws",),
    traits=(LAYS_OUT,),
)
class Within:
    """One number of the law by the tokens an answer has: a warm start that cools explores plans and keeps their execution, the
    other way round varies the end of answers that begin alike. Our design."""

    class Settings(FrozenModel):
        what: Literal["temperature", "top_p", "top_k", "min_p"] = "temperature"
        """What changes."""
        points: tuple[tuple[int, float], ...] = ((0, 1.2), (16, 0.8))
        """(own tokens so far, value from there on), rising; before the first the law is as it was."""

        def traits(self) -> frozenset[str]:
            return frozenset().union(*[traits_of({self.what: value}) for _, value in self.points])

    def __init__(self, settings: Settings, build: Build) -> None:
        self.what = settings.what
        self.points = [(at, round(v) if self.what == "top_k" else v) for at, v in settings.points]
        if not self.points or self.points[0][0] < 0 or any(a[0] >= b[0] for a, b in zip(self.points, self.points[1:])):
            raise ConfigError(
                f"control.configure 'within': points = {settings.points} do not rise from 0 on",
                "give for example points = [[0, 1.2], [16, 0.8]]",
            )
        for _, value in self.points:
            law_allowed("within", **{self.what: value})

    def edit(self, how: Configuration, group: Group, view: View) -> Configuration:
        if self.points[0][0] == 0:
            how = altered(how, **{self.what: self.points[0][1]})
        later = tuple((at, changed(how.sampling, **{self.what: value})) for at, value in self.points if at)
        return replace(how, later=later)


class TurnChange(Change):
    turn: int = Field(ge=0)
    """First turn (from 0) it holds for."""


@method(
    "by-turn",
    Slot.CONFIGURE,
    title="law by the turn",
    criterion="coverage",
    faithfulness=Faithfulness.OURS,
    traits=(LAYS_OUT, "needs: turns"),
)
class ByTurn:
    """Laws and lengths per turn of an interactive rollout; each entry changes the first law and holds until the next. Our design."""

    class Settings(FrozenModel):
        turns: tuple[TurnChange, ...] = ()
        """In the order of their turns; turns before the first are as they were."""

        def traits(self) -> frozenset[str]:
            return frozenset().union(*[change.traits() for change in self.turns])

    def __init__(self, settings: Settings, build: Build) -> None:
        self.changes = settings.turns
        numbers = [change.turn for change in self.changes]
        if not numbers or numbers != sorted(set(numbers)):
            raise ConfigError(
                f"control.configure 'by-turn': turns start at {numbers}",
                "give one entry or more, each with a later turn than the last",
            )
        for change in self.changes:
            tokens_allowed("by-turn", change.max_tokens or 1, build.max_tokens)

    def edit(self, how: Configuration, group: Group, view: View) -> Configuration:
        return replace(how, turns=tuple((change.turn, change.of(replace(how, turns=()))) for change in self.changes))
