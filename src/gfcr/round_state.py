"""What a Round keeps: its settings and phases, the outstanding work of a group, and why a round gave nothing. Invariant: a copy
made for `state_dict` shares only frozen data with what it was copied from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from pydantic import Field

from gfcr.asks import Ask, CompareAsk, GenerateAsk
from gfcr.context import Seed
from gfcr.generate.growth import Growth, Sample
from gfcr.generate.parking import Leg
from gfcr.generate.settings import PartialSettings
from gfcr.registry import FrozenModel
from gfcr.run.budget import Budget
from gfcr.run.ledger import NOTHING
from gfcr.types import (
    Batch,
    Cost,
    Decision,
    Group,
    GroupState,
    Node,
    Normalise,
    Path,
    Role,
    Rollout,
    Segment,
    Task,
    Times,
    derive_id,
)


class Renderer(Protocol):
    def __call__(self, task: Task) -> Segment:
        """The task's prompt as a PROMPT segment."""


class RoundSettings(FrozenModel):
    """Bounds of a round."""

    groups: int = Field(16, ge=1)
    """Groups planned."""
    k: int = Field(8, ge=1)
    """Rollouts planned per group (K)."""
    max_tokens: int = Field(64, ge=1)
    """Longest answer, in tokens."""
    max_context: int | None = None
    """Longest prompt plus answer the model takes, in tokens; None = not known."""
    min_groups: int = 1
    """A round that cannot afford this many groups does not start: the budget is exhausted."""
    max_stages: int = 8
    """Allocation stages per group."""
    max_waves: int = 10
    """Times a round may select groups; a refill's own bound may be lower."""
    partial: PartialSettings | None = None
    """Answers longer than its limit go on in later rounds; None = every answer ends in its round."""
    worst: int | None = None
    """Most tokens a group may generate in one allocation; None = K of the longest answers."""
    normalise: Normalise = Normalise.TOKEN_MEAN
    constant: float | None = None
    """Denominator of constant normalisation, in tokens; None for the other modes."""
    packed: bool = False
    """One row per group in the batch, shared tokens once (filter/pack.py)."""

    @property
    def group_tokens(self) -> int:
        """Most tokens a group may generate in one allocation."""
        return self.k * self.max_tokens if self.worst is None else self.worst

    @property
    def patience(self) -> int:
        """Rounds in a row that may give nothing because all their groups wait."""
        return 0 if self.partial is None else self.partial.max_age

    @property
    def room(self) -> int | None:
        """Most tokens before the longest answer; None = not known."""
        return None if self.max_context is None else self.max_context - self.max_tokens


class Phase(StrEnum):
    SELECT = "select"
    ROLLOUT = "rollout"
    SCORE = "score"
    DONE = "done"


@dataclass(slots=True)
class Growing:
    """A growth and what the round keeps of it."""

    growth: Growth
    stage: int
    """The group's, part of every name."""
    pieces: dict[str, tuple[Sample, int]] = field(default_factory=dict)
    """Outstanding pieces by request id, with the attempt."""
    others: dict[str, str] = field(default_factory=dict)
    """Names of plays and looks by ask id."""
    done: dict[str, tuple[Cost, Times]] = field(default_factory=dict)
    """What each sampled piece cost, and when."""
    ids: dict[str, str] = field(default_factory=dict)
    """Request id of each sampled piece."""
    booked: set[str] = field(default_factory=set)
    """Pieces whose cost is in a member's or among the discarded."""
    wanted: int = 0

    def copy(self) -> Growing:
        return replace(
            self,
            growth=self.growth.copy(),
            pieces=dict(self.pieces),
            others=dict(self.others),
            done=dict(self.done),
            ids=dict(self.ids),
            booked=set(self.booked),
        )


MARKS = ("hidden", "guided", "kept")
"""Sets of node ids in `Work`."""


