"""Comparing a run directory with what was committed to it.

Invariant: every byte of recipe, rows, payloads, kept checkpoints and states is covered; a difference names file or table,
step, expected and actual value. Nothing is repaired here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gfcr.run import derived, files, schema
from gfcr.run.bodies import Row
from gfcr.run.chain import LINKED, genesis, link
from gfcr.run.encode import rows_hash
from gfcr.run.exact_json import loads
from gfcr.run.failures import RunDirectoryError, Tampered
from gfcr.run.payload import digest
from gfcr.run.reading import DATABASE, group_difference

if TYPE_CHECKING:
    from gfcr.run.directory import RunDirectory

_REMEDY = "restore the run directory from a copy, or start again in another one; `gfcr verify run DIR` lists every difference"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as committed."""

    where: str
    """File, or table of run.sqlite."""
    step: int | None
    """None where no single step is concerned."""
    expected: str
    actual: str

    def __str__(self) -> str:
        at = "" if self.step is None else f", step {self.step}"
        return f"{self.where}{at}: expected {self.expected}, found {self.actual}"


def check_chain(run: RunDirectory) -> None:
    """Recipe, chain, card and file sizes. Raises Tampered naming the first difference."""
    for found in (*_identity(run), *_chain(run), *_ahead(run), *_card(run), *_sizes(run)):
        raise Tampered(f"{run.path}: {found}", _REMEDY)


def verify(run: RunDirectory) -> Iterator[Difference]:
    """Every difference."""
    from gfcr.run.commit import kept_checkpoints

    for row in run.db.execute("PRAGMA quick_check"):
        if row[0] != "ok":
            yield Difference(DATABASE, None, "a sound database", row[0])
    yield from _identity(run)
    yield from _chain(run)
    yield from _ahead(run)
    yield from _card(run)
    yield from _tasks(run)
    kept = kept_checkpoints(run)
    for step in run.steps():
        known = run.step_row(step)
        name, file, length, expected = (
            f"segments/{step}.bin",
            run.payload_file(step),
            known["payload_length"],
            known["payload_hash"],
        )
        sound = False
        if not file.is_file():
            yield Difference(name, step, f"{length} bytes", "no file")
        elif (actual := files.file_hash(file)) != (length, expected):
            yield Difference(name, step, f"{length} bytes, hash {expected}", f"{actual[0]} bytes, hash {actual[1]}")
        else:
            sound = True
        if step in kept:
            yield from checkpoint_differences(run, step)
        rows = run.rows(step)
        actual_hash = rows_hash({table: [(step, *row) for row in part] for table, part in rows.items()})
        if actual_hash != known["rows_hash"]:
            yield Difference(f"{DATABASE}, rows", step, f"hash {known['rows_hash']}", f"hash {actual_hash}")
        elif sound:
            yield from _bodies(step, rows["groups"], file)
    yield from _states(run)
    yield from _rest(run)


def checkpoint_differences(run: RunDirectory, step: int) -> Iterator[Difference]:
    """Files of a checkpoint that are not as committed."""
    expected = {name: (length, found) for name, length, found in loads(run.step_row(step)["checkpoint"])}
    actual = {name: (length, found) for name, length, found in files.manifest(run.checkpoint_path(step))}
    for name in sorted({*expected, *actual}):
        if expected.get(name) != actual.get(name):
            words = [f"{at[0]} bytes, hash {at[1]}" if at else "no file" for at in (expected.get(name), actual.get(name))]
            yield Difference(f"checkpoints/{step}/{name}", step, *words)


def _bodies(step: int, groups: list[Row], payload: Path) -> Iterator[Difference]:
    with payload.open("rb") as file:
        for row in groups:
            file.seek(row[9])
            if group_difference(step, row, file.read(row[10])):
                yield Difference(f"{DATABASE}, rows", step, f"body of group {row[1]} with checksum {row[11].hex()}", "another")


