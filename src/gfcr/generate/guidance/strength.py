"""How much of a solution a hint gives: four laws.

Invariants: a law is told the group and draws from run/seeds.py alone; it gives whole steps, at least one and never all; what it
learns of a task across visits is in `state_dict`; a search asks at most ceil(log2 steps) times a visit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from gfcr.context import View
from gfcr.generate.guidance.solutions import Steps, given
from gfcr.registry import FrozenModel
from gfcr.run.seeds import generator
from gfcr.types import Group, Role


class StrengthSettings(FrozenModel):
    """Shares are of the solution's steps."""

    law: Literal["range", "grow", "search", "cosine"] = "range"
    """`range`: uniform between `low` and `high`, for each rollout anew. `grow`: from `low` up by `step` while guided rollouts fail;
    a task that needed it begins one step weaker at its next visit. `search`: bisection for the shortest part whose success rate lies
    in `band` (BREAD, arXiv:2506.17211). `cosine`: falls from `high` to `low` over `until` rounds, chunks drawn from a binomial (UFT,
    arXiv:2505.16984)."""
    low: float = Field(0.5, ge=0, le=1)
    high: float = Field(0.94, ge=0, le=1)
    """Of `range`: .50 to .94 is what the lab was measured with. UFT: .05 and .95."""
    step: float = Field(0.2, gt=0, le=1)
    """`grow`: added after each failure. UNCONFIRMED: our choice."""
    probes: int = Field(3, ge=1)
    """`grow`: times a visit may ask at most."""
    band: tuple[float, float] = (0.25, 0.75)
    """`search`: wanted success rate of guided rollouts. UNCONFIRMED: the paper does not print it."""
    until: int = Field(300, ge=1)
    """`cosine`: rounds with hints (UFT: 300 of 500)."""
    chunks: int = Field(5, ge=1)
    """`cosine`: parts a solution is cut into at most (UFT: 5)."""


