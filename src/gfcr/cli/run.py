"""`gfcr run` and `gfcr resume`.

Invariant: whatever stops a run, it can be told how to go on: the run directory holds every committed step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from gfcr.cli.boundary import Debug, Interrupted, Json, Set, command, err, out, print_json, print_notes
from gfcr.cli.prepare import Threads, import_torch
from gfcr.errors import ConfigError

if TYPE_CHECKING:
    from gfcr.cli.progress import RunProgress
    from gfcr.recipe import Recipe
    from gfcr.run.session import Progress, Session

ChildOf = Annotated[int | None, typer.Option("--child-of", hidden=True, help="Stop when this process is no longer the parent.")]


@command
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or a shipped recipe's name (grpo, quickstart, ...).")],
    directory: Annotated[Path, typer.Option("--out", metavar="DIR", help="Run directory to create; must not exist yet.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of every draw of the run.")] = 0,
    settings: Set = None,
    threads: Threads = None,
    as_json: Json = False,
    debug: Debug = False,
    child_of: ChildOf = None,
) -> int:
    """Post-train a model as a recipe says, with live progress, a table and a report at the end."""
    from gfcr.build import preflight
    from gfcr.recipe import load

    loaded = load(recipe, settings or ())
    _refuse_existing(directory)
    found = preflight(loaded)
    if found.recognised:
        err.print(Text.assemble(("tasks: ", "bold"), found.recognised), soft_wrap=True)
    print_notes(err, found.notes)
    return _execute(
        loaded,
        directory,
        lambda session, progress: session.create(loaded, seed, directory, progress),
        threads,
        as_json,
        child_of,
    )


@command
def resume(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    any_environment: Annotated[
        bool,
        typer.Option(
            "--any-environment",
            help="Go on although torch, the processor or the thread count differ; the result is then no longer bit-equal.",
        ),
    ] = False,
    threads: Threads = None,
    as_json: Json = False,
    debug: Debug = False,
    child_of: ChildOf = None,
) -> int:
    """Continue an interrupted run from its last committed step. A finished run says so."""
    from gfcr.recipe import parse
    from gfcr.run.directory import RunDirectory
    from gfcr.run.verify import check_chain

    reader = RunDirectory.read(directory)
    try:
        check_chain(reader)
        loaded, rows = parse(reader.recipe["recipe"], str(directory)), reader.metrics()
    finally:
        reader.close()
    if rows and rows[-1].get("ended"):
        _finish(loaded, directory, rows, as_json, already=True)
        return 0
    return _execute(
        loaded,
        directory,
        lambda session, progress: session.resume(directory, progress, any_environment),
        threads,
        as_json,
        child_of,
    )


def _execute(
    recipe: Recipe,
    directory: Path,
    begin: Callable[[type[Session], Progress], Session],
    threads: int | None,
    as_json: bool,
    child_of: int | None,
) -> int:
    """Load torch, begin or continue the session, run it to its end, report."""
    from gfcr.cli.progress import RunProgress

    try:
        with RunProgress(recipe, err, quiet=as_json and child_of is None and not err.is_terminal) as shown:
            shown.say("loading")
            import_torch(threads)
            from gfcr.run.session import Session

            session = begin(Session, _orphan_guard(shown, child_of))
            shown.say("evaluating the model as it is")
            session.run()
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted(f"gfcr resume {directory}" if (directory / "run.sqlite").exists() else "") from None
    from gfcr.run.directory import RunDirectory

    reader = RunDirectory.read(directory)
    try:
        rows = reader.metrics()
    finally:
        reader.close()
    _finish(recipe, directory, rows, as_json)
    return 0


def _orphan_guard(shown: RunProgress, parent: int | None) -> Progress:
    """Stops a child of `gfcr compare` after a commit once its parent is gone, so that nothing runs on unseen."""

    def progress(row: dict[str, Any]) -> None:
        shown(row)
        if parent is not None and os.getppid() != parent:
            raise KeyboardInterrupt

    return progress


def _refuse_existing(directory: Path) -> None:
    from gfcr.run.directory import refuse_taken

    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is a file", "choose another --out")
    if directory.exists():
        refuse_taken(directory)


def _finish(recipe: Recipe, directory: Path, rows: list[dict[str, Any]], as_json: bool, already: bool = False) -> None:
    """Write the report; print the table or the JSON object."""
    from gfcr.cli.tables import run_table
    from gfcr.run.outcome import outcome, why_untrained

    result = outcome(rows, recipe.budget.tokens)
    page = _report(directory)
    if as_json:
        print_json(
            {
                "recipe": recipe.name,
                "hash": recipe.hash(),
                "directory": str(directory),
                "already_finished": already,
                **result.as_json(),
                "report": None if page is None else str(page),
            }
        )
        return
    if already:
        out.print(Text.assemble((str(directory), "bold"), f" is finished ({rows[-1]['ended']}); nothing to do"))
    out.print(run_table(recipe.name, result))
    budget = recipe.budget.tokens
    if rows[-1].get("ended") == "budget" and budget is not None and result.tokens < 0.8 * budget:
        out.print(
            f"ended at {result.tokens:,} of {budget:,} tokens: the rest holds no further round"
            " (its worst case is reserved before it starts; a smaller control.groups or generate.max_tokens fits)",
            soft_wrap=True,
        )
    if why := why_untrained(rows):
        err.print(Text("nothing was trained: ", style="bold yellow").append(why, style="not bold"), soft_wrap=True)
    if page is not None:
        out.print(f"report: {page}", soft_wrap=True, markup=False)


def _report(directory: Path) -> Path | None:
    """Write the report; a run is not lost for a page that cannot be written."""
    from gfcr.errors import GfcrError
    from gfcr.report import write_report

    try:
        return write_report(directory)
    except (GfcrError, OSError) as error:
        err.print(Text.assemble(("the report could not be written:", "yellow"), f" {error}"), soft_wrap=True)
        return None
