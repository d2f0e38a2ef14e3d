"""When a stream ends by itself: sets of end tokens and stop strings.

Invariant: a stop string is found with the token that completes it, also when it runs over token borders; the text is that
of the new tokens, decoded from an anchor far enough back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Decode = Callable[[Sequence[int]], str]
"""Token ids to text."""


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

    def __init__(self, strings: tuple[str, ...], decode: Decode) -> None:
        self.strings, self.decode = strings, decode
        self._reach = max(map(len, strings)) + 8  # tokens to look back; a few may decode to no character
        self._anchor = 0

    def hit(self, ids: np.ndarray) -> bool:
        """Whether a string is complete in the new tokens `ids` (all so far)."""
        if len(ids) - self._anchor > 4 * self._reach:
            self._anchor = len(ids) - self._reach
        text = self.decode(ids[self._anchor :].tolist())
        return any(string in text for string in self.strings)
