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
from gfcr.registry import FrozenModel
from gfcr.run.budget import Budget
from gfcr.run.ledger import NOTHING
from gfcr.types import Batch, Decision, Group, GroupState, Node, Normalise, Path, Rollout, Segment, Task, derive_id


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
    retries: int = 2
    """Times a failed request is asked again."""
    min_members: int = 2
    """A group that closes with fewer judged members is abandoned."""
    normalise: Normalise = Normalise.TOKEN_MEAN
    constant: float | None = None
    """Denominator of constant normalisation, in tokens; None for the other modes."""
    packed: bool = False
    """One row per group in the batch, shared tokens once (filter/pack.py)."""


class Phase(StrEnum):
    SELECT = "select"
    ROLLOUT = "rollout"
    SCORE = "score"
    DONE = "done"


@dataclass(slots=True)
class Work:
    """Outstanding work of one group."""

    open: set[str] = field(default_factory=set)
    """Ids of unanswered asks."""
    next_member: int = 0
    prompt: Path = ()
    seed_nodes: Path = ()
    """Guidance after the prompt; empty for none."""
    train_without: bool = False
    """Train on the context without `seed_nodes`."""
    replaced: dict[str, str] = field(default_factory=dict)
    """Injected rollout id -> id of the member it took the place of."""

    def add_seed(self, group_id: str, seed: Seed) -> None:
        """Put what conditions generation after the prompt."""
        parent = self.prompt[-1].id
        for i, segment in enumerate(seed.segments):
            node = Node(derive_id("seed", group_id, i), parent, segment)
            self.seed_nodes, parent = (*self.seed_nodes, node), node.id
        self.train_without = seed.train_without

    def trained(self, rollout: Rollout) -> Rollout:
        """The rollout with the context it is trained under."""
        if not self.train_without or not self.seed_nodes or rollout.train_path is not None:
            return rollout
        guided = {node.id for node in self.seed_nodes}
        return replace(rollout, train_path=tuple(node for node in rollout.path if node.id not in guided))

    def state(self) -> dict[str, Any]:
        return {
            "open": sorted(self.open),
            "next_member": self.next_member,
            "prompt": self.prompt,
            "seed_nodes": self.seed_nodes,
            "train_without": self.train_without,
            "replaced": dict(self.replaced),
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Work:
        return cls(**{**state, "open": set(state["open"]), "replaced": dict(state["replaced"])})


def copy_group(group: Group) -> Group:
    """The group with members of its own; rollouts, signals and credit are frozen and shared."""
    return replace(
        group,
        members={i: replace(m) for i, m in group.members.items()},
        comparisons=list(group.comparisons),
        preferences=list(group.preferences),
    )


_HINTS = {
    "all_right": "tasks too easy",
    "all_wrong": "tasks too hard or the verifier too strict",
    "unscored": "the verifier could judge nothing",
    "too_few_members": "requests fail or cannot be judged",
    "prompt_too_long": "prompts exceed the model's context",
    "prompt_unreadable": "the tokenizer does not know their characters",
}


def likely_causes(groups: Iterable[Group]) -> str:
    """Groups by what became of them, the most frequent first, each with what it usually means."""
    kinds = Counter(g.composition if g.state is GroupState.CLOSED else g.reason.split(":")[0] for g in groups)
    return ", ".join(
        f"{n} groups {kind} ({_HINTS[kind]})" if kind in _HINTS else f"{n} groups {kind}" for kind, n in kinds.most_common()
    )


def why_empty(groups: Mapping[str, Group], budget: Budget, settings: RoundSettings) -> str:
    """Why a round ends without one closed group."""
    if groups:
        return "all_abandoned: " + likely_causes(groups.values())
    limit = budget.affordable(settings.k * settings.max_tokens)
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
        """Context tokens computed and reused for them."""
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
            "reason": self.reason,
            "asks": dict(self._asks),
            "attempts": dict(self._attempts),
            "work": {g: work.state() for g, work in self._work.items()},
            "batch": self._batch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; every unanswered ask is asked again, under its old id and stream key."""
        self.phase, self.wave = state["phase"], state["wave"]
        self.groups = {g: copy_group(group) for g, group in state["groups"].items()}
        self.decisions, self.failed, self.reason = list(state["decisions"]), Counter(state["failed"]), state["reason"]
        self.failed_context = state["failed_context"]
        self._attempts, self._batch = dict(state["attempts"]), state["batch"]
        self._work = {g: Work.of(work) for g, work in state["work"].items()}
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

    def causes(self) -> str:
        """The likely causes of a round without enough signal."""
        return likely_causes(self.groups.values())
