"""A recipe's `[tasks]` to task lists. Invariant: no held-out task is in the training set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gfcr.errors import ConfigError, DataError
from gfcr.recipe import TasksSection
from gfcr.types import Task

MOST_NOTES = 20
"""Notes of a task source that a run records."""


@dataclass(frozen=True)
class TaskSet:
    """Tasks to train on and to measure on."""

    tasks: Sequence[Task]
    heldout: Sequence[Task] = ()
    """Empty = no evaluation."""
    privileged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Named sets of task ids for oracles."""
    notes: Sequence[str] = ()
    """What the source reports: tasks without a reference, tasks that occur twice, those with two references first."""
    recognised: str = ""
    """What a table's columns were taken for, in a sentence; empty for a pool."""

    def about(self) -> dict[str, Any]:
        """What a run records of its task source, as JSON data."""
        return {
            "count": len(self.tasks),
            "heldout": len(self.heldout),
            "recognised": self.recognised or None,
            "notes": len(self.notes),
            "first_notes": list(self.notes[:MOST_NOTES]),
        }


def load_tasks(section: TasksSection) -> TaskSet:
    """Raises ConfigError for an incomplete section, DataError for unreadable, empty or overlapping task sets."""
    found = {"programs": _pool, "file": _file, "reasoning-gym": _gym, "tools": _tools}[section.source](section)
    if not found.tasks:
        raise DataError(
            f"tasks: the task set of {section.path or section.pool!r} is empty", "give a source with at least one task"
        )
    both = {t.id for t in found.tasks} & {t.id for t in found.heldout}
    if both:
        raise DataError(
            f"tasks: {len(both)} held-out tasks are in the training set too, e.g. {_prompt_of(found, min(both))}",
            "take them out of one of the two files",
        )
    return found


def _prompt_of(found: TaskSet, task_id: str) -> str:
    """A task's id and the start of its prompt, for a reader who has files and no ids."""
    prompt = next(t.prompt for t in found.tasks if t.id == task_id)
    text = prompt if isinstance(prompt, str) else " ".join(p.text or "" for m in prompt for p in m.parts)
    return f"{task_id}: {text[:60]!r}"


def _pool(section: TasksSection) -> TaskSet:
    from gfcr.domains.programs.pools import informative_ids, load_heldout, load_pool

    return TaskSet(load_pool(section.pool), load_heldout(section.pool), {"informative": informative_ids(section.pool)})


def _tools(section: TasksSection) -> TaskSet:
    from gfcr.domains.tools.pools import load_heldout, load_pool

    return TaskSet(load_pool(section.pool), load_heldout(section.pool))


def _gym(section: TasksSection) -> TaskSet:
    from gfcr.domains.gym.settings import GymSettings
    from gfcr.domains.gym.source import GymTasks

    source = GymTasks(section.gym or GymSettings())
    tasks, notes = source.read()
    return TaskSet(tasks, source.heldout() or (), notes=notes)


def _file(section: TasksSection) -> TaskSet:
    from gfcr.domains.answers import Extract
    from gfcr.domains.source import FileTasks

    if section.path is None:
        raise ConfigError(
            "tasks.source = 'file' without tasks.path",
            "name the JSONL, parquet or CSV file, or the saved data set, in tasks.path",
        )
    source = FileTasks(
        Path(section.path),
        section.domain,
        section.columns,
        heldout_path=Path(section.heldout) if section.heldout else None,
        need_reference=section.need_reference,
        split=section.split,
        heldout_split=section.heldout_split,
        extract=None if section.extract == "auto" else Extract(section.extract),
    )
    loaded = source.read(Path(section.path), section.split)
    notes = [str(d) for d in sorted(loaded.duplicates, key=lambda d: not d.conflict)]
    if lacking := loaded.without_reference:
        notes.insert(0, f"{lacking} of {len(loaded.tasks)} tasks have no reference: verifiers that need one cannot judge them")
    held = source.read_heldout()
    return TaskSet(loaded.tasks, held.tasks if held else (), notes=notes, recognised=str(loaded.recognised))
