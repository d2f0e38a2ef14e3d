"""A file of answers judged by one verifier, row by row (`gfcr verify`).

Invariants: one output row for every input row, in the input's order, whatever the row or the verifier does; memory does not grow with
the file; a killed run goes on where its output ends, and gives what an uncut one gives (seconds apart); an output that belongs to
another input, verifier or setting is refused.
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any

from gfcr.errors import ConfigError, DataError
from gfcr.filter.asking import InProcess, Item
from gfcr.filter.judge_rows import Reader, Row
from gfcr.filter.killable import KillableVerifier
from gfcr.types import Status, StopReason, Verdict

SYNC_SECONDS = 5.0
"""Between times the output is made durable."""
COUNTS = ("rows", "expected", "right", "false_positives", "false_negatives", "unscorable")


@dataclass(slots=True)
class Tally:
    """Counts of one kind of rows."""

    rows: int = 0
    expected: int = 0
    """Rows that say what the verdict should be."""
    right: int = 0
    """Of `expected`: `correct` equals it."""
    false_positives: int = 0
    """Called right, expected wrong."""
    false_negatives: int = 0
    """Called wrong, expected right."""
    unscorable: int = 0
    """No verdict; of `expected`, they count as not right."""

    def add(self, correct: bool | None, expected: bool | None) -> None:
        self.rows += 1
        self.unscorable += correct is None
        if expected is not None:
            self.expected += 1
            self.right += correct is expected
            self.false_positives += correct is True and not expected
            self.false_negatives += correct is False and expected

    @property
    def accuracy(self) -> float | None:
        return self.right / self.expected if self.expected else None

    def data(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COUNTS} | {"accuracy": self.accuracy}


@dataclass(slots=True)
class Summary:
    """What a run over a file found."""

    total: Tally = field(default_factory=Tally)
    """Of all rows but the debatable ones."""
    debatable: Tally = field(default_factory=Tally)
    kinds: dict[str, Tally] = field(default_factory=dict)
    correct: int = 0
    """Rows called right, debatable ones too."""
    wrong: int = 0
    unread: int = 0
    """Rows whose `expected` is no verdict."""
    reasons: Counter[str] = field(default_factory=Counter)
    """First words of the evidence of rows without a verdict, at most REASONS different ones."""
    before: int = 0
    """Rows that the output held already."""
    seconds: float = 0.0

    def add(self, row: Row, correct: bool | None, evidence: str) -> None:
        (self.debatable if row.debatable else self.total).add(correct, row.expected)
        if not row.debatable and row.kind:
            self.kinds.setdefault(row.kind, Tally()).add(correct, row.expected)
        self.correct += correct is True
        self.wrong += correct is False
        self.unread += row.unread
        if correct is None:
            reason = evidence[:80]
            self.reasons[reason if reason in self.reasons or len(self.reasons) < REASONS else "(others)"] += 1

    @property
    def rows(self) -> int:
        return self.total.rows + self.debatable.rows

    def data(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "correct": self.correct,
            "wrong": self.wrong,
            "unscorable": self.rows - self.correct - self.wrong,
            "without_debatable": self.total.data(),
            "debatable": self.debatable.data(),
            "kinds": {kind: tally.data() for kind, tally in sorted(self.kinds.items())},
            "expected_unread": self.unread,
            "unscorable_reasons": dict(self.reasons.most_common()),
            "rows_before": self.before,
            "seconds": round(self.seconds, 3),
        }


REASONS = 50


def fingerprint(path: Path) -> tuple[dict[str, Any], int]:
    """(what tells this file from others, number of its lines). Raises DataError where it is none."""
    digest, lines, last = blake2b(digest_size=16), 0, b""
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                lines += block.count(b"\n")
                last = block[-1:]
            size = file.tell()
    except FileNotFoundError:
        raise DataError(f"there is no file {path}", "check the path") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder", "name one file; `gfcr verify run DIR` compares a run directory") from None
    return {"bytes": size, "blake2b": digest.hexdigest()}, lines + (last not in (b"", b"\n"))


def judge_file(
    source: Reader,
    out: Path,
    verifier: KillableVerifier | InProcess,
    facts: Mapping[str, Any],
    fresh: bool = False,
    progress: Callable[[int, int, Summary], None] | None = None,
) -> Summary:
    """Judge every row of `source` into `out`, or go on there. `facts`: what must be the same to go on (JSON data); they lie beside the
    output, `OUT.about.json`. `fresh`: begin again. `progress(rows, lines, summary)`. Raises ConfigError for an output of something else."""
    started = monotonic()
    about, lines = fingerprint(source.path)
    known = {"input": about, **facts}
    summary = Summary()
    with out.open("a+b") as file:
        file.seek(0)
        rows = iter(source)
        if fresh:
            file.truncate(0)
        elif file.seek(0, os.SEEK_END):
            _same(out, known)
            file.truncate(_go_over(out, rows, summary))
        _remember(out, known)
        file.seek(0, os.SEEK_END)
        waiting: deque[Row] = deque()
        synced = monotonic()
        for verdict in verifier.stream(_items(rows, waiting, verifier)):
            row = waiting.popleft()
            file.write(_line(row, verdict))
            file.flush()
            summary.add(row, verdict.correct, verdict.evidence)
            if monotonic() - synced > SYNC_SECONDS:
                os.fsync(file.fileno())
                synced = monotonic()
            if progress is not None:
                progress(summary.rows, lines, summary)
        os.fsync(file.fileno())
    summary.seconds = monotonic() - started
    return summary


def _items(rows: Iterator[Row], waiting: deque[Row], verifier: KillableVerifier | InProcess) -> Iterator[Item | Verdict]:
    """What is judged of each row, which waits for its verdict."""
    for row in rows:
        waiting.append(row)
        if row.item is None:
            yield Verdict(verifier.name, verifier.version, Status.UNSCORABLE, evidence=f"row {row.number}: {row.fault}")
        else:
            yield (*row.item, StopReason.EOS)


def _line(row: Row, verdict: Verdict) -> bytes:
    data = {
        "id": row.id,
        "status": str(verdict.status),
        "correct": verdict.correct,
        "score": verdict.score,
        "answer": verdict.answer,
        "evidence": verdict.evidence,
        "seconds": round(verdict.seconds, 4),
        "verifier": f"{verdict.verifier} {verdict.version}",
    }
    try:
        return json.dumps(data, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(data).encode() + b"\n"


def _place(out: Path) -> Path:
    return out.with_name(out.name + ".about.json")


def _remember(out: Path, known: Mapping[str, Any]) -> None:
    place = _place(out)
    part = place.with_name(place.name + ".part")
    part.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    os.replace(part, place)


_OTHER = "give another --out, or --fresh to begin this one again"


def _same(out: Path, known: Mapping[str, Any]) -> None:
    """Raise ConfigError unless the output was made of the same."""
    try:
        found = json.loads(_place(out).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError(f"{out} has rows, and nothing beside it says what they were made of", _OTHER) from None
    was = json.loads(json.dumps(known))
    for key in {**was, **found}:
        if found.get(key) != was.get(key):
            raise ConfigError(f"{out} holds rows of another {key}: {found.get(key)!r}, now {was.get(key)!r}", _OTHER)


def _go_over(out: Path, rows: Iterator[Row], summary: Summary) -> int:
    """Count the rows that the output holds, each against its input row; returns the bytes that are whole rows."""
    whole = 0
    with out.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break  # it was cut while it was written
            row = next(rows, None)
            try:
                data = json.loads(line)
                correct, evidence, same = data["correct"], str(data["evidence"]), row is not None and data["id"] == row.id
            except (ValueError, KeyError, TypeError):
                raise ConfigError(f"{out}: row {summary.rows + 1} is none of ours", _OTHER) from None
            if row is None or not same:
                what = "the input has no such row" if row is None else f"the input's row is {row.id!r}"
                raise ConfigError(f"{out}: row {summary.rows + 1} is {data['id']!r}, and {what}", _OTHER)
            summary.add(row, correct, evidence)
            whole += len(line)
    summary.before = summary.rows
    return whole
