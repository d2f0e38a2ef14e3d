"""All runs of a comparison side by side, live.

Invariants: stderr only; on a terminal one line per run under way and one for the whole, elsewhere a plain line when a run
starts, is evaluated or ends; it only shows, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import TaskID

from gfcr.cli.progress import figures, progress_bar, tokens
from gfcr.compare.plan import Cell
from gfcr.compare.pool import Child, State

KEEP = 12
"""Up to this many runs keep their line when they are done."""


class Panel:
    """Shows children; `show` is called a few times a second."""

    def __init__(self, cells: Sequence[Cell], budget: int, console: Console) -> None:
        self.budget, self.console, self.keep = budget, console, len(cells) <= KEEP
        self._states: dict[str, tuple[State, int]] = {}
        self._bar = progress_bar(console) if console.is_terminal else None
        self._tasks: dict[str, TaskID] = {}
        if self._bar:
            self._tasks = {
                cell.name: self._bar.add_task(
                    cell.name, total=budget, limit=budget, unit="tokens", figures="", visible=False, start=False
                )
                for cell in cells
            }
            self._all = self._bar.add_task(
                "all", total=budget * len(cells), limit=budget * len(cells), unit="tokens", figures=""
            )

    def __enter__(self) -> Panel:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, children: Sequence[Child]) -> None:
        if self._bar:
            for child in children:
                self._draw(child)
            done = sum(child.state is State.DONE for child in children)
            spent = sum(self.budget if child.state in (State.DONE, State.FAILED) else _spent(child) for child in children)
            self._bar.update(self._all, completed=spent, figures=f"{done} of {len(children)} runs done")
            return
        for child in children:
            self._print(child)

    def _draw(self, child: Child) -> None:
        assert self._bar is not None
        task = self._tasks[child.cell.name]
        if child.state is State.WAITING:
            return
        if child.state is State.RUNNING:
            self._bar.start_task(task)
        over = child.state in (State.DONE, State.FAILED)
        spent = _spent(child)
        self._bar.update(
            task,
            completed=spent,
            total=max(spent, 1) if child.state is State.DONE else self.budget,
            visible=self.keep or not over,
            figures=_words(child),
        )

    def _print(self, child: Child) -> None:
        """A line when the state changed or an evaluation came."""
        seen = (child.state, sum(row.get("heldout_accuracy") is not None for row in child.rows))
        if child.state is State.WAITING or self._states.get(child.cell.name) == seen:
            return
        self._states[child.cell.name] = seen
        self.console.print(
            f"{escape(child.cell.name)}: {tokens(_spent(child))}/{tokens(self.budget)} tokens  {_words(child)}", soft_wrap=True
        )


def _spent(child: Child) -> int:
    return child.rows[-1]["tokens_generated"] if child.rows else 0


def _words(child: Child) -> str:
    """What a run's line says."""
    evaluated = [row for row in child.rows if row.get("heldout_accuracy") is not None]
    state = {
        State.DONE: "done already  " if child.skipped else "done  ",
        State.FAILED: "[red]failed[/red]  ",
        State.STOPPED: "stopped  ",
    }.get(child.state, f"resumed {child.resumes}×  " if child.resumes else "")
    if not child.rows:
        return state or "starting"
    latest = evaluated[-1] if evaluated else {}
    return state + figures(child.rows[-1], latest.get("heldout_accuracy"), latest.get("heldout_greedy"))
