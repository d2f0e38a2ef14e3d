"""Reports: one self-contained HTML page for a run or a comparison.

`figures` gathers, `charts` draws, `page` renders; templates lie in `templates/`.
"""

from __future__ import annotations

from pathlib import Path


def write_report(directory: str | Path) -> Path:
    """(Re)write DIR/report.html from a run directory or a comparison's directory; returns its path. Raises DataError."""
    from gfcr.report.write import write

    return write(Path(directory))


__all__ = ["write_report"]
