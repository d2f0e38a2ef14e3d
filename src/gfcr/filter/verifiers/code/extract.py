"""The program in an answer's text, and places of the text it came from.

A map file name -> text (JSON), else the last fenced block (of Python, or of no named language, if there is one), else the whole text.
Thoughts before `</think>` are no part of the answer. Invariant: linear in the text; nothing of it is compiled here.
"""

from __future__ import annotations

import json
import textwrap
from bisect import bisect_right
from dataclasses import dataclass, field

from gfcr.filter.texts.fences import Block, blocks

_PYTHON = {"", "python", "py", "python3", "py3", "ipython", "json"}
_END_OF_THOUGHT = "</think>"
_MOST_FILES = 100
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Answer:
    """A program."""

    files: dict[str, str]
    places: dict[str, list[int]] = field(default_factory=dict)
    """Where each line of a file ends in the text judged; absent for a file whose text stands there in another form."""
    whole: tuple[int, int] | None = None
    """Where the program stands in the text judged; None where it stands there in another form."""
    refused: str | None = None
    """Why it is not run at all."""

    def line(self, file: str, number: int) -> tuple[int, int] | None:
        """Characters of a line (from 1) in the text judged, without blanks around it; None when it is not to be found there."""
        ends, text = self.places.get(file, []), self.source(file, number)
        return (ends[number - 1] - len(text), ends[number - 1]) if text and number <= len(ends) else None

    def source(self, file: str, number: int) -> str:
        """The line, stripped."""
        lines = self.files.get(file, "").split("\n")
        return lines[number - 1].strip() if 1 <= number <= len(lines) else ""

    @property
    def canonical(self) -> str:
        """One text for equal programs."""
        if len(self.files) == 1:
            return next(iter(self.files.values())).strip()
        return json.dumps(self.files, sort_keys=True)


def answer(text: str, entry: str | None) -> Answer:
    """The program of a text; `entry`: the file name of a single one, `solution.py` unless the tests say otherwise."""
    start, end = _program(text)
    files = _file_map(text[start:end])
    if files is not None:
        return _checked(files)
    name = entry or "solution.py"
    source = text[start:end]
    ends, at = [], start
    for line in source.split("\n"):
        ends.append(at + len(line.rstrip()))
        at += len(line) + 1
    return Answer({name: textwrap.dedent(source).lstrip("\ufeff")}, {name: ends}, (start, end))


def _program(text: str) -> tuple[int, int]:
    """Where the program stands."""
    found = blocks(text)
    thought = _last_outside(text, found)
    first = next((block for block in found if block.start > thought), None)
    if first is None or _inside_string(text[thought : first.start]):
        return thought, len(text)
    after = [block for block in found if block.start > thought]
    chosen = ([block for block in after if block.language in _PYTHON] or after)[-1]
    return chosen.start, chosen.end


def _last_outside(text: str, found: list[Block]) -> int:
    """One past the last end of a thought that stands in no fenced block; 0 where there is none."""
    starts = [block.start for block in found]
    at = len(text)
    while (at := text.rfind(_END_OF_THOUGHT, 0, at)) >= 0:
        n = bisect_right(starts, at) - 1
        if n < 0 or at >= found[n].end:
            return at + len(_END_OF_THOUGHT)
    return 0


def _inside_string(before: str) -> bool:
    """Whether a fence after this stands within a triple-quoted string of bare Python."""
    return (before.count('"""') % 2 or before.count("'''") % 2) != 0


def _file_map(text: str) -> dict[str, str] | None:
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return None
    try:
        found = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not found or not all(isinstance(value, str) for value in found.values()):
        return None
    return found


def _checked(files: dict[str, str]) -> Answer:
    if len(files) > _MOST_FILES:
        return Answer({}, refused=f"{len(files)} files; at most {_MOST_FILES} are taken")
    for name in files:
        parts = name.split("/")
        if not name or len(name) > _LONGEST_NAME or "\\" in name or not name.isprintable():
            return Answer({}, refused=f"{name[:60]!r} is no file name")
        if name.startswith("/") or any(part in ("", ".", "..") for part in parts):
            return Answer({}, refused=f"the file name {name[:60]!r} leads out of its directory")
    return Answer(files)
