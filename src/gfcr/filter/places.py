"""From places in the judged text to tokens.

Invariants: a token belongs to a place iff it carries a byte of one of its characters, so a character cut over tokens takes all of them
with it; a place lies in the policy's own tokens only (line breaks between turns are nobody's); decoding is asked of prefixes of a turn, never
of single tokens, whose text alone may be none. Built for tokenizers whose decoded prefixes are prefixes of the text but for a last
broken character (byte-level, character and sentence-piece models).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gfcr.engine.stops import BROKEN
from gfcr.filter.answer import own_turns
from gfcr.types import Rollout, Signals, StepScore

Decode = Callable[[np.ndarray], str]
FINAL = "answer"
"""Kind of the place of the final answer."""


class TurnText:
    """The characters that the first tokens of a turn make."""

    def __init__(self, ids: np.ndarray, decode: Decode) -> None:
        """`ids`: int32[n], the policy's own tokens of one turn."""
        self.ids, self._decode = ids, decode
        self.text = decode(ids)
        self._known: dict[int, tuple[int, bool]] = {0: (0, False), len(ids): (len(self.text), False)}

    def tokens(self, start: int, end: int) -> tuple[int, int]:
        """(first, one past the last) token that carries a byte of the characters [start, end) of the turn's text; two searches
        by halves, so about 2 log2(n) decodings."""
        end = min(end, len(self.text))
        if start >= end:
            return 0, 0
        return self._last(lambda i: self._before(i, start)), self._last(lambda i: self._whole(i)[0] < end) + 1

    def _before(self, i: int, char: int) -> bool:
        """Whether the first i tokens hold no byte of `char` or what follows it."""
        whole, broken = self._whole(i)
        return whole < char or (whole == char and not broken)

    def _last(self, holds: Callable[[int], bool]) -> int:
        """Largest i below n for which it holds; it holds at 0 and, from some i on, no longer."""
        low, high = 0, len(self.ids)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low

    def _whole(self, i: int) -> tuple[int, bool]:
        """(characters of the text that the first i tokens make in full, whether they hold bytes of another)."""
        if i not in self._known:
            part = self._decode(self.ids[:i])
            whole = _common(part, self.text)
            self._known[i] = whole, len(part) > whole
        return self._known[i]


def _common(part: str, text: str) -> int:
    """Length of the longest common prefix."""
    if text.startswith(part):
        return len(part)
    bare = part.rstrip(BROKEN)
    if text.startswith(bare):
        return len(bare)
    return next((i for i, (a, b) in enumerate(zip(part, text)) if a != b), min(len(part), len(text)))


def token_spans(rollout: Rollout, decode: Decode, spans: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """For each (start, end) in characters of the judged text (`answer.own_text`), the (start, end) of its tokens in flat offsets of
    the path: one pair per stretch of one segment, none for a place without tokens."""
    turns = []
    at = 0
    for parts in own_turns(rollout):
        turn = TurnText(np.concatenate([ids for _, ids in parts]), decode)
        places = np.concatenate([np.arange(offset, offset + len(ids)) for offset, ids in parts])
        turns.append((at, turn, places))
        at += len(turn.text) + 1  # the line break between turns
    out = []
    for start, end in spans:
        found: list[tuple[int, int]] = []
        for begin, turn, places in turns:
            first, last = turn.tokens(max(start - begin, 0), end - begin)
            if first < last:
                found += _runs(places[first:last])
        out.append(found)
    return out


def _runs(places: np.ndarray) -> list[tuple[int, int]]:
    """(start, end) of the stretches without a gap."""
    cuts = np.flatnonzero(np.diff(places) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(places, cuts)]


def with_evidence(signals: Signals, rollout: Rollout, decode: Decode) -> Signals:
    """The signals with a step score of kind `evidence` for every place that a verdict points at; its source is
    `VERIFIER:KIND OF PLACE`, its value the place's (None where it is only pointed at). Where the final answer stands is no
    evidence: verdicts have that place for readers."""
    named = [(name, s) for name, verdict in signals.verdicts.items() for s in verdict.spans if s.kind != FINAL]
    if not named:
        return signals
    found = token_spans(rollout, decode, [(span.start, span.end) for _, span in named])
    scores = [
        StepScore(start, end, "evidence", span.value, source=f"{name}:{span.kind}")
        for (name, span), runs in zip(named, found)
        for start, end in runs
    ]
    return replace(signals, steps=(*signals.steps, *scores))
