"""Tables for the terminal. Invariant: a figure not measured is a dash, never 0."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table

from gfcr.cli.progress import duration, figure, tokens
from gfcr.run.outcome import Outcome


def run_table(name: str, result: Outcome) -> Table:
    """One run: what it reached, what it cost."""
    table = Table(box=SIMPLE_HEAD, title=f"{name}", title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("held-out")
    for column in ("start", "end", "mean over budget"):
        table.add_column(column, justify="right")
    table.add_row("temperature 1", figure(result.start), f"[bold]{figure(result.final)}[/bold]", figure(result.auc))
    table.add_row("greedy", figure(result.start_greedy), f"[bold]{figure(result.final_greedy)}[/bold]", "")
    reasons = ", ".join(f"{reason.replace('_', ' ')} {tokens(count)}" for reason, count in
                        sorted(result.discarded.items(), key=lambda item: -item[1]))
    table.caption = (f"{result.steps} steps, {tokens(result.tokens)} generated tokens in {duration(result.seconds)}; discarded "
                     f"{percent(result.discarded_share)}" + (f" ({reasons})" if reasons else ""))
    table.caption_justify, table.caption_style = "left", "dim"
    return table


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"
