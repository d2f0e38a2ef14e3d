"""What the episodes of one group have in common. Invariant: nothing in it changes while they grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gfcr.context import Configuration
from gfcr.environments.contract import Said
from gfcr.generate.dialogue import Dialogue
from gfcr.generate.interactive.settings import Agent, InteractiveSettings
from gfcr.types import Path, Task


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    settings: InteractiveSettings
    task: Task
    how: Configuration
    session: str
    """What the names of the group's sessions begin with."""
    seeds: Callable[[int], int]
    """Rollout index -> seed of its environment."""
    dialogue: Callable[[Task, Path], Dialogue]
    drift: Callable[[int, Dialogue], str]
    """(rollout index, dialogue) -> the label of its drift; empty where none is wanted."""
    read: Callable[[str], Said]
    """A turn's text -> what the policy wants done."""
    again: Callable[[str, int], bool]
    max_context: int | None
    agents: Mapping[str, Agent]
    untrained: frozenset[str]
    held: bool = False
    """Whether others may begin where one of them stood: a rollout has its verdict and waits, its session and its marks kept, until
    its owner takes its leaf and dismisses it."""

    @property
    def keeps(self) -> bool:
        """Whether snapshots and computed prefixes are kept, for what goes back or begins there."""
        return self.held or self.settings.back != "never"
