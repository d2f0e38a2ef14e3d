"""The items of a list that an answer gives: JSON, bullets, numbered lines, or words with separators.

Invariants: an item is never split inside brackets or quotes; the number of a numbered line is not part of its item; linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gfcr.filter.texts.lines import lines
from gfcr.filter.texts.stated import statements
from gfcr.filter.texts.values import NoValue, find, lenient
from gfcr.filter.verifiers.choice.options import plain

SEPARATORS = (",", ";", "、", "，", "；", "\n")
_BULLET = re.compile(r"^[ \t]*(?:[-*•‣–]|\(?\d{1,3}[.)])[ \t](.*)$", re.MULTILINE)
_AND = re.compile(r"^(?:and|or|und|et|y|和|与)\s+(?=\S)|^(?:和|与)", re.IGNORECASE)
_PAIR_AND = re.compile(r"\s+(?:and|&)\s+", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(?:,\d{3}){1,12}(?![\d,])")
_OPEN, _CLOSE = "([{", ")]}"


def items(text: str, separators: Sequence[str] = SEPARATORS) -> tuple[list[Any], int, int] | None:
    """(items, start, end) of the list an answer ends with: what its last statement gives, else its last JSON list, else its last run of
    bullets, else its last line. None where it gives none."""
    if not text.strip():
        return None
    stated = [s for s in statements(text) if text[s.start : s.end].strip(" \t*_$.:")]
    if stated:
        last = stated[-1]
        start, end = last.start, last.end
        if last.kind == "phrase" and (run := _bullets(text, last.mark)) is not None:
            return run
        return split(text[start:end], separators), start, end
    try:
        value, start, end = find(text, want=list)
        if isinstance(value, list):
            return value, start, end
    except NoValue:
        pass
    if (run := _bullets(text, 0)) is not None:
        return run
    written = lines(text)
    if "\n" in separators and len(written) > 1 and all(end - start <= 60 for start, end in written):
        return split(text, separators), written[0][0], written[-1][1]
    start, end = written[-1]
    return split(text[start:end], separators), start, end


def split(text: str, separators: Sequence[str] = SEPARATORS) -> list[Any]:
    """The items of one text."""
    bare = plain(text).strip().rstrip(".").strip()
    if "\n" in bare and (found := [m[1] for m in _BULLET.finditer(bare) if m[1].strip()]):
        return [_clean(item) for item in found]
    for form in (bare, f"[{bare}]" if bare[:1] in "\"'" else bare):
        if form[:1] == "[":
            try:
                value = lenient(form)
                if isinstance(value, list):
                    return value
            except NoValue:
                pass
    if len(bare) > 1 and bare[0] in _OPEN and bare[-1] == _CLOSE[_OPEN.index(bare[0])] and _whole(bare):
        bare = bare[1:-1]
    parts = _cut(bare, separators)
    if len(parts) == 1 and len(pair := _PAIR_AND.split(bare)) > 1:
        parts = pair
    elif len(parts) > 1 and len(pair := _PAIR_AND.split(parts[-1])) == 2:
        parts = [*parts[:-1], *pair]  # a, b and c
    return [item for part in parts if (item := _clean(_AND.sub("", part.strip())))]


def _cut(text: str, separators: Sequence[str]) -> list[str]:
    """At separators outside brackets and quotes; commas of thousands are none where another separator stands."""
    marks = [s for s in separators if s in text]
    grouped = {i for m in _THOUSANDS.finditer(text) for i in range(m.start(), m.end())} if set(marks) - {","} else set()
    parts, start, depth, quote, i = [], 0, 0, "", 0
    while i < len(text):
        char = text[i]
        if quote:
            quote = "" if char == quote else quote
        elif char == '"' and text.find('"', i + 1) > 0:
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth = max(0, depth - 1)
        elif depth == 0 and i not in grouped and (mark := next((s for s in marks if text.startswith(s, i)), "")):
            parts.append(text[start:i])
            start = i + len(mark)
            i = start
            continue
        i += 1
    return [*parts, text[start:]]


def _whole(text: str) -> bool:
    """Whether the first bracket closes with the last."""
    depth = 0
    for i, char in enumerate(text):
        depth += (char in _OPEN) - (char in _CLOSE)
        if depth == 0:
            return i == len(text) - 1
    return False


def _bullets(text: str, start: int) -> tuple[list[Any], int, int] | None:
    """The last run of bullets or numbered lines without a line of other text between them, from `start` on; two at least."""
    runs: list[list[re.Match[str]]] = []
    for line in _BULLET.finditer(text, start):
        if not line[1].strip():
            continue
        if runs and not text[runs[-1][-1].end() : line.start()].strip():
            runs[-1].append(line)
        else:
            runs.append([line])
    long = [run for run in runs if len(run) > 1]
    if not long:
        return None
    return [_clean(plain(m[1])) for m in long[-1]], long[-1][0].start(), long[-1][-1].end()


def _clean(item: str) -> str:
    item = " ".join(item.split()).rstrip(",;").strip()
    if len(item) > 1 and item[0] == item[-1] and item[0] in "\"'":
        item = item[1:-1].strip()
    return item
