"""A task source over reasoning-gym.

Invariants: tasks are chat messages, rendered with the model's own template; training tasks are distinct and none has the
question of a held-out one; held-out sets are frozen files whose SHA-256 is recorded, never drawn anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from gfcr.domains.gym.entries import Entry, draw
from gfcr.domains.gym.settings import GymSettings
from gfcr.domains.programs.pools import verified
from gfcr.errors import ConfigError, DataError
from gfcr.types import Message, Origin, Part, PartKind, Task

DOMAIN = "reasoning-gym"
HELDOUT = ("answer_tags", "basic_arithmetic", "chain_sum", "digit_sums")
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class GymTasks:
    """See gfcr.domains.source.TaskSource."""

    settings: GymSettings

    def load(self) -> list[Task]:
        return self.read()[0]

    def heldout(self) -> list[Task] | None:
        if self.settings.heldout is None:
            return None
        return [self.task(entry) for entry in heldout_entries(self.settings.heldout)]

    def read(self) -> tuple[list[Task], list[str]]:
        """Training tasks, the data sets in turn, and what the user should know. Raises ConfigError, DataError, MissingExtra."""
        s = self.settings
        taken = {entry["question"] for entry in heldout_entries(s.heldout)} if s.heldout else set()
        shares, notes = [], []
        for i, dataset in enumerate(s.datasets):
            wanted = s.size // len(s.datasets) + (i < s.size % len(s.datasets))
            if not wanted:
                continue
            found = [self.task(e) for e in draw(dataset.name, dataset.parameters(), s.seed, wanted, taken)]
            if len(found) < wanted:
                notes.append(f"{dataset.name} has {len(found)} distinct tasks for these parameters, {wanted} were wanted")
            shares.append(found)
        rows = [share[i] for i in range(max(map(len, shares), default=0)) for share in shares if i < len(share)]
        return list({task.id: task for task in rows}.values()), notes

    def task(self, entry: Entry) -> Task:
        """The entry, asked as the settings say. Raises ConfigError for a field that it does not have."""
        s = self.settings
        turns = [("system", s.system)] if s.system is not None else []
        for shot in s.shots:
            turns += [("user", shot.question), ("assistant", shot.answer)]
        turns.append(("user", filled(s.question, entry)))
        values = [f"{key}={_field(key, entry, 'category')}" for key in s.category]
        return Task(
            DOMAIN,
            tuple(Message(role, (Part(PartKind.TEXT, text),)) for role, text in turns),
            entry["answer"],
            category=" ".join([entry["dataset"], *values]),
            meta={key: entry[key] for key in ("dataset", "parameters", "question", "metadata")},
            origin=Origin("dataset", f"{DOMAIN}/{entry['dataset']}"),
        )


def filled(template: str, entry: Entry) -> str:
    """`template` with each `{name}` replaced by the question or the entry's metadata."""
    return _FIELD.sub(lambda m: entry["question"] if m[1] == "question" else _field(m[1], entry, "question"), template)


def _field(name: str, entry: Entry, key: str) -> str:
    metadata: Mapping[str, object] = entry["metadata"]
    if name not in metadata:
        raise ConfigError(
            f"tasks.gym.{key} names {name!r}; an entry of {entry['dataset']!r} has question, {', '.join(sorted(metadata))}",
            "name one of these",
        )
    value = metadata[name]
    return value if isinstance(value, str) else json.dumps(value)


def heldout_entries(name: str) -> Sequence[Entry]:
    """The frozen held-out set. Raises ConfigError for an unknown name, DataError when the file is not the frozen one."""
    if name not in HELDOUT:
        raise ConfigError(f"tasks.gym.heldout = {name!r}: there is no such frozen set", f"choose one of {', '.join(HELDOUT)}")
    data = resources.files(__package__) / "data"
    file = f"{name}.heldout.jsonl"
    try:
        raw = verified(file, (data / file).read_bytes(), (data / "SHA256SUMS").read_text())
    except FileNotFoundError:
        raise DataError(f"the frozen file {file} of {DOMAIN} is missing", "install gfcr again") from None
    return [json.loads(line) for line in raw.decode().splitlines()]
