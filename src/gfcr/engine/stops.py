"""When a stream ends by itself: sets of end tokens and stop strings.

Invariant: a stop string is found with the token that completes it, also when it runs over token borders, through the middle of a
character, or over the border between what a resumed answer had and what is new; the text is decoded from an anchor far enough back
and never inside a character.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Decode = Callable[[Sequence[int]], str]
"""Token ids to text."""
BROKEN = "\ufffd"
"""What bytes decode to that are no character."""
LONGEST_CHARACTER = 4
"""Bytes of UTF-8."""


class EndTokens:
    """The distinct sets of end tokens an engine has met, as rows of a table."""

    def __init__(self, vocabulary: int) -> None:
        self.table = np.zeros((0, vocabulary), np.bool_)
        self._number: dict[tuple[int, ...], int] = {}

    def number(self, eos: tuple[int, ...]) -> int:
        """Row of `eos`."""
        if eos not in self._number:
            row = np.zeros((1, self.table.shape[1]), np.bool_)
            row[0, list(eos)] = True
            self._number[eos] = len(self.table)
            self.table = np.concatenate([self.table, row])
        return self._number[eos]


class Watch:
    """Looks for stop strings in one stream."""

    def __init__(self, strings: tuple[str, ...], decode: Decode, said: np.ndarray | None = None) -> None:
        """`said`: int32[n], what the answer has already; a string that is complete in it counts no more."""
        self.strings, self.decode = strings, decode
        self._said, self._begun = said if said is not None and len(said) else None, len(said) if said is not None else 0
        # tokens to look back: one may hold no more than a byte, and a few decode to nothing
        self._reach = max(len(string.encode()) for string in strings) + 8
        self._anchor = 0

    def hit(self, ids: np.ndarray) -> bool:
        """Whether a string is complete in the new tokens `ids` (all so far)."""
        if self._said is not None:
            ids = np.concatenate([self._said, ids])
        text = self.decode(ids[self._anchor :].tolist())
        if any(string in text for string in self.strings) and self._new(ids, text):
            return True
        if len(ids) - self._anchor > 4 * self._reach:
            self._forward(ids, text)
        return False

    def _new(self, ids: np.ndarray, text: str) -> bool:
        """Whether a string ends in what is new."""
        old = len(self.decode(ids[self._anchor : self._begun].tolist()).rstrip(BROKEN)) if self._anchor < self._begun else 0
        return any(text.find(string, max(0, old - len(string) + 1)) >= 0 for string in self.strings)

    def _forward(self, ids: np.ndarray, text: str) -> None:
        """Move the anchor, not into a character: bytes that are none would make those after them unreadable too."""
        for anchor in range(len(ids) - self._reach, len(ids) - self._reach - LONGEST_CHARACTER, -1):
            part = self.decode(ids[anchor:].tolist())
            if part and BROKEN not in part and text.endswith(part):
                self._anchor = anchor
                return
        if len(ids) - self._anchor > 16 * self._reach:  # no text at all; the window must not grow for ever
            self._anchor = len(ids) - self._reach


def cut_at(text: str, strings: Sequence[str], keep: bool) -> str:
    """`text` up to the first stop string in it, which stays when `keep`; the whole of it when it holds none."""
    found = [(at, len(string)) for string in strings if (at := text.find(string)) >= 0]
    if not found:
        return text
    at, length = min(found)
    return text[: at + length] if keep else text[:at]
