"""Whether judged code can be cut off on this machine, and what tests of it share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gfcr.errors import ConfigError
from gfcr.sandbox.box import Box, Job, works
from gfcr.sandbox.pump import Run, pump
from gfcr.sandbox.settings import Limits, Sandbox


def _why() -> str:
    try:
        works(Sandbox())
    except ConfigError as error:
        return error.what
    return ""


WHY = _why()
needs_sandbox = pytest.mark.skipif(bool(WHY), reason=f"no sandbox on this machine: {WHY}")


def ran(source: str, stdin: str = "", seconds: float = 20.0, sandbox: Sandbox | None = None, **limits: float) -> Run:
    """The end of one program, run alone in a sandbox."""
    with Box(sandbox or Sandbox(), Limits.model_validate(limits)) as box:
        run = box.start(Job({"main.py": source}, "main.py", ("program",)), stdin.encode())
        pump([run], seconds, lambda: run.over)
    return run


def processes() -> set[int]:
    """Ours: children of this process and what they started."""
    found = [os.getpid()]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return set(found[1:])
