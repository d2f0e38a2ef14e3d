"""Replay's slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gfcr.context import View
from gfcr.types import Artifact, Group, Role, Rollout


@dataclass(frozen=True, slots=True, eq=False)
class Injection:
    """A kept trajectory that joins a group."""

    artifact: Artifact
    """Has a rollout."""
    reason: str
    replaces: str | None = None
    """Rollout id of the member it takes the place of; None = it is added."""
    in_loss: bool = True
    rescore: bool = True
    """Recompute its log-probabilities under the current weights before training."""
    role: Role = Role.INJECTED
    judge: Rollout | None = None
    """What the verifiers are asked about in its place before it counts: its text as the policy's own. It stays only if they call it
    right; None = the artifact's own signals hold."""


class Augment(Protocol):
    """Changes a closed group with what replay has: injection, recomposition (R_retrieve)."""

    def augment(self, group: Group, view: View) -> list[Injection]: ...


class StoreRule(Protocol):
    """What of a closed group enters replay (R_store)."""

    def store(self, group: Group, view: View) -> Sequence[Artifact]: ...