@dataclass(slots=True)
class Work:
    """Outstanding work of one group."""

    open: set[str] = field(default_factory=set)
    """Ids of unanswered asks."""
    next_member: int = 0
    prompt: Path = ()
    hidden: set[str] = field(default_factory=set)
    """Nodes that are left out of the context a rollout is trained under."""
    guided: set[str] = field(default_factory=set)
    """Nodes that tell something about the task besides the prompt."""
    kept: set[str] = field(default_factory=set)
    """Hidden nodes under which the sampled log-probabilities stay the ratio's denominator."""
    limits: dict[str, int] = field(default_factory=dict)
    """Longest answer after a node, in tokens, where it is shorter than the configuration's."""
    replaced: dict[str, str] = field(default_factory=dict)
    """Injected rollout id -> id of the member it took the place of."""
    growing: Growing | None = None
    """The growth of the present allocation; None for independent streams."""
    legs: dict[str, Leg] = field(default_factory=dict)
    """Outstanding requests of partial rollouts, by rollout id."""
    parked: dict[str, Leg] = field(default_factory=dict)
    """Answers to go on with in a later round."""

    def seeded(self, group_id: str, seed: Seed) -> Path:
        """The prompt with what conditions generation after it; equal seeds give equal nodes."""
        path: Path = () if seed.instead else self.prompt
        for segment in seed.segments:
            parent = path[-1].id if path else None
            node = Node(
                derive_id("seed", group_id, parent or "instead", segment.kind, segment.author, segment.ids.tobytes()),
                parent,
                segment,
            )
            path = (*path, node)
            if seed.train_without:
                self.hidden.add(node.id)
                if seed.keep_ratio:
                    self.kept.add(node.id)
            if seed.role is Role.GUIDED:
                self.guided.add(node.id)
            if seed.max_tokens is not None:
                self.limits[node.id] = seed.max_tokens
        return path

    def limit(self, path: Path, tokens: int) -> int:
        """Longest answer after this path, where `tokens` is the configured one."""
        return min([tokens, *(self.limits[node.id] for node in path if node.id in self.limits)]) if self.limits else tokens

    def trained(self, rollout: Rollout) -> Rollout:
        """The rollout with the context it is trained under."""
        if not self.hidden or rollout.train_path is not None or not any(node.id in self.hidden for node in rollout.path):
            return rollout
        left_out = self.hidden | {node.id for node in self.prompt}
        rest = [node for node in rollout.path if node.id not in left_out]
        if any(node.id in self.kept for node in rollout.path):
            rest = [_as_sampled(node) for node in rest]
        return replace(rollout, train_path=(*self.prompt, *rest))

    def role(self, rollout: Rollout, resumed: bool = False) -> Role:
        if self.guided and any(node.id in self.guided for node in rollout.path):
            return Role.GUIDED
        return Role.RESUMED if resumed else Role.FRESH

    def copy(self) -> Work:
        return replace(
            self,
            open=set(self.open),
            hidden=set(self.hidden),
            guided=set(self.guided),
            kept=set(self.kept),
            limits=dict(self.limits),
            replaced=dict(self.replaced),
            growing=None if self.growing is None else self.growing.copy(),
            legs=dict(self.legs),
            parked=dict(self.parked),
        )


def _as_sampled(node: Node) -> Node:
    """The node with the log-probabilities it was sampled with as those the loss's ratio starts from."""
    segment = node.segment
    if segment.logprobs is None:
        return node
    return replace(node, segment=replace(segment, tracks={**segment.tracks, "proximal": segment.logprobs}))


def copy_group(group: Group) -> Group:
    """The group with members of its own; rollouts, signals and credit are frozen and shared."""
    return replace(
        group,
        members={i: replace(m) for i, m in group.members.items()},
        comparisons=list(group.comparisons),
        preferences=list(group.preferences),
    )


_FAULTS = ("fault", "give_up")
"""Actions of decisions that say why something failed."""
_HINTS = {
    "all_right": "tasks too easy",
    "all_wrong": "tasks too hard or the verifier too strict",
    "unscored": "the verifier could judge nothing",
    "too_few_members": "requests fail or cannot be judged",
    "partial": "they go on in a later round",
    "prompt_too_long": "prompts exceed the model's context",
    "prompt_unreadable": "the tokenizer does not know their characters",
}


def likely_causes(groups: Iterable[Group]) -> str:
    """Groups by what became of them, the most frequent first, each with what it usually means."""
    kinds, faults = Counter[str](), dict[str, str]()
    for group in groups:
        kind = group.composition if group.state is GroupState.CLOSED else group.reason.split(":")[0]
        kinds[kind] += 1
        if kind == "too_few_members" and (fault := group.reason.partition("; ")[2]):
            faults.setdefault(kind, fault)
    meant = {kind: faults.get(kind, _HINTS.get(kind, "")) for kind in kinds}
    return ", ".join(
        f"{n} groups {kind} ({meant[kind]})" if meant[kind] else f"{n} groups {kind}" for kind, n in kinds.most_common()
    )


