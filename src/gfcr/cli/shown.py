"""Text of models, files and users on a terminal.

Invariant: what such a text holds is shown and never obeyed: a character that a terminal acts on (escape sequences), or that
changes how others are read (text direction, invisible ones), stands there as its escape; line breaks and tabs stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line feed, DEL, C1
    "\xad\u061c\u180e\u200b\u200e\u200f\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, direction, isolates
    "\u2028-\u202e"  # line and paragraph separators, embeddings and overrides
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # format controls and tags of other planes
    "\ud800-\udfff]"  # halves of characters, which no terminal can be sent
)


def visible(text: str) -> str:
    """The text with every character that acts instead of being seen as `\\x1b`, `\\u202e`, ..."""
    return _ACTS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


class SafeConsole(Console):
    """A console on which every text is `visible`, whatever prints it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
