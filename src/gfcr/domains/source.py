"""Where tasks come from: the protocol, and a source that reads them from a file of rows.

Invariants: a file is either read whole or refused with every place that is wrong named (file, row, column, value; at most
MOST_NAMED of them); a task that occurs twice is kept once, the first, and reported; None is not the empty string: a missing
reference stays None, a missing prompt is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gfcr.domains.rows import Row, read_rows
from gfcr.errors import ConfigError, DataError
from gfcr.types import Message, Origin, Part, PartKind, Task

MOST_NAMED = 8
CONVENTIONS: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompt", "question", "problem", "input"),
    "reference": ("answer", "solution", "reference", "label", "ground_truth"),
    "category": ("category", "subject", "topic", "level", "type"),
}
"""Column names looked for, in this order, for a field that the column map does not name."""
FIELDS = ("prompt", "reference", "reference_rev", "category")


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
    """What a file held."""

    tasks: tuple[Task, ...]
    columns: Mapping[str, str]
    """Which column each field was read from; a field without a column is absent."""
    duplicates: tuple[Duplicate, ...] = ()
    rows: int = 0
    """Rows read, duplicates included."""


@dataclass(frozen=True, slots=True)
class FileTasks:
    """A task source over a JSONL, CSV or Parquet file, told apart by the name's ending."""

    path: Path
    domain: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """Field (`prompt`, `reference`, `reference_rev`, `category`) -> column; what is not named is looked for in CONVENTIONS."""
    meta: tuple[str, ...] | None = None
    """Columns to carry in `Task.meta`; None carries every other column, () none."""
    heldout_path: Path | None = None
    """A file of held-out tasks with the same columns; None = no held-out tasks."""
    need_reference: bool = True
    """Whether a row without a reference is an error; False for domains whose verifier needs none."""

    def load(self) -> list[Task]:
        return list(self.read(self.path).tasks)

    def heldout(self) -> list[Task] | None:
        """Raises DataError when a held-out task is also in the training file: measuring on it would flatter."""
        if self.heldout_path is None:
            return None
        tasks = list(self.read(self.heldout_path).tasks)
        trained = {task.id for task in self.load()}
        if both := [task for task in tasks if task.id in trained]:
            raise DataError(
                f"{len(both)} of {len(tasks)} held-out tasks of {self.heldout_path} are also in {self.path}, "
                f"the first: {_short(both[0].prompt)}",
                "take them out of one of the two files",
            )
        return tasks

    def read(self, path: Path) -> Loaded:
        """The file's tasks with what was found about them. Raises DataError, ConfigError or MissingExtra."""
        names, rows = read_rows(path)
        columns = choose_columns(path, names, self.columns, self.need_reference)
        meta = tuple(n for n in names if n not in columns.values()) if self.meta is None else self.meta
        if absent := [name for name in meta if name not in names]:
            raise ConfigError(f"{path} has no column {absent[0]!r} to carry in meta; it has {_list(names)}", "correct `meta`")
        tasks: dict[str, Task] = {}
        places: dict[str, str] = {}
        duplicates, bad = [], []
        for row in rows:
            place = f"{path.name}:{row.number}"
            try:
                task = self._task(row, columns, meta, path)
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
        return Loaded(tuple(tasks.values()), columns, tuple(duplicates), len(rows))

    def _task(self, row: Row, columns: Mapping[str, str], meta: tuple[str, ...], path: Path) -> Task:
        """The row's task; ValueError with column and value when it is none."""
        values = {name: row.values.get(column) for name, column in columns.items()}
        prompt = _prompt(values["prompt"], columns["prompt"])
        reference = values.get("reference")
        if _absent(reference):
            if self.need_reference:
                raise ValueError(f"column {columns.get('reference', '?')!r}: no reference: {_short(reference)}")
            reference = None
        if isinstance(reference, float) and not math.isfinite(reference):
            raise ValueError(f"column {columns['reference']!r}: not a finite number: {reference}")
        category, revision = values.get("category"), values.get("reference_rev")
        return Task(
            self.domain,
            prompt,
            reference,
            reference_rev="1" if _absent(revision) else str(revision),
            category="" if _absent(category) else str(category),
            meta={name: row.values[name] for name in meta if row.values.get(name) is not None},
            origin=Origin("dataset", path.name),
        )


def choose_columns(path: Path, names: tuple[str, ...], wanted: Mapping[str, str], need_reference: bool) -> dict[str, str]:
    """Field -> column. Raises ConfigError for an unknown field or column, DataError when a needed column is not found."""
    if unknown := [name for name in wanted if name not in FIELDS]:
        raise ConfigError(f"the column map names a field {unknown[0]!r}", f"fields are {', '.join(FIELDS)}")
    if absent := [(name, column) for name, column in wanted.items() if column not in names]:
        raise ConfigError(
            f"the column map reads {absent[0][0]} from {absent[0][1]!r}, but {path} has {_list(names)}",
            "correct the column map",
        )
    taken = set(wanted.values())
    columns = dict(wanted)
    for name, candidates in CONVENTIONS.items():
        found = next((c for c in candidates if c in names and c not in taken), None)
        if name not in columns and found:
            columns[name] = found
            taken.add(found)
    for name in ("prompt", "reference") if need_reference else ("prompt",):
        if name not in columns:
            looked = _list(CONVENTIONS[name])
            raise DataError(
                f"{path} has no column for the {name}: looked for {looked}; it has {_list(names)}",
                f'name it in the column map, e.g. columns = {{ {name} = "{names[0] if names else "..."}" }}',
            )
    return columns


def _prompt(value: Any, column: str) -> str | tuple[Message, ...]:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list) and value:
        return tuple(_message(item, column) for item in value)
    raise ValueError(f"column {column!r}: a prompt is text or a list of chat messages, not {_short(value)}")


def _message(item: Any, column: str) -> Message:
    """A chat message `{"role", "content"}`, whose content is text or parts `{"type": "text", "text"}`."""
    if isinstance(item, Mapping) and isinstance(item.get("role"), str):
        content = item.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if (
            isinstance(parts, list)
            and parts
            and all(isinstance(p, Mapping) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in parts)
        ):
            return Message(item["role"], tuple(Part(PartKind.TEXT, p["text"]) for p in parts), item.get("name"))
    raise ValueError(f"column {column!r}: a message needs a role and text content, not {_short(item)}")


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
