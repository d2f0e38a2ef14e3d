"""Where commands end: exit codes, error texts, and what goes to which stream.

Invariants: with `--json` stdout carries exactly one JSON object, also for an error; everything meant for eyes goes to stderr
then; a GfcrError is its two lines, and a traceback appears only with `--debug`; texts of models and files are shown, never
obeyed (shown.py). Exit codes: 0 done, 1 something the user can
put right (or, for `check` and `compare`, a finding or a failed child), 2 wrong usage, 70 a bug, 130 interrupted.
"""

from __future__ import annotations

import functools
import json
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from gfcr.cli.shown import SafeConsole, visible
from gfcr.errors import GfcrError
from gfcr.functions import own_place

OK, FAILED, BUG, INTERRUPTED = 0, 1, 70, 130

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a recipe value, e.g. train.lr=3e-4; repeatable.")
]

PIPE_WIDTH = 140
"""Columns of a table that goes into a file or a pipe, where no terminal says how wide it is."""
NOTES = 5
"""Notes about a task file that are printed."""


def _console(stderr: bool) -> Console:
    console = SafeConsole(stderr=stderr, highlight=False)
    return console if console.is_terminal else SafeConsole(stderr=stderr, highlight=False, width=PIPE_WIDTH)


out, err = _console(False), _console(True)


class Interrupted(Exception):
    """The command was stopped from outside. `hint`: how to go on; empty when there is nothing to go on with."""

    def __init__(self, hint: str = "") -> None:
        super().__init__(hint)
        self.hint = hint


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make a function that may raise into a command that exits. It takes `debug`, and `as_json` if it has `--json`."""

    @functools.wraps(function)
    def wrapped(**kwargs: Any) -> None:
        debug, as_json = kwargs.get("debug", False), kwargs.get("as_json", False)
        before = signal.signal(signal.SIGTERM, _terminated)
        try:
            code = int(function(**kwargs) or OK)
        except typer.Exit:
            raise
        except GfcrError as error:
            _fail(FAILED, type(error).__name__, error.what, error.remedy, debug, as_json)
        except (Interrupted, KeyboardInterrupt) as error:
            hint = error.hint if isinstance(error, Interrupted) else ""
            _fail(INTERRUPTED, "Interrupted", "interrupted", hint, False, as_json)
        except BrokenPipeError:
            sys.stderr.close()  # the reader of a pipe went away: nothing left to tell
            raise typer.Exit(FAILED) from None
        except OSError as error:
            what = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
            _fail(FAILED, type(error).__name__, what, "check the path, its permissions and the free space", debug, as_json)
        except Exception as error:
            if place := own_place(error):
                what = f"{place} raised {type(error).__name__}: {error}"
                _fail(FAILED, type(error).__name__, what, "correct it; --debug shows the traceback", debug, as_json)
            _fail(
                BUG,
                type(error).__name__,
                f"a bug in gfcr or one of its parts: {type(error).__name__}: {error}",
                "run again with --debug for the traceback, and report it",
                debug,
                as_json,
            )
        finally:
            signal.signal(signal.SIGTERM, before)
        if code:
            raise typer.Exit(code)

    return wrapped


def print_json(data: Any) -> None:
    """The one JSON object of a command; numbers that JSON has no word for become null."""
    sys.stdout.write(json.dumps(plain(data), indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """What a task source reports about its files, the first few."""
    for note in notes[:NOTES]:
        console.print(Text.assemble(("note: ", "bold yellow"), note), soft_wrap=True)
    if len(notes) > NOTES:
        console.print(f"[bold yellow]note:[/bold yellow] and {len(notes) - NOTES} more like these")


def plain(data: Any) -> Any:
    """JSON data without NaN and infinities."""
    if isinstance(data, float):
        return data if data == data and abs(data) != float("inf") else None
    if isinstance(data, dict):
        return {str(k): plain(v) for k, v in data.items()}
    if isinstance(data, (list, tuple, set, frozenset)):
        return [plain(v) for v in (sorted(data) if isinstance(data, (set, frozenset)) else data)]
    return data


def _fail(code: int, kind: str, what: str, remedy: str, debug: bool, as_json: bool) -> NoReturn:
    if debug:
        sys.stderr.write(visible(traceback.format_exc()))
    label = "interrupted" if code == INTERRUPTED else "error"
    text = Text(f"{label}", style="bold yellow" if code == INTERRUPTED else "bold red")
    if what != label:
        text.append(f": {what}", style="not bold default")
    err.print(text, soft_wrap=True)
    if remedy:
        err.print(
            Text("  " + ("go on with" if code == INTERRUPTED else "remedy") + ": ", style="bold").append(
                remedy, style="not bold"
            ),
            soft_wrap=True,
        )
    if as_json:
        print_json({"error": {"kind": kind, "what": what, "remedy": remedy or None}})
    raise typer.Exit(code)


def _terminated(number: int, frame: Any) -> NoReturn:
    """A polite kill stops a run like Ctrl-C does: after the last commit, with its files closed."""
    raise KeyboardInterrupt
