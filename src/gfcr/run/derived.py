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


def metrics_length(run: RunDirectory) -> int:
    """Bytes metrics.jsonl must have (its lines are ASCII)."""
    return int(run.db.execute("SELECT coalesce(sum(length(metrics) + 1), 0) FROM steps").fetchone()[0])


def append_metrics(run: RunDirectory, line: str) -> None:
    """Append the newest step's line; when the file is not what it must be, repair it instead."""
    file = run.path / "metrics.jsonl"
    hit("metrics.before_write")
    whole = metrics_length(run)
    if (file.stat().st_size if file.exists() else 0) == whole - len(line) - 1:
        with file.open("ab") as out:
            out.write(line.encode() + b"\n")
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


def card(run: RunDirectory) -> dict[str, Any]:
    """The content of card.json."""
    last = run.last_step()
    known = {} if last is None else run.step_row(last)
    return {"format": "gfcr run", "schema": schema.version(run.db), "gfcr": run.meta("gfcr"),
            "recipe_hash": run.meta("recipe_hash"), "environment": run.environment, "resumed_in": _accepted(run),
            "steps": run.db.execute("SELECT count(*) FROM steps").fetchone()[0], "step": last, "round": known.get("round"),
            "version": known.get("version"), "head": run.head}


def _accepted(run: RunDirectory) -> list[dict[str, Any]]:
    """Other environments a resume accepted."""
    query = "SELECT step, environment FROM environments ORDER BY rowid"
    return [{"after_step": step, "environment": loads(text)} for step, text in run.db.execute(query)]


def write_card(run: RunDirectory) -> None:
    text = json.dumps(card(run), indent=2, default=str) + "\n"
    files.replace_file(run.path / "card.json", text, "card")


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
