"""Corrections for verifiers that err, before any baseline.

Invariants: correctness, posteriors and admission keep the verdict as it was given; only what a verifier decided is corrected (a refused
answer keeps its reward); rates are those of the verifier that decided, so that answers of one group may have different ones;
measured rates are those known at the round's start, and part of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from gfcr.context import Build, View
from gfcr.errors import ConfigError
from gfcr.filter.admission import REWARD_TOLERANCE, baseline
from gfcr.filter.outcome import right
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group, Member, Status

MOST = 0.45
"""Largest rate that is believed of a measurement (arXiv:2510.00915's clamp)."""


class Rates(FrozenModel):
    """How often a verifier errs."""

    false_negative: float = Field(0.0, ge=0, lt=1)
    """P(wrong | right answer), rho1."""
    false_positive: float = Field(0.0, ge=0, lt=1)
    """P(right | wrong answer), rho0."""

    @model_validator(mode="after")
    def _informative(self) -> Self:
        if self.false_negative + self.false_positive >= 1:
            raise ConfigError(
                f"false_negative = {self.false_negative} and false_positive = {self.false_positive}: the verdicts would say nothing"
                " about the answers, or the contrary",
                "rates that add up to 1 or more leave nothing to correct: use another verifier",
            )
        return self

    @property
    def informed(self) -> float:
        """J = 1 - rho0 - rho1: what is left of the signal."""
        return 1 - self.false_negative - self.false_positive

    def backward(self, correct: bool) -> float:
        """(r - rho0) / J: its mean over the noise is the true reward."""
        return (correct - self.false_positive) / self.informed

    def forward(self, correct: bool) -> float:
        """rho1 where right was said, rho1 - 1 where wrong: times the score function its mean is J times the true gradient, and it
        needs no false-positive rate."""
        return self.false_negative - (not correct)


class Confusion:
    """A verifier's verdicts against a trusted one's, where both spoke. The share of its yeses and noes that were checked may
    differ (an appeal checks noes only): each is extrapolated by itself."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts = {"yes": 0, "no": 0, "yes_right": 0, "yes_wrong": 0, "no_right": 0, "no_wrong": 0, **(counts or {})}

    def add(self, said: bool, truth: bool | None) -> None:
        """A verdict; `truth`: the trusted one's, None where it was not asked."""
        word = "yes" if said else "no"
        self.counts[word] += 1
        if truth is not None:
            self.counts[f"{word}_{'right' if truth else 'wrong'}"] += 1

    @property
    def checked(self) -> int:
        return sum(n for name, n in self.counts.items() if "_" in name)

    def rates(self) -> Rates:
        """Rates, none above MOST; yeses (or noes) of which none was checked count as right ones."""
        c = self.counts
        yes_right, yes_wrong = _split(c["yes"], c["yes_right"], c["yes_wrong"], 1.0)
        no_right, no_wrong = _split(c["no"], c["no_right"], c["no_wrong"], 0.0)
        right_, wrong = yes_right + no_right, yes_wrong + no_wrong
        return Rates(
            false_negative=min(no_right / right_, MOST) if right_ else 0.0,
            false_positive=min(yes_wrong / wrong, MOST) if wrong else 0.0,
        )


def _split(said: int, right_: int, wrong: int, unchecked: float) -> tuple[float, float]:
    """How many of `said` are right and wrong, by those that were checked."""
    share = right_ / (right_ + wrong) if right_ + wrong else unchecked
    return said * share, said * (1 - share)


@method(
    "noise-correction",
    Slot.SHAPE,
    title="correction for verifier noise",
    arxiv="2510.00915",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=("shapes reward",),
)
class NoiseCorrection:
    """The reward corrected for the verifier's error rates: backward (r - rho0) / J, forward rho1 - 1[wrong] (arXiv:2510.00915; the
    forward weights are derived). With one pair of rates both are affine in r, so under a std nothing changes and under a mean only the
    learning rate does: they matter where rates differ within a group, or where there is no group baseline."""

    class Settings(Rates):
        form: Literal["backward", "forward"] = "backward"
        """`backward` is unbiased, `forward` needs only the false-negative rate and is said to be steadier."""
        by: dict[str, Rates] = Field(default_factory=dict)
        """Rates by the name of the verifier that decided; the others have the ones above."""
        trusted: str | None = None
        """Name of the verifier whose word is the truth: rates of the others are measured against it wherever both judged an answer
        (the cascade's escalation), and replace the settings' once `least` answers were checked. None = the settings' rates."""
        least: int = Field(50, ge=1)
        """Checked answers before a measured rate is believed."""
        clip: float = Field(5.0, gt=0)
        """Largest corrected reward, positive or negative."""

        def traits(self) -> frozenset[str]:
            return frozenset(() if self.by or self.trusted else {"affine in reward"})

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings
        self._known: dict[str, Confusion] = {}
        self._new: list[tuple[str, bool, bool | None]] = []
        self._round = -1

    def shape(self, group: Group, view: View) -> dict[str, float]:
        self._observe(group, view.round)
        return {m.rollout.id: self._corrected(m) for m in baseline(group) if m.signals.status is Status.SCORED}

    def rates(self, verifier: str) -> Rates:
        """What is known of a verifier now."""
        s = self.settings
        if s.trusted is not None and verifier == s.trusted:
            return Rates()
        if verifier in self._known and self._known[verifier].checked >= s.least:
            return self._known[verifier].rates()
        return s.by.get(verifier, s)

    def _corrected(self, member: Member) -> float:
        s, reward = self.settings, member.signals.reward
        correct = right(member, "filter.shape 'noise-correction'")
        if reward is None or abs(reward - correct) > REWARD_TOLERANCE:
            raise ConfigError(
                f"filter.shape 'noise-correction' corrects rewards of 1 and 0, and the answer {member.rollout.id}, "
                f"{'right' if correct else 'wrong'}, has {reward}",
                "use a verifier that scores right answers 1 and wrong ones 0, or leave the correction out",
            )
        rates = self.rates(member.signals.primary or "")
        value = rates.backward(correct) if s.form == "backward" else rates.forward(correct)
        return min(max(value, -s.clip), s.clip)

    def _observe(self, group: Group, round_: int) -> None:
        trusted = self.settings.trusted
        if trusted is None:
            return
        if round_ != self._round:
            for name, said, truth in self._new:
                self._known.setdefault(name, Confusion()).add(said, truth)
            self._new, self._round = [], round_
        for member in group.fresh():
            judge = member.signals.verdicts.get(trusted)
            truth = None if judge is None else judge.correct
            for name, verdict in member.signals.verdicts.items():
                if name != trusted and verdict.status is Status.SCORED and verdict.correct is not None:
                    self._new.append((name, verdict.correct, truth))

    def state_dict(self) -> dict[str, Any]:
        return {
            "known": {name: dict(c.counts) for name, c in self._known.items()},
            "new": [list(item) for item in self._new],
            "round": self._round,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._known = {name: Confusion(counts) for name, counts in state["known"].items()}
        self._new = [(name, said, truth) for name, said, truth in state["new"]]
        self._round = state["round"]