def why_empty(groups: Mapping[str, Group], budget: Budget, settings: RoundSettings) -> str:
    """Why a round ends without one closed group."""
    if waiting := sum(g.state is GroupState.PARKED for g in groups.values()):
        return f"parked: {waiting} of {len(groups)} groups go on in a later round"
    if groups:
        return "all_abandoned: " + likely_causes(groups.values())
    limit = budget.affordable(settings.group_tokens)
    return "budget" if limit is not None and limit < settings.min_groups else "no_tasks"


class InFlight:
    """Everything of a round that is in flight, and how it is kept: what `Round` builds on."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.phase = Phase.SELECT
        self.wave = 0
        self.groups: dict[str, Group] = {}
        self.decisions: list[Decision] = []
        self.failed: Counter[str] = Counter()
        """Tokens of failed requests by reason."""
        self.failed_context = NOTHING
        """What else was spent on what failed: context tokens, environment steps, tool seconds."""
        self.failed_steps: Counter[str] = Counter()
        """Environment steps of it by reason."""
        self.booked: dict[str, Cost] = {}
        """What earlier rounds booked of the rollouts that waited."""
        self.reason = ""
        """Why the round ended without a batch; empty otherwise."""
        self._asks: dict[str, Ask] = {}
        self._work: dict[str, Work] = {}
        self._attempts: dict[str, int] = {}
        self._outbox: list[Ask] = []
        self._batch: Batch | None = None

    def outstanding(self) -> list[Ask]:
        """Unanswered asks."""
        return list(self._asks.values())

    def state_dict(self) -> dict[str, Any]:
        """All that is in flight, as a copy that later events do not change; asks are to be issued again."""
        return {
            "phase": self.phase,
            "wave": self.wave,
            "groups": {g: copy_group(group) for g, group in self.groups.items()},
            "decisions": list(self.decisions),
            "failed": dict(self.failed),
            "failed_context": self.failed_context,
            "failed_steps": dict(self.failed_steps),
            "booked": dict(self.booked),
            "reason": self.reason,
            "asks": dict(self._asks),
            "attempts": dict(self._attempts),
            "work": {g: work.copy() for g, work in self._work.items()},
            "batch": self._batch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; every unanswered ask is asked again, under its old id and stream key."""
        self.phase, self.wave = state["phase"], state["wave"]
        self.groups = {g: copy_group(group) for g, group in state["groups"].items()}
        self.decisions, self.failed, self.reason = list(state["decisions"]), Counter(state["failed"]), state["reason"]
        self.failed_context, self.failed_steps = state["failed_context"], Counter(state["failed_steps"])
        self.booked = dict(state["booked"])
        self._attempts, self._batch = dict(state["attempts"]), state["batch"]
        self._work = {g: work.copy() for g, work in state["work"].items()}
        self._asks = {
            i: CompareAsk(i, self.groups[i]) if isinstance(ask, CompareAsk) else ask for i, ask in state["asks"].items()
        }
        self._outbox = list(self._asks.values())
        for ask in self._asks.values():
            if isinstance(ask, GenerateAsk) and ask.id not in self.budget.reserved:
                self.budget.reserve(ask.id, ask.request.max_new_tokens)

    def _closed(self) -> list[Group]:
        return [g for g in self.groups.values() if g.state is GroupState.CLOSED]

    def _emit(self, ask: Ask, group: Group) -> None:
        self._asks[ask.id] = ask
        self._work[group.id].open.add(ask.id)
        self._outbox.append(ask)

    def _decide(self, slot: str, subject: str, action: str, reason: str, group: Group | None = None, **data: Any) -> None:
        self.decisions.append(Decision(slot, subject, action, reason, data, group.task.id if group else ""))

    def _cause(self, group: Group) -> str:
        """What failed most often in a group, `; kind: words`; empty when nothing did."""
        faults = Counter(d.reason for d in self.decisions if d.action in _FAULTS and d.task == group.task.id)
        return f"; {faults.most_common(1)[0][0][:300]}" if faults else ""

    def causes(self) -> str:
        """The likely causes of a round without enough signal."""
        return likely_causes(self.groups.values())
