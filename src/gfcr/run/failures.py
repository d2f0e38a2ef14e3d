"""Errors of the run directory. Invariants: a message names what, where, which value and what to do; raising one never
leaves committed state damaged.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gfcr.errors import GfcrError


class RunDirectoryError(GfcrError):
    """A run directory that cannot be created, opened, trusted or written."""

    def __init__(self, what: str, remedy: str, committed: bool = False) -> None:
        """`committed`: the step that was being committed is durable nevertheless (only files derived from it lag)."""
        super().__init__(what, remedy)
        self.committed = committed


class Tampered(RunDirectoryError):
    """Stored data differ from their digests, or belong to another run."""


_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_SQLITE_DENIED = ("readonly", "unable to open")


@contextmanager
def storage_errors(doing: str, where: Path, committed: bool = False, creating: bool = False) -> Iterator[None]:
    """Turn full disks, refused access and SQLite's errors into a RunDirectoryError that says what was being done. `creating`:
    there is no run yet that could be resumed."""
    again = "start the run again, here or in another directory" if creating else "resume the run"
    state = (
        "no run was begun"
        if creating
        else "the step is committed"
        if committed
        else "nothing of this step is committed, all earlier steps are intact"
    )
    try:
        yield
    except (OSError, sqlite3.DatabaseError) as error:
        text, code, act = str(error), getattr(error, "errno", None), f"{doing} in {where}"
        if code in _FULL or "disk is full" in text:
            what, remedy = f"no space left while {act}", f"free space (or raise the quota), then {again}"
        elif code in _DENIED or any(part in text for part in _SQLITE_DENIED):
            what, remedy = f"access refused while {act}: {text}", f"give this user write access to it, then {again}"
        elif isinstance(error, OSError):
            what, remedy = f"{act} failed: {text}", f"check path and disk, then {again}"
        elif isinstance(error, sqlite3.OperationalError):
            what, remedy = f"{act} failed: {text}", f"if another program has run.sqlite open, close it; then {again}"
        else:
            what, remedy = f"{act} failed: {text}", "run.sqlite is damaged: restore it from a copy, or start again elsewhere"
        raise RunDirectoryError(f"{what}; {state}", remedy, committed) from error