class Law(ABC):
    """One of them."""

    always = False
    """Guides the planned rollouts, instead of further ones for groups that failed."""

    def __init__(self, settings: StrengthSettings) -> None:
        self.settings = settings

    @abstractmethod
    def parts(self, group: Group, steps: Steps, n: int, view: View) -> list[int]:
        """Steps given to each of n rollouts; 0 = plain, and not sampled where guidance itself asked for them."""

    def again(self, group: Group, steps: Steps) -> bool:
        """Whether a group that has guided rollouts gets more of them."""
        return False

    def best(self, group: Group, steps: Steps) -> int | None:
        """The number of steps whose rollouts stay; None = all stay."""
        return None

    def observe(self, group: Group, steps: Steps) -> None:
        """Learn from a completed group; most laws keep nothing."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        return None


def rates(group: Group) -> dict[int, tuple[int, int]]:
    """Steps given -> (right, judged) among the guided rollouts, in the order they were asked for."""
    out: dict[int, tuple[int, int]] = {}
    for member in group.members.values():
        part, correct = given(member), member.signals.correct
        if member.role is Role.GUIDED and part is not None:
            right, judged = out.get(part, (0, 0))
            out[part] = (right + (correct is True), judged + (correct is not None))
    return out


class Range(Law):
    def parts(self, group: Group, steps: Steps, n: int, view: View) -> list[int]:
        rng = generator(view.seed, "hint", group.id, group.stage)
        return [steps.at_share(share) for share in rng.uniform(self.settings.low, self.settings.high, n)]


class Cosine(Law):
    always = True

    def parts(self, group: Group, steps: Steps, n: int, view: View) -> list[int]:
        chunks = min(self.settings.chunks, len(steps))
        rng = generator(view.seed, "hint", group.id, group.stage)
        counts = rng.binomial(chunks, p, n) if (p := self.share(view.round)) else np.zeros(n, int)
        return [min(round(int(c) * len(steps) / chunks), len(steps) - 1) for c in counts]

    def share(self, t: int) -> float:
        """p_t = low + (high - low) (1 + cos(pi t / T)) / 2, 0 from T on (UFT)."""
        s = self.settings
        return s.low + 0.5 * (s.high - s.low) * (1 + math.cos(math.pi * t / s.until)) if t < s.until else 0.0


class Remembering(Law):
    """Keeps one number of steps per task."""

    def __init__(self, settings: StrengthSettings) -> None:
        super().__init__(settings)
        self.known: dict[str, int] = {}
        """Task id -> steps its next visit begins with."""

    def state_dict(self) -> dict[str, Any]:
        return {"known": dict(self.known)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.known = {str(task): int(part) for task, part in state["known"].items()}


class Grow(Remembering):
    def parts(self, group: Group, steps: Steps, n: int, view: View) -> list[int]:
        return [self._next(group, steps)] * n

    def _next(self, group: Group, steps: Steps) -> int:
        tried = rates(group)
        if not tried:
            return min(self.known.get(group.task.id, steps.at_share(self.settings.low)), len(steps) - 1)
        return min(max(tried) + self._pace(steps), len(steps) - 1)

    def _pace(self, steps: Steps) -> int:
        return max(1, round(self.settings.step * len(steps)))

    def again(self, group: Group, steps: Steps) -> bool:
        tried = rates(group)
        failing = all(right == 0 for right, _ in tried.values())
        return failing and len(tried) < self.settings.probes and max(tried, default=0) < min(len(steps) - 1, self._top(steps))

    def _top(self, steps: Steps) -> int:
        return steps.at_share(self.settings.high)

    def observe(self, group: Group, steps: Steps) -> None:
        tried = rates(group)
        right, _ = group.outcomes()
        if tried:
            helped = [part for part, (good, _) in tried.items() if good]
            self.known[group.task.id] = max(1, min(helped) - self._pace(steps)) if helped else max(tried)
        elif right and group.task.id in self.known:  # it can do without
            self.known[group.task.id] = max(1, self.known[group.task.id] - self._pace(steps))


class Search(Remembering):
    """The shortest part that lets the group succeed now and then."""

    def parts(self, group: Group, steps: Steps, n: int, view: View) -> list[int]:
        return [self._probe(group, steps) or 1] * n

    def again(self, group: Group, steps: Steps) -> bool:
        tried = rates(group)
        return len(tried) < math.ceil(math.log2(len(steps))) and self._probe(group, steps) is not None

    def _probe(self, group: Group, steps: Steps) -> int | None:
        """What to try next; None when nothing is left between what is too short and what is too long."""
        low, high = 0, len(steps)  # too short; too long or all of it
        tried = rates(group)
        for part, (right, judged) in tried.items():
            rate = right / judged if judged else 0.0
            if self.settings.band[0] <= rate <= self.settings.band[1]:
                return None
            if rate < self.settings.band[0]:
                low = max(low, part)
            else:
                high = min(high, part)
        if not tried and (known := self.known.get(group.task.id)) is not None:
            return min(known, len(steps) - 1)
        return (low + high) // 2 if high - low > 1 else None

    def best(self, group: Group, steps: Steps) -> int | None:
        """Best so far, since success is only about monotone in the length: one that helped, nearest to the band, the shortest."""
        low, high = self.settings.band
        found = [(r == 0, max(low - r / j, r / j - high, 0.0), part) for part, (r, j) in rates(group).items() if j]
        return min(found)[2] if found else None

    def observe(self, group: Group, steps: Steps) -> None:
        if (best := self.best(group, steps)) is not None:
            self.known[group.task.id] = best


LAWS: dict[str, type[Law]] = {"range": Range, "grow": Grow, "search": Search, "cosine": Cosine}


def law_of(settings: StrengthSettings) -> Law:
    return LAWS[settings.law](settings)


def judged_wrong(group: Group) -> bool:
    """Whether fresh rollouts were judged, and none of them right."""
    right, wrong = group.outcomes()
    return wrong > 0 and right == 0


def failures(group: Group) -> Sequence[str]:
    """Rollout ids of the fresh members that were judged wrong and are still in."""
    return [i for i, m in group.members.items() if m.fresh and m.drop is None and m.signals.correct is False]
