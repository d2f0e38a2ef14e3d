"""From a directory to its page. Invariants: a reader of a run that is still going on takes no lock and sees whole steps; the
page appears whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from gfcr.compare.plan import PLAN, read_plan
from gfcr.compare.result import collect
from gfcr.errors import DataError
from gfcr.report import compare_page, run_page
from gfcr.run.directory import RunDirectory

PAGE = "report.html"


def write(directory: Path) -> Path:
    """Write the page of a run or of a comparison."""
    if RunDirectory.exists(directory):
        with RunDirectory.read(directory) as run:
            html = run_page.render(run)
    elif (directory / PLAN).is_file():
        html = compare_page.render(collect(read_plan(directory)))
    else:
        raise DataError(
            f"{directory} holds neither a run nor a comparison",
            "give a directory that `gfcr run --out` or `gfcr compare --out` made",
        )
    page = directory / PAGE
    part = page.with_name(f".{PAGE}.{os.getpid()}")
    try:
        part.write_text(html, encoding="utf-8")
        part.replace(page)
    finally:
        part.unlink(missing_ok=True)
    return page