def _identity(run: RunDirectory) -> Iterator[Difference]:
    file = run.path / "recipe.json"
    expected = run.meta("recipe_hash")
    if not file.is_file():
        yield Difference("recipe.json", None, f"hash {expected}", "no file")
    elif (actual := files.file_hash(file)[1]) != expected:
        yield Difference("recipe.json", None, f"hash {expected}", f"hash {actual}")
    if (first := genesis(expected, run.meta("environment"))) != run.meta("genesis"):
        yield Difference(f"{DATABASE}, table meta", None, f"genesis {run.meta('genesis')}", first)


def _chain(run: RunDirectory) -> Iterator[Difference]:
    head = run.meta("genesis")
    for *values, stored in run.db.execute(f"SELECT {', '.join(LINKED)}, head FROM steps ORDER BY step"):
        if (head := link(head, values)) != stored:
            yield Difference(f"{DATABASE}, table steps", values[0], f"head {stored}", f"head {head}")
            return  # later heads follow from this one


def _ahead(run: RunDirectory) -> Iterator[Difference]:
    """Rows of a step later than the last: its row in table steps was taken away."""
    last = run.last_step()
    for table in (*schema.SELECTS, "states"):
        found = run.db.execute(f"SELECT max(step) FROM {table}").fetchone()[0]
        if found is not None and (last is None or found > last):
            yield Difference(f"{DATABASE}, table steps", found, f"the step that rows of table {table} name", "no row")


def _card(run: RunDirectory) -> Iterator[Difference]:
    """A crash may leave the card behind the table or missing; ahead of it, or of another run, it never is."""
    try:
        card = json.loads((run.path / "card.json").read_text(encoding="utf-8"))
        head, step = str(card["head"]), card["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if head != run.meta("genesis") and not run.db.execute("SELECT 1 FROM steps WHERE head = ?", (head,)).fetchone():
        yield Difference("card.json", step, f"a head of this run's chain, such as {run.head} of step {run.last_step()}", head)


def _sizes(run: RunDirectory) -> Iterator[Difference]:
    for step, length in run.db.execute("SELECT step, payload_length FROM steps ORDER BY step"):
        file = run.payload_file(step)
        if not file.is_file():
            yield Difference(f"segments/{step}.bin", step, f"{length} bytes", "no file")
        elif (actual := file.stat().st_size) != length:
            yield Difference(f"segments/{step}.bin", step, f"{length} bytes", f"{actual} bytes")


def _tasks(run: RunDirectory) -> Iterator[Difference]:
    for key, task_id, body in run.db.execute("SELECT digest, id, body FROM tasks"):
        if (actual := digest(body.encode(), 16)) != key.hex():
            yield Difference(f"{DATABASE}, table tasks ({task_id})", None, f"digest {key.hex()}", actual)
    query = "SELECT step, id FROM groups WHERE task NOT IN (SELECT digest FROM tasks) ORDER BY step, key"
    for step, group in run.db.execute(query):
        yield Difference(f"{DATABASE}, table tasks", step, f"the task of group {group}", "no row")


def _states(run: RunDirectory) -> Iterator[Difference]:
    for step in run.steps()[-2:]:
        try:
            run.state(step)
        except RunDirectoryError as error:
            yield Difference(f"{DATABASE}, table states", step, "the committed state", error.what)


def _rest(run: RunDirectory) -> Iterator[Difference]:
    lines = [text for (text,) in run.db.execute("SELECT metrics FROM steps ORDER BY step")]
    file = run.path / "metrics.jsonl"
    actual = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    if actual != lines:
        at = next((i for i, (a, b) in enumerate(zip(actual, lines)) if a != b), min(len(actual), len(lines)))
        yield Difference("metrics.jsonl", None, f"{len(lines)} lines", f"{len(actual)} lines, different from line {at + 1} on")
    if run.head not in ((run.path / "card.json").read_text(encoding="utf-8") if (run.path / "card.json").is_file() else ""):
        yield Difference("card.json", run.last_step(), f"head {run.head}", "another or none")
    for name in derived.orphans(run):
        yield Difference(name, None, "no file (no committed step names it)", "a file")
