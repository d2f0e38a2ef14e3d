"""GiGPO: the episode against its group, and each turn against the turns that began in the same state.

Invariants: turns are the recorded ones (filter/turns.py), also where nothing was read between two; one begins in the state that the turn
before it ended in (`state_keys`), the first one in the task's own; a state met once adds 0; an episode alone in its group gets 0 (the
official code gives it its raw reward).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.credit.batch import rl_tokens
from gfcr.filter.credit.group import GROUP_TRAITS, GroupBaseline, centred, standardised
from gfcr.filter.credit.supervised import reward_of
from gfcr.filter.steps import scored_steps
from gfcr.filter.turns import OwnTurn, own_turns
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Credit, Group, Member


@method(
    "gigpo",
    Slot.CREDIT,
    title="GiGPO",
    arxiv="2505.10978",
    criterion="reliability",
    faithfulness=Faithfulness.CONFIRMED,
    traits=(*GROUP_TRAITS, "per-token advantages", "credits turns"),
)
class GiGPO(GroupBaseline):
    """A = A_episode + weight * A_step (GiGPO, arXiv:2505.10978): the episode's return against its group's; each turn's discounted
    return against the group's turns from the same state. The outcome is the last turn's reward, scores of kind `turn` are those of
    theirs."""

    class Settings(FrozenModel):
        gamma: float = Field(0.95, ge=0, le=1)
        """Discount per turn of a turn's return."""
        weight: float = Field(1.0, ge=0)
        """Factor of the step part (omega)."""
        episode: Literal["mean", "std"] = "mean"
        """Centre the episode part, or divide it by its std too (official ALFWorld script: std; the functions' default: mean)."""
        step: Literal["mean", "std"] = "mean"
        """The same for the step part."""
        over: Literal["turns", "episodes"] = "turns"
        """What the episode part's statistics count: `turns`, so that long episodes weigh more (the official code), or episodes."""
        turns: float = 1.0
        """Factor of turn scores."""
        eps: float = Field(1e-6, ge=0)
        """Added to the std, which is the sample's (ddof 1)."""

        def traits(self) -> frozenset[str]:
            return frozenset({"divides by std"} if "std" in (self.episode, self.step) else ())

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credits(self, members: Sequence[Member]) -> list[Credit]:
        s = self.settings
        spans = [own_turns(m) for m in members]
        rewards = [self._rewards(m, found) for m, found in zip(members, spans)]
        counts = [len(found) if s.over == "turns" else 1 for found in spans]
        totals = np.repeat([sum(r) for r in rewards], counts)
        places = np.cumsum([0, *counts[:-1]])
        normal = self._normal(totals, s.episode)
        states: dict[str, list[tuple[int, int]]] = {}
        for i, (member, found) in enumerate(zip(members, spans)):
            for t, key in enumerate(_anchors(member, found)):
                states.setdefault(key, []).append((i, t))
        steps = [np.zeros(len(found)) for found in spans]
        returns = [_discounted(r, s.gamma) for r in rewards]
        for met in states.values():
            values = self._normal(np.array([returns[i][t] for i, t in met]), s.step)
            for (i, t), value in zip(met, values):
                steps[i][t] = value
        out = []
        for i, (member, found) in enumerate(zip(members, spans)):
            own = rl_tokens(member.rollout)
            advantage = np.zeros(len(own), np.float32)
            for turn, step in zip(found, steps[i]):
                advantage[turn.start : turn.end] = normal[places[i]] + s.weight * step
            advantage[~own] = 0.0
            out.append(Credit(advantage))
        return out

    def _rewards(self, member: Member, found: Sequence[OwnTurn]) -> list[float]:
        """Reward of each turn, the outcome with the last; empty without own tokens."""
        if not found:
            return []
        out = [0.0] * len(found)
        for _, end, value in scored_steps(member, {"turn"}):
            turn = next((i for i, (a, b, _) in enumerate(found) if a < end <= b), None)
            if turn is not None:
                out[turn] += self.settings.turns * value
        out[-1] += reward_of(member)
        return out

    def _normal(self, values: np.ndarray, how: Literal["mean", "std"]) -> np.ndarray:
        """float64[n]; a value alone gets 0."""
        if len(values) < 2:
            return np.zeros(len(values))
        return centred(values) if how == "mean" else standardised(values, "sample", self.settings.eps)


def share_alone(groups: Sequence[Group]) -> float | None:
    """Share of turns that begin in a state which no other turn of their group begins in: at 1 the step part does nothing. None
    without an answer of several turns."""
    alone = total = 0
    for group in groups:
        found = [
            _anchors(m, spans)
            for m in group.fresh()
            if len(spans := own_turns(m)) > 1 and len(m.rollout.state_keys) >= spans[-1].number
        ]
        count = Counter(key for keys in found for key in keys)
        alone, total = alone + sum(n == 1 for n in count.values()), total + count.total()
    return alone / total if total else None


def _anchors(member: Member, found: Sequence[OwnTurn]) -> list[str]:
    """State in which each turn began, "" for the task's own."""
    keys = member.rollout.state_keys
    if found and len(keys) < found[-1].number:
        raise ConfigError(
            f"filter.credit 'gigpo' compares turns from the same state, and the rollout {member.rollout.id} has {found[-1].number + 1} "
            f"turns and {len(keys)} state keys",
            "use an environment that gives a state key per turn, or another credit",
        )
    return [f"={keys[turn.number - 1]}" if turn.number else "" for turn in found]


def _discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    out, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + gamma * running
        out.append(running)
    return out[::-1]
