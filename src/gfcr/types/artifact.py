"""What replay keeps. Invariant: every artifact names where it came from, under which weights, and what a verifier said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gfcr.types.rollout import Rollout
from gfcr.types.signals import Signals


class ArtifactKind(StrEnum):
    TRAJECTORY = "trajectory"
    PREFIX = "prefix"
    SEGMENT = "segment"
    ANCHOR = "anchor"
    FAILURE = "failure"
    PATCH = "patch"
    TEST = "test"
    LEMMA = "lemma"
    TOOL_SEQUENCE = "tool_sequence"
    VERDICT = "verdict"
    TEMPLATE = "template"
    SKILL = "skill"
    TASK = "task"


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """One kept piece of experience (z in R_store, R_retrieve)."""

    id: str
    kind: ArtifactKind
    task_id: str
    rollout: Rollout | None = None
    """The trajectory it is, or was cut from; None for kinds without tokens."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    """JSON data of kinds that are no trajectory: diagnosis, error signature, test, template, ..."""
    signals: Signals = Signals()
    """What Filter said when it was stored: the verdict, with its verifier's version."""
    round: int = 0
    """Round it was stored in."""
    version: int = 0
    """Weights that produced it."""
    refreshed: int | None = None
    """Version under which log-probabilities or verdict were last recomputed; None = never."""
    provenance: str = "policy"
    """`policy`, `human`, `teacher`, `mixed`."""
    parents: tuple[str, ...] = ()
