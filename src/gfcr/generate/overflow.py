"""Prompts that are too long. Invariant: cut from the left by whole turns, the system turn kept, and only inside the last
user's turn by characters, so that no token is cut and no turn is without its header; bounded by bisection."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gfcr.errors import DataError
from gfcr.generate.chat import said_by, text_of
from gfcr.types import Message

_SYSTEM = frozenset({"system", "developer"})
Length = Callable[[Sequence[Message]], int]


def shorten(messages: Sequence[Message], length: Length, room: int) -> tuple[Message, ...] | None:
    """The longest end of the chat that fits into `room` tokens, after its system turns; None when not even an empty last turn
    does."""
    first = next((i for i, m in enumerate(messages) if m.role not in _SYSTEM), len(messages))
    kept, rest = tuple(messages[:first]), tuple(messages[first:])
    starts = [i for i, m in enumerate(rest) if m.role == "user"] or [0]
    for start in starts:
        if _fits((*kept, *rest[start:]), length, room):
            return (*kept, *rest[start:])
    last = rest[starts[-1] :]
    if not last:
        return None
    text = text_of(last[0])

    def ending(begin: int) -> tuple[Message, ...]:
        return (*kept, said_by(last[0].role, text[begin:]), *last[1:])

    begin = cut_from_left(text, lambda b: _fits(ending(b), length, room))
    return None if begin is None else ending(begin)


def cut_from_left(text: str, fits: Callable[[int], bool]) -> int | None:
    """The first character to keep; None when nothing can be kept. `fits(b)` says whether `text[b:]` fits."""
    low, high = 0, len(text)
    if not text or not fits(high - 1):
        return None
    high -= 1
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _fits(messages: Sequence[Message], length: Length, room: int) -> bool:
    """Whether they fit; not when the template refuses them in this order."""
    try:
        return length(messages) <= room
    except DataError:
        return False
