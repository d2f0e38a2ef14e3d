"""`gfcr compare`.

Invariants: the same command again goes on where the last one stopped; a failed run is shown with its last words and changes
the exit code, not the other runs.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from gfcr.cli.boundary import Debug, Interrupted, Json, Set, command, err, out, print_json
from gfcr.cli.prepare import set_environment

if TYPE_CHECKING:
    from gfcr.compare.pool import Child


@command
def compare(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...", help="Recipe files or shipped names; the first is what the others are measured against."
        ),
    ],
    directory: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Directory of the comparison; given again, it goes on.")
    ],
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds, paired over the recipes: 0,1,2 or 0-4.")] = "0,1,2",
    settings: Set = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=V,V,...",
            help="Run every arm with each value and take its best by mean AUC, e.g. train.lr=3e-4,6e-4,1e-3; repeatable.",
        ),
    ] = None,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, metavar="TOKENS", help="Generated tokens of every run.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Runs at a time; default: the number of processors.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Run recipes against each other at equal budgets, paired by seed; table, compare.json and one page at the end."""
    from gfcr.cli.panel import Panel
    from gfcr.cli.tables import compare_tables
    from gfcr.compare.plan import make_plan, parse_seeds
    from gfcr.compare.pool import State, run_all
    from gfcr.compare.result import collect, write_result
    from gfcr.report import write_report

    plan = make_plan(recipes, parse_seeds(seeds), directory, settings or (), vary or (), budget)
    _refuse_what_cannot_run(plan)
    plan.write()
    set_environment(1)
    cells = list(plan.cells())
    try:
        with Panel(cells, plan.budget, err) as panel:
            children = run_all(cells, min(jobs or _processors(), len(cells)), panel.show)
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted(shlex.join(["gfcr", *sys.argv[1:]])) from None
    failed = [child for child in children if child.state is State.FAILED]
    result = collect(plan, {child.cell.directory: child.note for child in failed})
    write_result(plan, result)
    page = write_report(directory)
    _say_failures(failed)
    if as_json:
        print_json({**result, "report": str(page)})
    else:
        for table in compare_tables(result):
            out.print(table)
        out.print(f"report: {page}", soft_wrap=True, markup=False)
    return bool(failed)


def _refuse_what_cannot_run(plan: Any) -> None:
    """Refuse before anything is written what every child would refuse."""
    from gfcr.build import preflight

    for arm in plan.arms:
        for variation in arm.variations:
            preflight(variation.recipe)


def _say_failures(failed: list[Child]) -> None:
    for child in failed:
        what = f"{child.cell.name} (all it printed: {child.cell.log})"
        err.print(Text.assemble(("failed:", "bold red"), " ", what), soft_wrap=True)
        for line in child.note.splitlines():
            err.print(f"  {line}", markup=False, soft_wrap=True)


def _processors() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
