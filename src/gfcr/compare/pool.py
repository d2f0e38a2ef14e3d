"""Runs a plan's cells as child processes, some at a time.

Invariants: a child is `gfcr run` or `gfcr resume`, so what it does can be done by hand; a finished run is never started again;
an interrupted or killed one is resumed (a kill at most RESUMES times); a failed one is reported and stops no other; when this
process is interrupted the children stop after their last commit, and none outlives it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from gfcr.compare.plan import Cell
from gfcr.errors import GfcrError
from gfcr.run.directory import RunDirectory

RESUMES = 3
"""Times a killed child is resumed."""
PATIENCE = 30.0
"""Seconds an interrupted child gets to stop by itself."""
LAST_LINES = 8
POLL = 0.2
"""Seconds between looks at the children."""


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """Interrupted with this process; resumable."""


@dataclass(slots=True)
class Child:
    """One cell and its process."""

    cell: Cell
    state: State = State.WAITING
    skipped: bool = False
    """It was finished before this comparison began."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Metrics rows read so far."""
    note: str = ""
    """The last lines it printed when it failed; empty otherwise."""
    resumes: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _offset: int = 0

    def start(self) -> None:
        """Start it, or go on with it, or see that it is finished; a directory that cannot be trusted fails it."""
        try:
            going_on = RunDirectory.exists(self.cell.directory)
            if going_on:
                self.read_rows()
                if finished(self.cell.directory):
                    self.state, self.skipped = State.DONE, not self.resumes
                    return
        except GfcrError as error:
            self.state, self.note = State.FAILED, str(error)
            return
        with self.cell.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches this process only, which then stops its children in order.
            self._process = subprocess.Popen(
                command_of(self.cell, going_on),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.state = State.RUNNING

    def poll(self) -> None:
        """Take new rows; notice an end."""
        if self._process is None:
            return
        code = self._process.poll()
        self.read_rows()
        if code is None:
            return
        self._process = None
        if code == 0:
            self.state = State.DONE
        elif code < 0 and self.resumes < RESUMES:
            self.resumes += 1
            self.start()
        else:
            self.state = State.FAILED
            killed = f"killed by {signal.Signals(-code).name} {self.resumes + 1} times\n" if code < 0 else ""
            self.note = killed + last_lines(self.cell.log)

    def read_rows(self) -> None:
        """Whole new lines of the run's metrics."""
        file = self.cell.directory / "metrics.jsonl"
        try:
            if file.stat().st_size < self._offset:
                self._offset, self.rows = 0, []
            with file.open("rb") as stream:
                stream.seek(self._offset)
                whole = stream.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        if whole[1]:
            self._offset += len(whole[0]) + 1
            self.rows += [json.loads(line) for line in whole[0].splitlines() if line.strip()]

    def interrupt(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def end(self, deadline: float) -> None:
        """Wait for it until the deadline, then kill it (nothing committed is lost)."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process, self.state = None, State.STOPPED


def command_of(cell: Cell, going_on: bool) -> list[str]:
    """What runs a cell."""
    place = str(cell.directory)
    task = ["resume", place] if going_on else ["run", str(cell.variation.file), "--out", place, "--seed", str(cell.seed)]
    return [sys.executable, "-m", "gfcr.cli.main", *task, "--threads", "1", "--child-of", str(os.getpid())]


def run_all(cells: Sequence[Cell], jobs: int, show: Callable[[Sequence[Child]], None]) -> list[Child]:
    """Run every cell to its end, `jobs` at a time; `show` is called with all children again and again.

    On an interrupt the children are stopped before it goes on to the caller.
    """
    children = [Child(cell) for cell in cells]
    try:
        while True:
            for child in children:
                child.poll()
            for child in children:
                if child.state is State.WAITING and sum(c.state is State.RUNNING for c in children) < jobs:
                    child.start()
            show(children)
            if all(c.state in (State.DONE, State.FAILED) for c in children):
                return children
            time.sleep(POLL)
    finally:
        for child in children:
            child.interrupt()
        deadline = time.monotonic() + PATIENCE
        for child in children:
            child.end(deadline)


def finished(directory: Path) -> bool:
    """Whether the run in a directory has come to its end."""
    with RunDirectory.read(directory) as run:
        rows = run.metrics()
    return bool(rows and rows[-1].get("ended"))


def last_lines(log: Path) -> str:
    """The end of what a child printed."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "(it printed nothing)"
    return "\n".join([line for line in lines if line.strip()][-LAST_LINES:]) or "(it printed nothing)"
