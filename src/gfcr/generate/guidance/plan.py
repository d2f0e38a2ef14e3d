"""Plan, then solve: plans, and completions of each.

Invariants: a plan that gives the answer away has no completions (its tokens are booked as discarded, `plan_leak`); completions of one plan
share its nodes, so that it is decoded and stored once; a completion is judged by its own words alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from gfcr.context import Build, Configuration, View
from gfcr.errors import ConfigError
from gfcr.generate.growth import Copied, Leaf, Look, Lost, Outcome, Piece, Sample, Seen, Spill, Want
from gfcr.generate.guidance.leaks import gives_away
from gfcr.generate.guidance.second import AUTHOR, Talk, alone, moved, talk_of
from gfcr.generate.shown import said_by
from gfcr.generate.words import needs, told, words_of, writable
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group, Node, Path, Segment, SegmentKind, Signals, Task, derive_id, path_ids


class PlanSettings(FrozenModel):
    plans: int = Field(4, ge=1)
    """Plans of a group (n_z)."""
    completions: int = Field(2, ge=1)
    """Completions of each plan (n_y); with one of them a plan's value is its only answer's, and a completion's own advantage 0."""
    tokens: int = Field(64, ge=1)
    """Longest plan, in tokens."""
    ask: str = "{prompt}\n\nFirst write a short plan. Do not solve it yet."
    """The question a plan answers; of a chat, the last user message."""
    solve: str = "Now solve it."
    """Said after the plan."""
    leak: Literal["drop", "keep"] = "drop"
    """What becomes of a plan that holds the answer (as words of their own, where the question does not)."""

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.k < 2:
            raise ConfigError("generate.topology 'plan' with one plan and one completion compares nothing", "set plans = 4")
        return self

    @property
    def k(self) -> int:
        """Leaves planned."""
        return self.plans * self.completions

    def worst_tokens(self, max_tokens: int) -> int:
        return self.plans * (self.tokens + self.completions * max_tokens)


@method(
    "plan",
    Slot.TOPOLOGY,
    title="plan-conditioned rollouts",
    criterion="coverage",
    faithfulness=Faithfulness.OURS,
    traits=("breaks: iid group", "shares prefixes", "grows in pieces", "fixed shape"),
)
class Plan:
    """n_z plans and n_y completions of each, a tree of depth 2. Credit: `treerpo` with spread = "none", least = 0 gives plan tokens
    V(z) - mean V and completions r - V(z), V = mean reward of a plan's completions (card G-13; there is no canonical paper)."""

    Settings = PlanSettings

    def __init__(self, settings: PlanSettings, build: Build) -> None:
        self.settings, self.build = settings, build
        needs(settings.ask, "generate.topology.ask", "prompt")
        writable(build, {"generate.topology.ask": settings.ask, "generate.topology.solve": settings.solve})

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Planning:
        who, s = "generate.topology 'plan'", self.settings
        words = words_of(self.build, who)
        question = told(group.task, s.ask)
        asked = words.prompt(question)
        segment = Segment(SegmentKind.PROMPT, asked.ids, author=AUTHOR, template=asked.template)
        root = (Node(derive_id("plan", group.id, segment.ids.tobytes()), None, segment),)
        plans = max(1, len(bases) // s.completions)
        return Planning(_Frame(s, group.task, question, root, plans, how, talk_of(self.build, who), words.text))


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    settings: PlanSettings
    task: Task
    question: Task
    """The task with the question that a plan answers."""
    root: Path
    plans: int
    how: Configuration
    talk: Talk
    text: Callable[[np.ndarray], str]


@dataclass
class Planning(Copied):
    """The growth. Names: `2` a plan, `2.1` a completion of it."""

    frame: _Frame
    plans: dict[str, Path] = field(default_factory=dict)
    """Plan -> the path its completions go on from."""
    done: dict[str, Piece] = field(default_factory=dict)

    def start(self) -> Sequence[Want]:
        how, s = self.frame.how, self.frame.settings
        return [Sample(str(i), self.frame.root, how.sampling, s.tokens, how.later) for i in range(self.frame.plans)]

    def tell(self, outcome: Outcome) -> Sequence[Want]:
        if isinstance(outcome, Piece):
            return self._completed(outcome) if "." in outcome.name else self._planned(outcome)
        if isinstance(outcome, Seen):
            return [self._leaf(outcome.name, outcome.signals)]
        if isinstance(outcome, Lost) and outcome.name in self.done:
            return [self._leaf(outcome.name, Signals())]
        return []

    def _planned(self, piece: Piece) -> list[Want]:
        frame, s, how = self.frame, self.frame.settings, self.frame.how
        if s.leak == "drop" and gives_away(frame.text(path_ids(piece.new(frame.root))), frame.task):
            return [Spill(piece.name, "plan_leak: the plan holds the answer")]
        talk = frame.talk(frame.question, frame.root).grown(piece.path, piece.stop)
        talk = talk.heard([said_by("user", s.solve)], AUTHOR, f"{piece.path[-1].id}.told")
        self.plans[piece.name] = talk.path
        return [Sample(f"{piece.name}.{j}", talk.path, how.sampling, how.max_tokens, how.later) for j in range(s.completions)]

    def _completed(self, piece: Piece) -> list[Want]:
        self.done[piece.name] = piece
        return [Look(piece.name, self._alone(piece), piece.stop)]

    def _alone(self, piece: Piece) -> Path:
        before = self.plans[piece.name.partition(".")[0]]
        return alone(self.frame.root, piece.path[len(before) :])

    def _leaf(self, name: str, signals: Signals) -> Leaf:
        piece = self.done[name]
        judged = moved(signals, self._alone(piece), piece.path)
        return Leaf(name, piece.path, piece.stop, (name.partition(".")[0], name), seed=piece.seed, judged=judged)
