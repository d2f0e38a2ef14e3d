"""The methods of a run, one per slot, and the feedback edges between them.

Invariants: slots live as long as the run, a Round as long as a round; whatever a stateful slot learns is in `state_dict`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gfcr.context import View
from gfcr.control.failures import FailurePolicy, Retry
from gfcr.control.posterior import PosteriorTable
from gfcr.control.slots import Allocator, Configurator, Mixer, OffPolicy, Refill, Selector, Stopper
from gfcr.filter.admission import AdmissionSettings, baseline
from gfcr.filter.shuffle import shuffle_signals
from gfcr.filter.slots import BatchCredit, GroupCredit, GroupJudge, Shaper, Value
from gfcr.generate.parking import Parking
from gfcr.generate.slots import Seeder, Topology
from gfcr.replay.memory import Memory
from gfcr.replay.slots import Augment, StoreRule
from gfcr.types import Decision, Drop, Group, Rollout


@dataclass(slots=True)
class Slots:
    """None = the slot is empty."""

    select: Selector
    configure: Configurator
    topology: Topology
    allocate: Allocator
    credit: GroupCredit
    posterior: PosteriorTable
    memory: Memory
    admission: AdmissionSettings = AdmissionSettings()
    failures: FailurePolicy = Retry(Retry.Settings())
    seed: Seeder | None = None
    stop: Stopper | None = None
    judge: GroupJudge | None = None
    value: Value | None = None
    shape: Shaper | None = None
    credit_batch: BatchCredit | None = None
    refill: Refill | None = None
    off_policy: OffPolicy | None = None
    mix: Mixer | None = None
    augment: Sequence[Augment] = ()
    store: Sequence[StoreRule] = field(default_factory=tuple)
    parking: Parking = field(default_factory=Parking)
    """Groups that wait for a later round."""
    shuffle_seed: int | None = None
    """Control experiment: permute signals over each round with this seed; None = off."""

    def observe(self, closed: Sequence[Group], view: View) -> None:
        """Feed completed groups to whoever learns from them, once a round."""
        if self.shuffle_seed is not None:
            shuffle_signals(closed, self.shuffle_seed, view.round)
        self.posterior.observe(closed)
        self.select.observe(closed, view)
        for part in (self.allocate, self.seed):
            if (learn := getattr(part, "observe", None)) is not None:
                learn(closed, view)

    def keep(self, group: Group, view: View, decisions: list[Decision]) -> None:
        """Put what the store rules choose into replay's memory (visible from the next round on)."""
        for rule in self.store:
            for artifact in rule.store(group, view):
                admitted, reason = self.memory.add(artifact)
                decisions.append(Decision("store", artifact.id, "keep" if admitted else "refuse", reason, task=group.task.id))

    def credit_group(self, group: Group) -> None:
        """Credit the members in the baseline; those in the loss keep it, or leave the loss where it is None."""
        members = baseline(group)
        if not any(m.in_loss for m in members):
            return
        credits = self.credit.credit(group, members)
        for member in members:
            if not member.in_loss:
                continue
            member.credit = credits[member.rollout.id]
            if member.credit is None:
                member.in_loss, member.drop = False, Drop.NO_LOSS

    def state_dict(self) -> dict[str, Any]:
        """State of every stateful slot, by name."""
        state: dict[str, Any] = {
            "posterior": self.posterior.state_dict(),
            "memory": self.memory.state_dict(),
            "parking": self.parking.state_dict(),
        }
        for name in _STATEFUL:
            if (dump := getattr(getattr(self, name), "state_dict", None)) is not None:
                state[name] = dump()
        return state

    def load_state_dict(self, state: dict[str, Any], fetch: Callable[[str], Rollout]) -> None:
        """`fetch` reads a committed rollout by id."""
        self.posterior.load_state_dict(state["posterior"])
        self.memory.load_state_dict(state["memory"], fetch)
        self.parking.load_state_dict(state.get("parking", {"waiting": []}))  # runs of before partial rollouts have none
        for name in _STATEFUL:
            if (load := getattr(getattr(self, name), "load_state_dict", None)) is not None:
                load(state[name])


_STATEFUL = (
    "select",
    "allocate",
    "configure",
    "topology",
    "refill",
    "seed",
    "stop",
    "judge",
    "value",
    "shape",
    "credit",
    "credit_batch",
    "off_policy",
    "mix",
    "failures",
)
