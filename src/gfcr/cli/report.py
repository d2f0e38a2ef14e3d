"""`gfcr report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gfcr.cli.boundary import Debug, Json, command, out, print_json


@command
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, or the directory of a comparison.")],
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Write DIR/report.html again: one page, no external resources."""
    from gfcr.cli.prepare import set_environment
    from gfcr.report import write_report

    set_environment()
    page = write_report(directory)
    if as_json:
        print_json({"report": str(page)})
    else:
        out.print(f"report: {page}", soft_wrap=True, markup=False)
    return 0
