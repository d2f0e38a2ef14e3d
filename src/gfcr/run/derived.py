"""Files derived from the database: metrics.jsonl and card.json, and the removal of what belongs to no committed step.

Invariant: everything here can be made again from `run.sqlite`; calling `repair` twice changes nothing the second time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfcr.run import files, schema
from gfcr.run.exact_json import loads
from gfcr.run.failpoints import hit

if TYPE_CHECKING:
    from gfcr.run.directory import RunDirectory


def append_metrics(run: RunDirectory, line: str, before: int) -> None:
    """Append the newest step's line to a file of `before` bytes; when it has another length, repair it instead."""
    file = run.path / "metrics.jsonl"
    hit("metrics.before_write")
    with file.open("ab") as out:
        whole = out.tell() == before
        if whole:
            out.write(line.encode() + b"\n")
    if whole:
        run.metrics_bytes = before + len(line) + 1
    else:
        repair_metrics(run)
    hit("metrics.after_write", file)


def repair_metrics(run: RunDirectory) -> None:
    """Keep the lines that are right, cut the rest, append what is missing."""
    file = run.path / "metrics.jsonl"
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    with open(fd, "r+b") as out:
        good = 0
        rows = run.db.execute("SELECT metrics FROM steps ORDER BY step")
        missing: list[bytes] = []
        for (text,) in rows:
            line = text.encode() + b"\n"
            if not missing and out.readline() == line:
                good += len(line)
            else:
                missing = [line]
                break
        out.seek(good)
        out.truncate()
        out.writelines(missing)
        out.writelines(text.encode() + b"\n" for (text,) in rows)
        run.metrics_bytes = out.tell()


def card(run: RunDirectory) -> dict[str, Any]:
    """The content of card.json."""
    last = run.last_step()
    known = {} if last is None else run.step_row(last)
    return {**facts(run), "step": last, "round": known.get("round"), "version": known.get("version"), "head": run.head}


def facts(run: RunDirectory) -> dict[str, Any]:
    """The card's part that no commit changes."""
    return {
        "format": "gfcr run",
        "schema": schema.version(run.db),
        "gfcr": run.meta("gfcr"),
        "recipe_hash": run.meta("recipe_hash"),
        "environment": run.environment,
        "resumed_in": _accepted(run),
    }


def _accepted(run: RunDirectory) -> list[dict[str, Any]]:
    """Other environments a resume accepted."""
    query = "SELECT step, environment FROM environments ORDER BY rowid"
    return [{"after_step": step, "environment": loads(text)} for step, text in run.db.execute(query)]


def write_card(run: RunDirectory) -> None:
    _replace_card(run, card(run))


def renew_card(run: RunDirectory, known: dict[str, Any]) -> None:
    """After a commit, whose row in `steps` is `known`: the rest of the card stays as it was last written here."""
    _replace_card(run, {**run.card_facts, **{name: known[name] for name in ("step", "round", "version", "head")}})


def _replace_card(run: RunDirectory, content: dict[str, Any]) -> None:
    files.replace_file(run.path / "card.json", json.dumps(content, indent=2, default=str) + "\n", "card")
    run.card_facts = content


def repair(run: RunDirectory) -> None:
    """Bring metrics.jsonl and card.json up to the last committed step."""
    repair_metrics(run)
    write_card(run)


def numbered(folder: Path, suffix: str, kept: set[int]) -> list[Path]:
    """Entries of a folder named by a step that is not among `kept`; other names are not this run's to judge."""
    found = [path for path in folder.iterdir() if path.suffix == suffix and path.stem.isdigit()]
    return sorted(path for path in found if str(int(path.stem)) == path.stem and int(path.stem) not in kept)


def orphans(run: RunDirectory) -> list[str]:
    """Names, relative to the run, of files a commit was cut short over: no committed step names them."""
    marked = {step for (step,) in run.db.execute("SELECT step FROM steps WHERE checkpoint IS NOT NULL")}
    found = numbered(run.path / "segments", ".bin", set(run.steps()))
    found += numbered(run.path / "checkpoints", "", marked)
    for folder in (run.path, run.path / "segments", run.path / "checkpoints"):
        found += [path for path in folder.iterdir() if path.name.startswith(files.TEMPORARY)]
    return sorted(str(path.relative_to(run.path)) for path in found)


def remove_orphans(run: RunDirectory) -> None:
    """Remove them; a crash can leave any number, and none can be part of the run."""
    for name in orphans(run):
        files.remove(run.path / name)
