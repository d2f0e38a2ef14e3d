"""Changes to credit that any credit with advantages can be given, in the order the recipe names them: `filter.credit_batch = [...]`.

Invariants: a member outside the loss, or without an advantage, stays as it is; tokens without an RL loss keep 0; the sign of an
advantage is turned by evidence alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.credit.batch import rl_tokens
from gfcr.filter.places import FINAL
from gfcr.filter.slots import BatchCredit
from gfcr.filter.steps import WRONG, has_wrong_step, on_trained_path, scored_steps
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Credit, Group, LossRole, Member, TokenSource


class Chain:
    """Several of them, one after the other."""

    def __init__(self, parts: Sequence[BatchCredit]) -> None:
        self.parts = tuple(parts)

    def credit(self, groups: Sequence[Group]) -> None:
        for part in self.parts:
            part.credit(groups)

    def state_dict(self) -> dict[str, Any]:
        """State of the parts that have any, by place."""
        return {str(i): part.state_dict() for i, part in enumerate(self.parts) if hasattr(part, "state_dict")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for place, own in state.items():
            self.parts[int(place)].load_state_dict(own)  # type: ignore[attr-defined]


def chained(parts: Sequence[BatchCredit]) -> BatchCredit | None:
    """What a run calls across the batch; None for none."""
    return Chain(parts) if len(parts) > 1 else parts[0] if parts else None


Advantage = float | np.ndarray


def _adjustable(group: Group) -> Iterator[tuple[Member, Credit, Advantage]]:
    """Members in the loss with an advantage."""
    for member in group.members.values():
        credit = member.credit
        if member.in_loss and credit is not None and credit.advantage is not None:
            yield member, credit, credit.advantage


def _spread(member: Member, advantage: Advantage) -> np.ndarray:
    """float32[n] over the trained path, 0 on tokens without an RL loss."""
    return np.where(rl_tokens(member.rollout), advantage, 0.0).astype(np.float32)


@method(
    "xrpo-sharpening",
    Slot.CREDIT_BATCH,
    title="XRPO novelty sharpening",
    arxiv="2510.06672",
    criterion="coverage",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("compares within group",),
)
class Sharpening:
    """A + min(max(weight (1 - eta), 0), most A) for right answers with A > 0, eta = exp(s - mean of the group's s), s = mean
    log-probability of the answer's tokens: unlikely right answers get more (XRPO, arXiv:2510.06672)."""

    class Settings(FrozenModel):
        weight: float = Field(2.5, ge=0)
        """Factor of the novelty (lambda)."""
        most: float = Field(0.5, ge=0)
        """Largest bonus as a share of the advantage (kappa)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, groups: Sequence[Group]) -> None:
        for group in groups:
            known = {i: s for i, m in group.members.items() if m.in_baseline and (s := _mean_logprob(m)) is not None}
            cohorts: dict[str, list[float]] = {}
            for i, s in known.items():
                cohorts.setdefault(group.members[i].cohort, []).append(s)
            for member, credit, advantage in _adjustable(group):
                if member.signals.correct is True and member.rollout.id in known:
                    eta = np.exp(known[member.rollout.id] - np.mean(cohorts[member.cohort]))
                    member.credit = replace(credit, advantage=self._sharpened(advantage, float(eta)))

    def _sharpened(self, advantage: Advantage, eta: float) -> Advantage:
        novelty = max(self.settings.weight * (1.0 - eta), 0.0)
        bonus = np.where(np.asarray(advantage) > 0, np.minimum(novelty, self.settings.most * np.asarray(advantage)), 0.0)
        return (advantage + bonus).astype(np.float32) if isinstance(advantage, np.ndarray) else advantage + float(bonus)


def _mean_logprob(member: Member) -> float | None:
    """Mean log-probability of the answer's own tokens under the context it is trained in; None where that is not known."""
    parts = []
    for node in member.rollout.trained_path:
        segment = node.segment
        if segment.role is LossRole.RL and len(segment):
            same = member.rollout.train_path is None and segment.source is not TokenSource.REPLAYED
            known = segment.tracks.get("proximal", segment.logprobs if same else None)
            if known is None:
                return None
            parts.append(known)
    return float(np.concatenate(parts).mean(dtype=np.float64)) if parts else None


@method(
    "evidence",
    Slot.CREDIT_BATCH,
    title="fine-grained credit from evidence (RLTF)",
    arxiv="2307.04349",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=("per-token advantages",),
)
class Evidence:
    """Subtracts `weight` on the tokens of the places that a wrong answer's verdicts point at, the offending line above all (RLTF,
    arXiv:2307.04349). Without such places nothing changes."""

    class Settings(FrozenModel):
        weight: float = Field(0.3, ge=0)
        """Subtracted from the advantage (official code: .3)."""
        kinds: tuple[str, ...] = ("line",)
        """Kinds of `Verdict.spans` that count; empty = all but `answer`, which says where the final answer stands, not what is
        wrong."""
        scale: Literal["token", "answer"] = "token"
        """`token`: each token gets the weight, as the official code does. `answer`: weight times the answer's tokens over those
        pointed at, as intended there, so that a short line weighs as much as a long one."""

        @field_validator("kinds")
        @classmethod
        def _evidence(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
            if FINAL in kinds:
                raise ConfigError(
                    f"filter.credit_batch 'evidence': kinds has {FINAL!r}, which is where the final answer stands, right or wrong",
                    "name kinds that point at a fault, such as 'line'",
                )
            return kinds

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, groups: Sequence[Group]) -> None:
        for group in groups:
            for member, credit, advantage in _adjustable(group):
                if member.signals.correct is False and (places := self._places(member)).any():
                    answer = np.count_nonzero(rl_tokens(member.rollout)) / np.count_nonzero(places)
                    loss = self.settings.weight * (answer if self.settings.scale == "answer" else 1.0) * places
                    member.credit = replace(credit, advantage=_spread(member, _spread(member, advantage) - loss))

    def _places(self, member: Member) -> np.ndarray:
        """bool[n] over the trained path: own tokens pointed at."""
        own = rl_tokens(member.rollout)
        out = np.zeros(len(own), bool)
        for start, end, score in on_trained_path(member, {"evidence"}):
            if not self.settings.kinds or score.source.rpartition(":")[2] in self.settings.kinds:
                out[start:end] = True
        return out & own


@method(
    "withhold-wrong-steps",
    Slot.CREDIT_BATCH,
    title="no praise for wrong steps",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("per-token advantages", "needs: step scores"),
)
class Withhold:
    """Takes the positive credit from right answers with a wrong step. Their share is the metric `share_right_with_wrong_step`,
    with this method or without."""

    class Settings(FrozenModel):
        below: float = WRONG
        """A step that scores less is wrong."""
        where: Literal["answer", "from-step", "step"] = "answer"
        """Tokens that get nothing: all, those from the first wrong step on, or those of wrong steps."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, groups: Sequence[Group]) -> None:
        for group in groups:
            for member, credit, advantage in _adjustable(group):
                if member.signals.correct is True and has_wrong_step(member, self.settings.below):
                    spread = _spread(member, advantage)
                    left = np.where(self._taken(member), np.minimum(spread, np.float32(0)), spread)
                    member.credit = replace(credit, advantage=left)

    def _taken(self, member: Member) -> np.ndarray:
        """bool[n] over the trained path."""
        out = np.zeros(len(rl_tokens(member.rollout)), bool)
        wrong = [(start, end) for start, end, value in scored_steps(member) if value < self.settings.below]
        if self.settings.where == "step":
            for start, end in wrong:
                out[start:end] = True
        elif self.settings.where == "answer":
            out[:] = True
        elif wrong:
            out[min(start for start, _ in wrong) :] = True
        return out
