"""Control's slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from gfcr.context import Configuration, View
from gfcr.types import Group, Task


@dataclass(frozen=True, slots=True)
class Pick:
    """A task chosen, with the reason."""

    task: Task
    reason: str
    data: Mapping[str, Any] = field(default_factory=dict)


class Selector(Protocol):
    """Which tasks."""

    def select(self, n: int, exclude: Set[str], view: View) -> list[Pick]:
        """Up to n tasks, none in `exclude`; fewer when there are no more."""

    def observe(self, groups: Sequence[Group], view: View) -> None:
        """Every completed group of the round, before admission."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Allocation:
    """What an open group gets next: n > 0 more rollouts, or 0 and it closes, or parks."""

    n: int
    reason: str
    park: bool = False


class Allocator(Protocol):
    """How many rollouts."""

    def allocate(self, groups: Sequence[Group], view: View) -> dict[str, Allocation]:
        """By group id, jointly over the groups whose stage has settled."""


class Configurator(Protocol):
    """Sampling law and length of a group's rollouts: the recipe's, as the methods of control.configure leave it."""

    def configure(self, group: Group, view: View) -> Configuration: ...


class ConfigureMethod(Protocol):
    """A method of control.configure; several stand in a list, each works on what the one before it left."""

    def edit(self, how: Configuration, group: Group, view: View) -> Configuration:
        """How the rollouts of the group's next stage are sampled; `group` has those of earlier stages, judged."""


class Action(StrEnum):
    CONTINUE = "continue"
    STOP = "stop"
    """End it here, keep it (early exit)."""
    PRUNE = "prune"
    """End it here, out of the loss."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """A growing rollout, as a stopper sees it."""

    id: str
    group: str
    ids: np.ndarray
    """int32[n]: new tokens so far."""
    logprobs: np.ndarray


class Stopper(Protocol):
    """When to end a growing rollout."""

    every: int
    """Tokens between decisions."""

    def decide(self, prefixes: Sequence[Prefix], view: View) -> dict[str, tuple[Action, str]]:
        """(action, reason) by rollout id; absent = continue."""


class Refill(Protocol):
    """Whether a round needs more groups than it planned."""

    def wanted(self, closed: Sequence[Group], target: int, view: View) -> int:
        """How many further groups to open; 0 = enough."""

    def keep(self, closed: Sequence[Group], target: int) -> dict[str, str]:
        """Group id -> drop reason, for groups that do not reach the batch."""

    max_waves: int


class OffPolicy(Protocol):
    """Weights of members that the current policy did not sample."""

    def weigh(self, groups: Sequence[Group], view: View) -> None: ...


class Mixer(Protocol):
    """Adds replayed groups to the fresh ones."""

    def mix(self, fresh: Sequence[Group], view: View) -> list[Group]: ...
