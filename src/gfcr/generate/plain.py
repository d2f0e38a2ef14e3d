"""Turns without a chat template: an environment's texts continue the sequence as they are.

Invariants: those of dialogue.py; a text that spells a control token is encoded as plain characters; an empty text adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gfcr.generate.codec import Codec
from gfcr.generate.dialogue import answer_text, continued, observation, tally
from gfcr.generate.shown import ASSISTANT, said_by, text_of
from gfcr.types import Message, Path, Rollout, SegmentKind, StopReason, ToolCall, path_ids
from gfcr.types.frozen import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Transcript:
    """A text prompt, and turns of plain text after it."""

    codec: Codec
    path: Path
    messages: tuple[Message, ...] = ()
    """The turns after the prompt, for the record."""
    stop: StopReason | None = None
    """How the last answer ended; None before the first."""
    turn: int = 0
    """Answers so far."""

    @property
    def said_last(self) -> str:
        if self.messages and (last := self.messages[-1]).role == ASSISTANT:  # the usual case, at once
            return text_of(last)
        return next((text_of(m) for m in reversed(self.messages) if m.role == ASSISTANT), "")

    def said(self, rollout: Rollout, calls: Sequence[ToolCall] = ()) -> Transcript:
        """After an answer: `rollout` was sampled from `path`. Raises ValueError for another path's rollout."""
        return self.grown(rollout.path, rollout.stop, calls)

    def grown(self, path: Path, stop: StopReason, calls: Sequence[ToolCall] = ()) -> Transcript:
        """`said` for a path that is not a rollout yet."""
        path, new = continued(self.path, path, self.turn)
        message = said_by(ASSISTANT, answer_text(self.codec, self.path, new), calls)
        return Transcript(self.codec, path, (*self.messages, message), stop, self.turn + 1)

    def calling(self, calls: Sequence[ToolCall]) -> Transcript:
        """The same after an answer, with the calls that were read from `said_last`."""
        return replace(self, messages=(*self.messages[:-1], replace(self.messages[-1], calls=tuple(calls))))

    def heard(self, new: Sequence[Message], author: str = "environment", id: str = "") -> Transcript:
        """After the environment's messages, their texts joined as they are. Raises DataError for media or for characters that the
        tokenizer does not know, ValueError before the first answer."""
        if self.stop is None or (self.messages and self.messages[-1].role != ASSISTANT):
            raise ValueError("an observation comes after an answer")
        ids = self.codec.encode_after(self.codec.cleaned("".join(map(text_of, new))))
        if not ids:
            return self
        node = observation(self.path, ids, self.turn, author, None, id)
        return Transcript(self.codec, (*self.path, node), (*self.messages, *new), self.stop, self.turn)

    def ids(self) -> np.ndarray:
        """int32[n]: all tokens."""
        return path_ids(self.path)

    def tally(self) -> dict[SegmentKind, int]:
        """Tokens by kind; they sum to the length."""
        return tally(self.path)
