"""Fenced code blocks of an answer. Invariant: linear in the text; a block that is never closed reaches to the end."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    language: str
    """First word after the fence, in lower case; empty where none stands."""
    text: str
    start: int
    """Offset of its first character."""
    end: int


def blocks(text: str) -> list[Block]:
    """All fenced blocks, in order. A fence closes with at least as many of the same marks and nothing behind them."""
    found: list[Block] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]) and not fence[2].strip():
            found.append(_block(text, opened, fence.start()))
            opened = None
    if opened is not None and text[opened.end() :].strip():
        found.append(_block(text, opened, len(text)))
    return found


def _block(text: str, opened: re.Match[str], end: int) -> Block:
    start = min(opened.end() + 1, end)
    words = opened[2].strip().strip("{}.").lower().split()
    return Block(words[0] if words else "", text[start:end], start, end)


def programs(text: str, languages: frozenset[str]) -> list[str]:
    """What may be the program of an answer, the likeliest first: its last block in one of `languages`, its last block without a
    language, its last block, the whole text; without byte order mark and common indent, line breaks as `\\n`, blank ones left out."""
    text = text.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")
    found = blocks(text)
    kinds = ([b for b in found if b.language in languages], [b for b in found if not b.language], found)
    made = [textwrap.dedent(kind[-1].text).strip("\n") for kind in kinds if kind]
    return [p for p in dict.fromkeys([*made, textwrap.dedent(text).strip("\n")]) if p.strip()]
