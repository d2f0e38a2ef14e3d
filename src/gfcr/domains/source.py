"""Where tasks come from: the protocol, and a source that reads them from a table (a file, or a saved data set).

Invariants: a table is either read whole or refused with every place that is wrong named (file, row, column, value; at most
MOST_NAMED of them); a task that occurs twice is kept once, the first, and reported; None is not the empty string: a missing
reference stays None, a missing prompt is an error; what a task carries can be kept exactly: a number that is not finite, anywhere in
a reference or a column, is refused with its place (a whole cell that is NaN is a missing one, as tables spell it, but for references).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gfcr.domains.answers import Extract
from gfcr.domains.chats import prompt_of, tools_of
from gfcr.domains.conventions import Recognised, absent, listed, recognise, reference_of, short, solution_in, value_at
from gfcr.domains.rows import Row, fault_in, missing, read_rows
from gfcr.errors import ConfigError, DataError
from gfcr.types import Origin, Task

MOST_NAMED = 8


class TaskSource(Protocol):
    """Tasks to train on, and tasks kept apart to measure on."""

    def load(self) -> list[Task]:
        """The tasks, in a fixed order. Raises DataError when they cannot be read."""

    def heldout(self) -> list[Task] | None:
        """Tasks never trained on; None when the source has none."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A task that occurred again and was left out."""

    task: str
    """Its id."""
    kept: str
    """Where the kept one stands, `file:row`."""
    dropped: str
    """Where the one left out stands."""
    conflict: bool
    """Whether the two name different references: then one of them is wrong."""

    def __str__(self) -> str:
        differ = " with ANOTHER reference" if self.conflict else ""
        return f"{self.dropped} repeats {self.kept}{differ}; {self.kept} was kept"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a table held."""

    tasks: tuple[Task, ...]
    recognised: Recognised
    """What its columns were taken for."""
    duplicates: tuple[Duplicate, ...] = ()
    rows: int = 0
    """Rows read, duplicates included."""

    @property
    def columns(self) -> Mapping[str, str]:
        """Which column each field was read from; a field without a column is absent."""
        return self.recognised.columns

    @property
    def without_reference(self) -> int:
        """Tasks that no verifier with a reference can judge."""
        return sum(task.reference is None for task in self.tasks)


@dataclass(frozen=True, slots=True)
class FileTasks:
    """A task source over a JSONL, CSV or Parquet file, told apart by the name's ending, or a directory that
    `datasets.Dataset.save_to_disk` wrote."""

    path: Path
    domain: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """Field (`prompt`, `reference`, `reference_rev`, `category`, `tools`, `solution`) -> column, `a.b` inside a nested one; what is not named
    is looked     for (conventions.py)."""
    meta: tuple[str, ...] | None = None
    """Columns to carry in `Task.meta`; None carries every other column, () none. A worked solution is carried always, as `solution`."""
    heldout_path: Path | None = None
    """A table of held-out tasks; None = no held-out tasks, unless `heldout_split` names a split of `path`."""
    need_reference: bool = True
    """Whether a row without a reference is an error. False: it becomes a task whose answers are unscorable for verifiers that need
    a reference."""
    split: str | None = None
    """Split of a saved DatasetDict; None = its only one."""
    heldout_split: str | None = None
    extract: Extract | None = None
    """What of the reference column is the reference; None = after a mark that every row has, else all of it."""

    def load(self) -> list[Task]:
        return list(self.read(self.path, self.split).tasks)

    def heldout(self) -> list[Task] | None:
        """Raises DataError when a held-out task is also in the training file: measuring on it would flatter."""
        loaded = self.read_heldout()
        if loaded is None:
            return None
        trained = {task.id for task in self.load()}
        if both := [task for task in loaded.tasks if task.id in trained]:
            raise DataError(
                f"{len(both)} of {len(loaded.tasks)} held-out tasks of {self.heldout_path or self.heldout_split} are also in "
                f"{self.path}, the first: {short(both[0].prompt)}",
                "take them out of one of the two files",
            )
        return list(loaded.tasks)

    def read_heldout(self) -> Loaded | None:
        """The held-out table as it is, without a look at the training table; None when there is none."""
        if self.heldout_path is None and self.heldout_split is None:
            return None
        return self.read(self.heldout_path or self.path, self.heldout_split)

    def read(self, path: Path, split: str | None = None) -> Loaded:
        """The table's tasks with what was found about them. Raises DataError, ConfigError or MissingExtra."""
        names, rows = read_rows(path, split)
        recognised = recognise(str(path), names, rows, self.columns, self.need_reference, self.extract)
        columns = recognised.columns
        meta = tuple(n for n in names if n not in columns.values()) if self.meta is None else self.meta
        if lacking := [name for name in meta if name not in names]:
            raise ConfigError(f"{path} has no column {lacking[0]!r} to carry in meta; it has {listed(names)}", "correct `meta`")
        if self.meta is None and recognised.extract is not Extract.WHOLE and columns.get("reference") in names:
            meta = (*meta, columns["reference"])  # the text around the final answer: a worked solution
        tasks: dict[str, Task] = {}
        places: dict[str, str] = {}
        duplicates, bad = [], []
        for row in rows:
            place = f"{path.name}:{row.number}"
            try:
                task = self._task(row, recognised, meta, path)
            except ValueError as error:
                bad.append(f"{place}, {error}")
                continue
            if task.id in tasks:
                duplicates.append(Duplicate(task.id, places[task.id], place, task.reference != tasks[task.id].reference))
            else:
                tasks[task.id], places[task.id] = task, place
        if bad:
            more = f"\n  and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
            named = "\n  ".join(bad[:MOST_NAMED]) + more
            raise DataError(
                f"{len(bad)} of {len(rows)} rows of {path} are no tasks:\n  {named}",
                "correct or delete these rows, or map other columns",
            )
        return Loaded(tuple(tasks.values()), recognised, tuple(duplicates), len(rows))

    def _task(self, row: Row, recognised: Recognised, meta: tuple[str, ...], path: Path) -> Task:
        """The row's task; ValueError with column and value when it is none."""
        columns = recognised.columns
        values = {name: value_at(row.values, column) for name, column in columns.items()}
        prompt = prompt_of(values["prompt"], columns["prompt"])
        tools = tools_of(values.get("tools"), columns.get("tools", ""))
        reference = reference_of(values.get("reference"), recognised.extract)
        if wrong := fault_in(reference):
            raise ValueError(f"column {columns['reference']!r}{wrong}")
        if reference is None and self.need_reference:
            raise ValueError(f"column {columns.get('reference', '?')!r}: no reference: {short(values.get('reference'))}")
        category, revision = values.get("category"), values.get("reference_rev")
        carried = {name: row.values[name] for name in meta if not missing(row.values.get(name))}
        if wrong := next((f"column {name!r}{why}" for name, cell in carried.items() if (why := fault_in(cell))), ""):
            raise ValueError(wrong)
        if (solution := solution_in(row.values, recognised)) is not None:
            carried["solution"] = solution
        return Task(
            self.domain,
            prompt,
            reference,
            reference_rev="1" if absent(revision) or missing(revision) else str(revision),
            tools=tools,
            category="" if absent(category) or missing(category) else str(category),
            meta=carried,
            origin=Origin("dataset", path.name),
        )
