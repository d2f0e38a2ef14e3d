"""Lines of an answer that have text on them. Invariant: linear, also for a text of blanks (a pattern like `.*\\S.*` is not)."""

from __future__ import annotations


def lines(text: str, start: int = 0) -> list[tuple[int, int]]:
    """(start, end) of each line with text on it, from `start` on, without its line break."""
    found = []
    for line in text[start:].split("\n"):
        if line and not line.isspace():
            found.append((start, start + len(line)))
        start += len(line) + 1
    return found
