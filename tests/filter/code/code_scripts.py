"""Answers and test scripts: honest answers that every test must accept, and answers that try to pass without being right.

Facts of our own: (answer, tests), in scripts.txt: `=== honest` or `=== fooling`, the answer, `--- tests`, the tests. Everything in FOOLING
fools an assert that runs in the process of the answer, or is meant to; as text it is never imported by accident.
"""

from __future__ import annotations

import re
from pathlib import Path


def pairs(kind: str) -> list[tuple[str, str]]:
    """(answer, tests) of this kind, in the order of the file."""
    _, *parts = re.split(r"^=== (\w+)\n", (Path(__file__).parent / "scripts.txt").read_text("utf-8"), flags=re.MULTILINE)
    both = [body.split("--- tests\n") for name, body in zip(parts[::2], parts[1::2], strict=True) if name == kind]
    return [(answer, tests) for answer, tests in both]


HONEST, FOOLING = pairs("honest"), pairs("fooling")
