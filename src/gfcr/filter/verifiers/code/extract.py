"""The program in an answer's text, and places of the text it came from.

A map file name -> text (JSON), else the last fenced block, else the whole text is Python. Thoughts before `</think>` are no part
of the answer. Linear in the text's length.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

_FENCE = re.compile(r"^[ ]{0,3}(`{3,}|~{3,})[ \t]*([^\n`]*)$", re.MULTILINE)
_PYTHON = {"", "python", "py", "python3", "py3", "python2", "pycon", "json"}
_END_OF_THOUGHT = "</think>"
_MOST_FILES = 100
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Answer:
    """A program."""

    files: dict[str, str]
    offsets: dict[str, int] = field(default_factory=dict)
    """Where a file's text begins in the text judged; absent for a file whose text stands there in another form."""
    refused: str | None = None
    """Why it is not run at all."""

    def line(self, file: str, number: int) -> tuple[int, int] | None:
        """Characters of a line (from 1) in the text judged, without its indentation; None when it is not to be found there."""
        lines = self.files.get(file, "").split("\n")
        if file not in self.offsets or not 1 <= number <= len(lines):
            return None
        start = self.offsets[file] + sum(len(line) + 1 for line in lines[: number - 1])
        text = lines[number - 1]
        lead = len(text) - len(text.lstrip())
        return (start + lead, start + len(text.rstrip())) if text.strip() else None

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
    begin = text.rfind(_END_OF_THOUGHT) + len(_END_OF_THOUGHT) if _END_OF_THOUGHT in text else 0
    files = _file_map(text[begin:])
    if files is not None:
        return _checked(files)
    start, end = _block(text, begin)
    files = _file_map(text[start:end])
    if files is not None:
        return _checked(files)
    name = entry or "solution.py"
    return Answer({name: text[start:end]}, {name: start})


def _block(text: str, begin: int) -> tuple[int, int]:
    """The last fenced block's inside, or all of the text. A fence within a triple-quoted string of bare Python is none."""
    found: list[tuple[int, int, str]] = []
    opened: tuple[int, str, str] | None = None
    for match in _FENCE.finditer(text, begin):
        marks, tag = match[1], match[2].strip()
        if opened is None:
            if not found and _inside_string(text[begin : match.start()]):
                return begin, len(text)
            opened = (min(match.end() + 1, len(text)), marks, tag)
        elif marks.startswith(opened[1]) and not tag:
            found.append((opened[0], match.start(), opened[2]))
            opened = None
    if opened is not None:
        found.append((opened[0], len(text), opened[2]))
    python = [block for block in found if (block[2].split() or [""])[0].lower() in _PYTHON]
    chosen = (python or found or [(begin, len(text), "")])[-1]
    return chosen[0], chosen[1]


def _inside_string(before: str) -> bool:
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
        if not name or len(name) > _LONGEST_NAME or "\0" in name or "\\" in name or not name.isprintable():
            return Answer({}, refused=f"{name[:60]!r} is no file name")
        if name.startswith("/") or any(part in ("", ".", "..") for part in parts):
            return Answer({}, refused=f"the file name {name[:60]!r} leads out of its directory")
    return Answer(files)
