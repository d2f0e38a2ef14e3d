"""Decisions. Invariant: whatever chose, closed, dropped, injected or stored something says so once, with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of a slot."""

    slot: str
    """Which slot decided: `select`, `allocate`, `refill`, `augment`, `store`, `round`, ..."""
    subject: str
    """Id of the task, group or rollout decided on; empty for the round as a whole."""
    action: str
    reason: str
    data: Mapping[str, Any] = field(default_factory=dict)
    """Numbers behind it, as JSON data."""
    task: str = ""
    """Task id, so that every decision about a task can be listed."""
