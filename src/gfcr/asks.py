"""What a Round asks of the world and what the world tells it. Invariant: every ask is answered by exactly one event that
carries its id; a late or second answer is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gfcr.engine.contract import Request, ScoreItem
from gfcr.environments.acts import Act, Acted
from gfcr.generate.growth import Given
from gfcr.types import Comparison, Cost, Group, Rollout, Signals, Task
from gfcr.types.frozen import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class GenerateAsk:
    """Sample one rollout. Answer: Generated or Failed."""

    id: str
    """Rollout id, also the request's."""
    group: str
    task_id: str
    request: Request


@dataclass(frozen=True, slots=True, eq=False)
class JudgeAsk:
    """Judge one rollout. Answer: Judged."""

    id: str
    """Rollout id."""
    group: str
    task: Task
    rollout: Rollout
    given: Given | None = None
    """What the environment said of it; None without one."""


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class PlayAsk:
    """Play an act of an environment. Answer: Answered or Failed."""

    id: str
    group: str
    act: Act


@dataclass(frozen=True, slots=True, eq=False)
class CompareAsk:
    """Compare the members of a group. Answer: Compared."""

    id: str
    """Group id."""
    group: Group


@dataclass(frozen=True, slots=True, eq=False)
class ScoreAsk:
    """Log-probabilities of given tokens under the current weights. Answer: Scored."""

    id: str
    """Rollout id."""
    group: str
    item: ScoreItem


Ask = GenerateAsk | JudgeAsk | PlayAsk | CompareAsk | ScoreAsk


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    id: str
    rollout: Rollout


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that gave no rollout: an engine, tool or environment broke, or it was lost."""

    id: str
    reason: str
    tokens: int = 0
    """Tokens it generated before it broke; they count as spent and discarded."""
    context: Cost = Cost()
    """Context tokens computed and reused for it (`prefilled`, `cached`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    id: str
    signals: Signals


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """What an act came to, its failure too."""

    id: str
    acted: Acted


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    id: str
    comparisons: Sequence[Comparison]


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    id: str
    logprobs: np.ndarray
    """float32[n] over the item's tokens; NaN outside its spans."""


Event = Generated | Failed | Judged | Answered | Compared | Scored

_ANSWERS: dict[type, tuple[type, ...]] = {
    GenerateAsk: (Generated, Failed),
    JudgeAsk: (Judged, Failed),
    PlayAsk: (Answered, Failed),
    CompareAsk: (Compared, Failed),
    ScoreAsk: (Scored, Failed),
}


def answers(event: Event, ask: Ask) -> bool:
    """Whether `event` may answer `ask` (a rollout's generation and its judgement have the same id)."""
    kind = event.__class__
    if kind is Generated and event.rollout.id != event.id:  # type: ignore[union-attr]
        return False
    return event.id == ask.id and kind in _ANSWERS[ask.__class__]
