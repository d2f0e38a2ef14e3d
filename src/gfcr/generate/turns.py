"""A chat as it is sampled: token ids in, token ids out.

Invariants: what the policy wrote is kept as sampled and never encoded again; a token stands in exactly one segment: the
prompt, the policy's own (ACTION), or what was fed between (OBSERVATION: the end of the turn where the policy did not write it,
the template's glue, the messages, the next header); conversations are frozen, so that branches share their past. Calls read from
an answer are a record: they decide how what comes after is rendered, never what the answer's tokens are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gfcr.errors import DataError
from gfcr.generate.chat import Chat
from gfcr.generate.codec import Codec
from gfcr.generate.dialogue import answer_text, continued, observation, tally
from gfcr.generate.shown import ASSISTANT, TOOL_ROLES, deep, said_by, text_of
from gfcr.generate.tool_text import spoken
from gfcr.types import Message, Node, Path, Rollout, Segment, SegmentKind, StopReason, ToolCall, path_ids


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """Messages and the tokens they became."""

    chat: Chat
    messages: tuple[Message, ...]
    """The chat as text; answers decoded, without the control token that ended them, with the calls read from them."""
    path: Path
    stop: StopReason | None = None
    """How the last answer ended; None before the first."""
    turn: int = 0
    """Answers so far."""
    tools: tuple[str, ...] = ()
    """JSON schemas the prompt was rendered with, as text."""
    asked: int = 0
    """Messages, from the first, that are not the policy's or an environment's."""

    @classmethod
    def start(cls, chat: Chat, messages: Sequence[Message], id: str = "prompt", tools: Sequence[str] = ()) -> Conversation:
        """A chat before the policy's first answer; `id` names the prompt's node. Raises DataError."""
        ids = np.asarray(chat.prompt(messages, tuple(tools)), np.int32)
        return cls.after(chat, messages, (Node(id, None, Segment(SegmentKind.PROMPT, ids, template=chat.id)),), tools)

    @classmethod
    def after(cls, chat: Chat, messages: Sequence[Message], path: Path, tools: Sequence[str] = ()) -> Conversation:
        """A chat whose prompt is tokens already: `path` is the rendered messages, and guidance where there is some."""
        asked = len(messages) - (bool(messages) and messages[-1].role == ASSISTANT)
        return cls(chat, tuple(messages), path, tools=tuple(tools), asked=asked)

    @property
    def said_last(self) -> str:
        return next((text_of(m) for m in reversed(self.messages[self.asked :]) if m.role == ASSISTANT), "") if self.turn else ""

    def said(self, rollout: Rollout, calls: Sequence[ToolCall] = ()) -> Conversation:
        """After an answer: `rollout` was sampled from `path`; `calls`: the tool calls read from it. Raises ValueError for another
        path's rollout."""
        return self.grown(rollout.path, rollout.stop, calls)

    def grown(self, path: Path, stop: StopReason, calls: Sequence[ToolCall] = ()) -> Conversation:
        """`said` for a path that is not a rollout yet."""
        path, new = continued(self.path, path, self.turn)
        text, messages = answer_text(self.chat.codec, self.path, new), self.messages
        if messages and messages[-1].role == ASSISTANT:  # it went on with an answer that was begun
            text, messages = text_of(messages[-1]) + text, messages[:-1]
        messages = (*messages, said_by(ASSISTANT, text))
        grown = Conversation(self.chat, messages, path, stop, self.turn + 1, self.tools, self.asked)
        return grown.calling(calls) if calls else grown

    def calling(self, calls: Sequence[ToolCall]) -> Conversation:
        """The same after an answer, with the calls that were read from `said_last`."""
        made = tuple(_clean_call(call, self.chat.codec) for call in calls)
        return replace(self, messages=(*self.messages[:-1], replace(self.messages[-1], calls=made)))

    def heard(self, new: Sequence[Message], author: str = "environment", id: str = "") -> Conversation:
        """After the environment's messages, which are rendered jointly; `id` names the new node (derived when empty). Raises
        DataError when the template refuses or hides them, ValueError before the first answer."""
        if not new or self.stop is None or self.messages[-1].role != ASSISTANT:
            raise ValueError("an observation is one or more messages after an answer")
        codec, answer = self.chat.codec, self.messages[-1]
        taken = self.chat.taken(answer, [_clean(message, codec) for message in new])
        try:
            tail = self.chat.after(self.messages[:-1], answer, taken, self.tools, self.asked)
        except DataError:
            if not answer.calls or not any(message.role in TOOL_ROLES for message in taken):
                raise
            # calls as the policy wrote them that the template refuses (an id of another form, say): its fault, so no error
            answer, taken = replace(answer, calls=()), spoken(taken)
            tail = self.chat.after(self.messages[:-1], answer, taken, self.tools, self.asked)
        messages, before, last = (*self.messages[:-1], answer), None, self._last()
        found = codec.leading(tail)
        if found is not None and last == found[0]:
            before, tail = last, tail[found[1] :]
        elif self.stop is StopReason.STOP_STRING and (already := _overlap(text_of(answer), tail)):
            tail = tail[already:]
            messages = (*messages[:-1], replace(answer, parts=said_by(ASSISTANT, text_of(answer)[:-already]).parts))
        ids = codec.encode_after(tail, before)
        if not ids:
            raise DataError(
                f"the model's chat template hides messages of the role {new[0].role!r}", "use roles the template knows"
            )
        node = observation(self.path, ids, self.turn, author, self.chat.id, id)
        return Conversation(self.chat, (*messages, *taken), (*self.path, node), self.stop, self.turn, self.tools, self.asked)

    def shown(self) -> list[Message]:
        """The messages as a full rendering shows them."""
        return [*self.messages[: self.asked], *map(self.chat.own, self.messages[self.asked :])]

    def ids(self) -> np.ndarray:
        """int32[n]: all tokens."""
        return path_ids(self.path)

    def tally(self) -> dict[SegmentKind, int]:
        """Tokens by kind; they sum to the length."""
        return tally(self.path)

    def _last(self) -> int | None:
        """The last token, if the policy wrote it."""
        segment = self.path[-1].segment
        return int(segment.ids[-1]) if segment.kind is SegmentKind.ACTION and len(segment) else None


def _clean(message: Message, codec: Codec) -> Message:
    text = text_of(message)
    cleaned = codec.cleaned(text)
    return message if cleaned == text else replace(message, parts=said_by(message.role, cleaned).parts)


def _clean_call(call: ToolCall, codec: Codec) -> ToolCall:
    return ToolCall(codec.cleaned(call.name), deep(call.arguments, codec.cleaned), codec.cleaned(call.id))


def _overlap(said: str, tail: str) -> int:
    """Characters of `tail` that `said` ends with already: a stop string that is the template's own next words."""
    return next((n for n in range(min(len(said), len(tail)), 0, -1) if said.endswith(tail[:n])), 0)
