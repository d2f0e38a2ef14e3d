"""Corrections for verifiers that err, before any baseline.

Invariants: correctness, posteriors and admission keep the verdict as it was given; only what a verifier decided is corrected (a refused
answer keeps its reward); rates are those of the verifier that decided, so that answers of one group may have different ones;
measured rates are the cascade's (filter/judging.py), which are part of the committed state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from gfcr.context import Build, View
from gfcr.errors import ConfigError
from gfcr.filter.admission import REWARD_TOLERANCE, baseline
from gfcr.filter.judging import Rate
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
        measured: bool = False
        """Use what the cascade's sampled escalation measured of a verifier against the dearest one (`filter.cascade.escalate`), in place
        of the settings' rates once `least` answers stand behind a rate. The dearest verifier itself has the settings' rates, so leave
        those above at 0 and put what is known beforehand into `by`."""
        least: int = Field(50, ge=1)
        """Answers that the dearest verifier decided before a measured rate is believed."""
        clip: float = Field(5.0, gt=0)
        """Largest corrected reward, positive or negative."""

        def traits(self) -> frozenset[str]:
            return frozenset(() if self.by or self.measured else {"affine in reward"})

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings
        self._measure: Callable[[str], Mapping[str, Rate]] = lambda verifier: {}

    def watch(self, measure: Callable[[str], Mapping[str, Rate]]) -> None:
        """Take rates from here where `measured` is set; by a verifier's name, `Judging.rates`."""
        self._measure = measure

    def shape(self, group: Group, view: View) -> dict[str, float]:
        judged = [m for m in baseline(group) if m.signals.status is Status.SCORED]
        rates = {name: self.rates(name) for name in sorted({m.signals.primary or "" for m in judged})}
        return {m.rollout.id: self._corrected(m, rates[m.signals.primary or ""]) for m in judged}

    def rates(self, verifier: str) -> Rates:
        """What is known of a verifier now; beside measured rates none is above MOST, so that something is left of the signal."""
        given = self.settings.by.get(verifier, self.settings)
        found = self._measure(verifier) if self.settings.measured else {}
        most = MOST if found else 1.0

        def rate(key: str) -> float:
            known = found.get(key)
            if known is None or known.value is None or known.n < self.settings.least:
                return min(float(getattr(given, key)), most)
            return min(known.value, most)

        return Rates(false_negative=rate("false_negative"), false_positive=rate("false_positive"))

    def _corrected(self, member: Member, rates: Rates) -> float:
        s, reward = self.settings, member.signals.reward
        correct = right(member, "filter.shape 'noise-correction'")
        if reward is None or abs(reward - correct) > REWARD_TOLERANCE:
            raise ConfigError(
                f"filter.shape 'noise-correction' corrects rewards of 1 and 0, and the answer {member.rollout.id}, "
                f"{'right' if correct else 'wrong'}, has {reward}",
                "use a verifier that scores right answers 1 and wrong ones 0, or leave the correction out",
            )
        value = rates.backward(correct) if s.form == "backward" else rates.forward(correct)
        return min(max(value, -s.clip), s.clip)
