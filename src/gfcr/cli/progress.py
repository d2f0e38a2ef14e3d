"""A run's progress while it runs.

Invariants: it writes to stderr only; on a terminal one live line, elsewhere one plain line per evaluation and at most one every
ten seconds otherwise, so that a log stays readable; a figure not measured yet is a dash, never 0.
"""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from gfcr.recipe import Recipe

PLAIN_EVERY = 10.0
"""Seconds between plain lines."""


def figure(value: float | None, digits: int = 3) -> str:
    """A figure of the size of a share: `.523`; a dash for None."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text.replace("-0.", "-.", 1) if text.startswith("-0.") else text


def tokens(count: float | None) -> str:
    """Tokens in thousands: `12.5k`; as they are below 100, where that would read 0.0k or 0.1k."""
    if count is None:
        return "–"
    return f"{count:.0f}" if count < 100 else f"{count / 1000:.1f}k" if count < 1e6 else f"{count / 1e6:.2f}M"


def duration(seconds: float) -> str:
    """`4 s`, `2 min 05 s`, `1 h 12 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Spent(ProgressColumn):
    """`45.2k/150.0k tokens`, or steps where no token budget is set. The field `limit` is what it counts toward: a run that is
    over has its total lowered to what it spent, so that its bar is full."""

    def render(self, task: Task) -> Text:
        limit = task.fields["limit"]
        if task.fields["unit"] == "tokens":
            return Text(f"{tokens(task.completed)}/{tokens(limit)} tokens", style="progress.download")
        return Text(f"{int(task.completed)}/{'?' if limit is None else limit} steps", style="progress.download")


def progress_bar(console: Console) -> Progress:
    """The columns every run's line has; fields: `unit`, `limit`, `figures`."""
    return Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(bar_width=24),
        Spent(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        refresh_per_second=4,
    )


def figures(row: dict[str, Any], accuracy: float | None, greedy: float | None) -> str:
    """The figures of a row; the held-out ones are the latest known."""
    return (
        f"step {row['step']}  reward {figure(row.get('reward_mean'))}  held-out [bold]{figure(accuracy)}[/bold]"
        f"  greedy {figure(greedy)}"
    )


class RunProgress:
    """Shows one run's committed rows; use as a context manager, and as the session's progress callback."""

    def __init__(self, recipe: Recipe, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet, self.name = console, quiet, recipe.name
        self.unit = "tokens" if recipe.budget.tokens is not None else "steps"
        self.total = recipe.budget.tokens if recipe.budget.tokens is not None else recipe.budget.steps
        self.steps = recipe.budget.steps
        self.rows: list[dict[str, Any]] = []
        self._accuracy: float | None = None
        self._greedy: float | None = None
        self._printed = -PLAIN_EVERY
        self._bar = progress_bar(console) if console.is_terminal and not quiet else None
        self._task = (
            self._bar.add_task(recipe.name, total=self.total, limit=self.total, unit=self.unit, figures="loading")
            if self._bar
            else None
        )

    def __enter__(self) -> RunProgress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, what: str) -> None:
        """What is being done before the first row."""
        if self._bar and self._task is not None:
            self._bar.update(self._task, figures=what)

    def __call__(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        evaluated = row.get("heldout_accuracy") is not None
        if evaluated:
            self._accuracy, self._greedy = row["heldout_accuracy"], row.get("heldout_greedy")
        if self.quiet:
            return
        text = figures(row, self._accuracy, self._greedy)
        done = row["tokens_generated"] if self.unit == "tokens" else row["step"]
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=done, total=done if row.get("ended") else self.total, figures=text)
        elif evaluated or monotonic() - self._printed >= PLAIN_EVERY:
            self._printed = monotonic()
            spent = f"{tokens(done)}/{tokens(self.total)} tokens" if self.unit == "tokens" else f"{done}/{self.total} steps"
            left = self._remaining(row)
            self.console.print(
                f"{escape(self.name)}: {spent}  {text}" + (f"  {duration(left)} left" if left else ""), soft_wrap=True
            )

    def _remaining(self, row: dict[str, Any]) -> float | None:
        """Seconds to go at this process's mean pace, to whichever limit comes first; None while it is unknown."""
        first, left = self.rows[0], []
        for limit, unit in ((self.total if self.unit == "tokens" else None, "tokens_generated"), (self.steps, "step")):
            if limit is not None and row[unit] > first[unit]:
                left.append((limit - row[unit]) * (row["seconds"] - first["seconds"]) / (row[unit] - first[unit]))
        return min(left, default=None)
