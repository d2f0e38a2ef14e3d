"""A recipe's `[tasks]` to task lists. Invariant: no held-out task is in the training set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gfcr.errors import ConfigError, DataError
from gfcr.recipe import TasksSection
from gfcr.types import Task


@dataclass(frozen=True)
class TaskSet:
    """Tasks to train on and to measure on."""

    tasks: Sequence[Task]
    heldout: Sequence[Task] = ()
    """Empty = no evaluation."""
    privileged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Named sets of task ids for oracles."""
    notes: Sequence[str] = ()
    """What the source reports: tasks that occur twice, those with two references first."""


def load_tasks(section: TasksSection) -> TaskSet:
    """Raises ConfigError for an incomplete section, DataError for unreadable, empty or overlapping task sets."""
    found = _pool(section) if section.source == "programs" else _file(section)
    if not found.tasks:
        raise DataError(
            f"tasks: the task set of {section.path or section.pool!r} is empty", "give a source with at least one task"
        )
    both = {t.id for t in found.tasks} & {t.id for t in found.heldout}
    if both:
        raise DataError(
            f"tasks: {len(both)} held-out tasks are in the training set too, e.g. {next(iter(both))}",
            "take them out of one of the two files",
        )
    return found


def _pool(section: TasksSection) -> TaskSet:
    from gfcr.domains.programs.pools import informative_ids, load_heldout, load_pool

    return TaskSet(load_pool(section.pool), load_heldout(section.pool), {"informative": informative_ids(section.pool)})


def _file(section: TasksSection) -> TaskSet:
    from gfcr.domains.source import FileTasks

    if section.path is None:
        raise ConfigError("tasks.source = 'file' without tasks.path", "name the JSONL, parquet or CSV file in tasks.path")
    heldout = Path(section.heldout) if section.heldout else None
    source = FileTasks(Path(section.path), section.domain, section.columns, heldout_path=heldout)
    loaded = source.read(Path(section.path))
    return TaskSet(
        loaded.tasks, source.heldout() or (), notes=[str(d) for d in sorted(loaded.duplicates, key=lambda d: not d.conflict)]
    )
