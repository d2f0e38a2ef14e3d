"""Length rewards: soft overlong punishment, the cosine reward, Kimi k1.5's length penalty.

Invariants: length is what the policy wrote (tool output and forced tokens are not in it); a shape works after admission, so it
can neither admit a group nor keep one; unless `on = "all"`, a group without a right answer keeps its rewards, so that length is
never the only thing such a group can learn (under a std that would be a full-size advantage for being short).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi
from typing import Literal

from pydantic import Field

from gfcr.context import Build, View
from gfcr.errors import ConfigError
from gfcr.filter.admission import baseline
from gfcr.filter.outcome import right
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group, Member


class LengthSettings(FrozenModel):
    """What every length reward can be told."""

    on: Literal["right", "mixed", "all"] = "mixed"
    """Answers it acts on: `right` ones; `mixed`: also the wrong ones of groups that hold a right one; `all`: as published, wrong
    answers of all-wrong groups too."""

    def traits(self) -> frozenset[str]:
        return frozenset(
            {"all": {"shapes length in all-wrong groups"}, "mixed": {"shapes wrong answers by their group"}}.get(self.on, ())
        )


@dataclass(frozen=True)
class Sizes:
    """Lengths of a group's answers in the baseline, in tokens."""

    shortest: int
    longest: int


class LengthShape:
    """Shapes a group's members in the baseline; subclasses give the shaped reward of one answer."""

    name: str
    reads_correctness = True
    """Whether `value` reads correctness, so that a verifier must decide it."""
    settings: LengthSettings

    def shape(self, group: Group, view: View) -> dict[str, float]:
        members = baseline(group)
        decided = self.reads_correctness or self.settings.on != "all"
        correct = [right(m, f"filter.shape {self.name!r}") if decided else False for m in members]
        acts = {"right": correct, "mixed": [any(correct)] * len(members), "all": [True] * len(members)}[self.settings.on]
        lengths = [m.rollout.response_length for m in members]
        sizes = Sizes(min(lengths, default=0), max(lengths, default=0))
        return {m.rollout.id: self.value(m, ok, sizes, view) for m, ok, act in zip(members, correct, acts) if act}

    def value(self, member: Member, correct: bool, sizes: Sizes, view: View) -> float:
        """The shaped reward of one answer."""
        raise TypeError("a length reward defines its value")


def _reward(member: Member) -> float:
    assert member.signals.reward is not None  # members in the baseline have one
    return member.signals.reward


@method(
    "soft-overlong",
    Slot.SHAPE,
    title="DAPO soft overlong punishment",
    arxiv="2503.14476",
    criterion="cost",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("shapes reward",),
)
class SoftOverlong(LengthShape):
    """Adds 0 up to `max_tokens - buffer` tokens, from there a line down to -factor at `max_tokens` (DAPO, arXiv:2503.14476, eq.
    13). As published it acts on right and wrong answers alike (`on = "all"`)."""

    class Settings(LengthSettings):
        max_tokens: int | None = Field(None, ge=1)
        """Length with the full penalty; None = generate.max_tokens (paper: 20480)."""
        buffer: int | None = Field(None, ge=1)
        """Tokens before it over which the penalty grows; None = a fifth of `max_tokens` (paper: 4096 of 20480)."""
        factor: float = Field(1.0, gt=0)
        """The full penalty."""

    name, reads_correctness = "soft-overlong", False

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.factor = settings, settings.factor
        self.longest = settings.max_tokens or build.max_tokens
        self.buffer = settings.buffer or max(1, self.longest // 5)
        if self.buffer > self.longest:
            raise ConfigError(
                f"filter.shape 'soft-overlong': buffer = {self.buffer} exceeds max_tokens = {self.longest}",
                "set buffer to at most max_tokens",
            )

    def value(self, member: Member, correct: bool, sizes: Sizes, view: View) -> float:
        over = member.rollout.response_length - (self.longest - self.buffer)
        return _reward(member) - self.factor * min(max(over, 0) / self.buffer, 1.0)


@method(
    "kimi-length",
    Slot.SHAPE,
    title="Kimi k1.5 length penalty",
    arxiv="2501.12599",
    criterion="cost",
    faithfulness=Faithfulness.PARTLY,
    traits=("shapes reward", "compares within group"),
)
class KimiLength(LengthShape):
    """Adds weight * l, l = 1/2 - (L - shortest) / (longest - shortest) over the group; wrong answers get min(0, l); 0 when all
    have one length (Kimi k1.5, arXiv:2501.12599, section 2.3.3)."""

    class Settings(LengthSettings):
        weight: float = Field(1.0, gt=0)
        """Factor on the length reward. UNCONFIRMED: the paper gives no value."""
        from_round: int = Field(0, ge=0)
        """Rounds before this one are not shaped (the paper starts without and then holds it constant; when is UNCONFIRMED)."""

    name = "kimi-length"

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.weight, self.from_round = settings, settings.weight, settings.from_round

    def value(self, member: Member, correct: bool, sizes: Sizes, view: View) -> float:
        if view.round < self.from_round or sizes.longest == sizes.shortest:
            return _reward(member)
        share = 0.5 - (member.rollout.response_length - sizes.shortest) / (sizes.longest - sizes.shortest)
        return _reward(member) + self.weight * (share if correct else min(0.0, share))


@method(
    "cosine-length",
    Slot.SHAPE,
    title="cosine length reward",
    arxiv="2502.03373",
    criterion="cost",
    faithfulness=Faithfulness.PARTLY,
    traits=("shapes reward",),
)
class CosineLength(LengthShape):
    """Replaces the reward by c(L; at 0, at max_tokens) = b + (a - b) / 2 * (1 + cos(pi L / max_tokens)), with one pair (a, b) for
    right answers and one for wrong ones, of which the short are the worst; an answer that reaches max_tokens gets `exceeded`
    (arXiv:2502.03373). Its defaults are the paper's as remembered, UNCONFIRMED; open-r1 has 1, .5, -1, -.5."""

    class Settings(LengthSettings):
        max_tokens: int | None = Field(None, ge=1)
        """Length at which the cosine ends; None = generate.max_tokens."""
        right_short: float = 2.0
        """Reward of a right answer of length 0."""
        right_long: float = 1.0
        """Reward of a right answer of max_tokens."""
        wrong_short: float = -10.0
        """Reward of a wrong answer of length 0."""
        wrong_long: float = 0.0
        """Reward of a wrong answer of max_tokens."""
        exceeded: float = -10.0
        """Reward of an answer that reached max_tokens."""

    name = "cosine-length"

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings: CosineLength.Settings = settings
        self.longest = settings.max_tokens or build.max_tokens

    def value(self, member: Member, correct: bool, sizes: Sizes, view: View) -> float:
        s, length = self.settings, member.rollout.response_length
        if length >= self.longest:
            return s.exceeded
        short, long = (s.right_short, s.right_long) if correct else (s.wrong_short, s.wrong_long)
        return long + (short - long) / 2 * (1 + cos(pi * length / self.longest))
