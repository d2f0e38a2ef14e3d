"""Replay's memory of artifacts.

Invariants: bounded per task and in all, evicting the oldest; equal answers to one task are kept once; additions become
visible to retrieval only in the next round (reads never see the round's own writes); contents live in the run's store, the
state holds their rollout ids.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import Field

from gfcr.registry import FrozenModel
from gfcr.types import Artifact, ArtifactKind, Rollout, Signals, Span, Status, Verdict


class MemorySettings(FrozenModel):
    per_task: int = Field(16, ge=1)
    """Artifacts kept per task; the oldest leaves. UNCONFIRMED for AR3PO (its paper gives no cache size)."""
    total: int = Field(100_000, ge=1)
    """Artifacts kept in all; the oldest leaves."""


class Memory:
    """Artifacts by task, oldest first."""

    def __init__(self, settings: MemorySettings) -> None:
        self.settings = settings
        self._artifacts: OrderedDict[str, Artifact] = OrderedDict()
        self._by_task: dict[str, list[str]] = {}
        self._digests: dict[str, str] = {}
        """(task, answer) digest -> artifact id."""

    def __len__(self) -> int:
        return len(self._artifacts)

    def add(self, artifact: Artifact) -> tuple[bool, str]:
        """(kept, reason)."""
        digest = _digest(artifact)
        if digest in self._digests:
            return False, "duplicate"
        self._artifacts[artifact.id] = artifact
        self._digests[digest] = artifact.id
        ids = self._by_task.setdefault(artifact.task_id, [])
        ids.append(artifact.id)
        if len(ids) > self.settings.per_task:
            self._drop(ids[0])
            return True, "kept; the task's oldest left"
        if len(self._artifacts) > self.settings.total:
            self._drop(next(iter(self._artifacts)))
            return True, "kept; the oldest of all left"
        return True, "kept"

    def _drop(self, artifact_id: str) -> None:
        artifact = self._artifacts.pop(artifact_id)
        del self._digests[_digest(artifact)]
        ids = self._by_task[artifact.task_id]
        ids.remove(artifact_id)
        if not ids:
            del self._by_task[artifact.task_id]

    def of_task(self, task_id: str) -> Sequence[Artifact]:
        return [self._artifacts[i] for i in self._by_task.get(task_id, ())]

    def tasks(self) -> Sequence[str]:
        return list(self._by_task)

    def state_dict(self) -> dict[str, Any]:
        """Artifacts in insertion order, rollouts by id."""
        return {
            "artifacts": [
                {
                    "id": a.id,
                    "kind": str(a.kind),
                    "task_id": a.task_id,
                    "rollout": a.rollout.id if a.rollout else None,
                    "payload": dict(a.payload),
                    "signals": _signals_to_json(a.signals),
                    "round": a.round,
                    "version": a.version,
                    "refreshed": a.refreshed,
                    "provenance": a.provenance,
                    "parents": list(a.parents),
                }
                for a in self._artifacts.values()
            ]
        }

    def load_state_dict(self, state: dict[str, Any], fetch: Callable[[str], Rollout] | None = None) -> None:
        """Rebuild; `fetch` reads a rollout by id from the run's store."""
        self._artifacts, self._by_task, self._digests = OrderedDict(), {}, {}
        for row in state["artifacts"]:
            if row["rollout"] and fetch is None:
                raise ValueError("replay's memory has trajectories, and no store to fetch them from")
            rollout = fetch(row["rollout"]) if row["rollout"] and fetch else None
            artifact = Artifact(
                row["id"],
                ArtifactKind(row["kind"]),
                row["task_id"],
                rollout,
                row["payload"],
                _signals_from_json(row["signals"]),
                row["round"],
                row["version"],
                row["refreshed"],
                row["provenance"],
                tuple(row["parents"]),
            )
            self._artifacts[artifact.id] = artifact
            self._by_task.setdefault(artifact.task_id, []).append(artifact.id)
            self._digests[_digest(artifact)] = artifact.id


def _digest(artifact: Artifact) -> str:
    from gfcr.types import derive_id

    if artifact.rollout is None:
        return derive_id(artifact.task_id, artifact.id)
    return derive_id(artifact.task_id, artifact.rollout.own_tokens().tobytes())


def _signals_to_json(signals: Signals) -> dict[str, Any]:
    """Verdicts and rewards; step scores stay with the rollout's own member row."""
    return {
        "verdicts": {name: asdict(v) | {"status": str(v.status)} for name, v in signals.verdicts.items()},
        "primary": signals.primary,
        "rewards": dict(signals.rewards),
        "reward": signals.reward,
    }


def _signals_from_json(row: dict[str, Any]) -> Signals:
    verdicts = {
        name: Verdict(**{**v, "status": Status(v["status"]), "spans": tuple(Span(**s) for s in v.get("spans", ()))})
        for name, v in row["verdicts"].items()
    }
    return Signals(verdicts, row["primary"], row["rewards"], row["reward"])
