"""`gfcr verify`: a file of answers judged by one verifier, or a run directory compared with what was committed to it.

Invariants: one output row per input row, in order; a table of errors only where rows say what was expected; torch is not loaded.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfcr.cli.boundary import Debug, Interrupted, Json, command, err, out, print_json
from gfcr.cli.shown import visible
from gfcr.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress

    from gfcr.filter.judge_file import Summary, Tally

PLAIN_EVERY = 10.0
"""Seconds between lines of progress where there is no terminal."""
SECONDS, SAFETY = 10.0, 600.0
"""Longest a row may take where --timeout is not given: with a verifier that may hang, and with one that keeps its own limits."""
SHOWN_KINDS, SHOWN_REASONS = 40, 5


@command
def verify(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="VERIFIER",
            help="math, choice, structured, code, sql, vision, any other verifier, file.py:function, or run for a run directory.",
        ),
    ],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="JSONL, one answer a line; with `run`: the run directory.")],
    target: Annotated[
        Path | None, typer.Option("--out", metavar="OUT", help="JSONL that gets one row for each of the input.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=64, help="Processes that judge; default: one per core.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.01, help="Seconds a row may take before it is killed and unscorable.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--map", metavar="FIELD=COLUMN,...", help="Columns with other names: gold=answer,prediction=reply."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the verifier; repeatable.")
    ] = None,
    function: Annotated[str | None, typer.Option("--function", help="With `function`: file.py:name or module:name.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin again where OUT has rows.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Judge every answer of a file; a killed run goes on when it is started again. `gfcr verify run DIR` checks a run directory."""
    if kind == "run":
        return _verify_run(source, as_json)
    from gfcr import __version__
    from gfcr.filter.asking import InProcess
    from gfcr.filter.judge_file import judge_file
    from gfcr.filter.judge_rows import Reader, column_map, resolve
    from gfcr.filter.killable import KillableVerifier

    if target is None:
        raise ConfigError("there is no --out", f"say where the verdicts go: gfcr verify {kind} {source} --out verdicts.jsonl")
    if target.resolve() == source.resolve():
        raise ConfigError("--out is the input itself", "name another file")
    names = column_map(columns)
    judge, case, settings = resolve(kind, function, overrides or ())
    bounded, many = bool(getattr(judge, "bounded", False)), workers or min(8, os.cpu_count() or 1)
    limit = timeout if timeout is not None else SAFETY if bounded else SECONDS
    verifier: KillableVerifier | InProcess
    if bounded and timeout is None and (hasattr(judge, "judge_many") or getattr(judge, "parallel", False)):
        verifier = InProcess(judge, many)  # it asks others itself, and keeps its own limits
    else:
        verifier = KillableVerifier(judge, limit, many)
    facts: dict[str, Any] = {
        "verifier": f"{verifier.name} {verifier.version}",
        "settings": settings,
        "map": names,
        "seconds": limit,
        "gfcr": __version__,
    }
    try:
        with _Shown(str(source), quiet=as_json and not err.is_terminal) as shown:
            summary = judge_file(Reader(source, case, names), target, verifier, facts, fresh, shown)
    except KeyboardInterrupt:
        raise Interrupted(f"the same command without --fresh; {target} keeps its rows") from None
    finally:
        verifier.close()
    if as_json:
        print_json({"out": str(target), "verifier": facts["verifier"], **summary.data()})
    else:
        for part in tables(summary):
            out.print(part)
        out.print(f"verdicts: {target}", soft_wrap=True, markup=False)
    return 0


def _verify_run(directory: Path, as_json: bool) -> int:
    from gfcr.run.directory import RunDirectory
    from gfcr.run.verify import verify as differences

    with RunDirectory.read(directory) as run:
        found = list(differences(run))
        steps = len(run.steps())
    if as_json:
        rows = [{"where": d.where, "step": d.step, "expected": d.expected, "actual": d.actual} for d in found]
        print_json({"directory": str(directory), "steps": steps, "differences": rows})
    else:
        for difference in found:
            out.print(str(difference), soft_wrap=True, markup=False)
        out.print(f"{directory}: {steps} steps, {len(found) or 'no'} differences", soft_wrap=True, markup=False)
    return 1 if found else 0


class _Shown:
    """Progress on stderr: a bar on a terminal, else a line every PLAIN_EVERY seconds."""

    def __init__(self, name: str, quiet: bool) -> None:
        self.name, self.quiet, self._printed = name, quiet, monotonic()
        self._bar: Progress | None = None
        self._last = 0.0

    def __enter__(self) -> _Shown:
        if err.is_terminal and not self.quiet:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("verify"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
            )
            self._bar = Progress(*columns, TimeRemainingColumn(compact=True), console=err)
            self._task = self._bar.add_task("verify", total=None, figures="")
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, rows: int, lines: int, summary: Summary) -> None:
        now = monotonic()
        figures = f"right {summary.correct}, wrong {summary.wrong}, unscorable {rows - summary.correct - summary.wrong}"
        if self._bar is not None and (now - self._last > 0.1 or rows >= lines):
            self._last = now
            self._bar.update(self._task, completed=rows, total=lines, figures=figures)
        elif self._bar is None and not self.quiet and now - self._printed >= PLAIN_EVERY:
            self._printed = now
            err.print(f"{self.name}: {rows} of {lines}, {figures}", soft_wrap=True, markup=False)


def tables(summary: Summary) -> list[RenderableType]:
    """The closing table: what was found, and the errors where rows say what was expected."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from gfcr.cli.progress import duration

    unscorable = summary.rows - summary.correct - summary.wrong
    again = f", {summary.before} of them before" if summary.before else ""
    parts: list[RenderableType] = [
        Text(
            f"{summary.rows} rows in {duration(summary.seconds)}{again}: {summary.correct} right, {summary.wrong} wrong, "
            f"{unscorable} unscorable"
        )
    ]
    if unscorable:
        lines = [f"  {n} × {visible(' '.join(reason.split()))}" for reason, n in summary.reasons.most_common(SHOWN_REASONS)]
        parts.append(Text("\n".join(["unscorable because:", *lines]), "dim"))
    if summary.unread:
        parts.append(Text(f"{summary.unread} rows have an `expected` that is neither true nor false and do not count below"))
    if not summary.total.expected and not summary.debatable.expected:
        return parts
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("rows", style="bold")
    for name in ("expected", "accuracy", "false positives", "false negatives", "unscorable"):
        table.add_column(name, justify="right")
    table.add_row("all but debatable", *_cells(summary.total))
    if summary.debatable.rows:
        table.add_row("debatable", *_cells(summary.debatable))
    faulty = sorted(
        ((kind, tally) for kind, tally in summary.kinds.items() if tally.right < tally.expected),
        key=lambda found: (found[1].right - found[1].expected, found[0]),
    )
    if faulty:
        table.add_section()
        for kind, tally in faulty[:SHOWN_KINDS]:
            table.add_row(escape(visible(kind)), *_cells(tally))
    parts.append(table)
    clean = sum(tally.expected > 0 and tally.right == tally.expected for tally in summary.kinds.values())
    if summary.kinds:
        parts.append(Text(f"{clean} of {len(summary.kinds)} kinds without a fault; those with one are listed", "dim"))
    return parts


def _cells(tally: Tally) -> list[str]:
    accuracy = "–" if tally.accuracy is None else f"{100 * tally.accuracy:.1f} %"
    return [str(tally.expected), accuracy, str(tally.false_positives), str(tally.false_negatives), str(tally.unscorable)]
