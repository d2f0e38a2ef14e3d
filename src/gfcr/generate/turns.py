"""A chat as it is sampled: token ids in, token ids out.

Invariants: what the policy wrote is kept as sampled and never encoded again; a token stands in exactly one segment: the
prompt, the policy's own (ACTION), or what was fed between (OBSERVATION: the end of the turn where the policy did not write it,
the template's glue, the messages, the next header); conversations are frozen, so that branches share their past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gfcr.errors import DataError
from gfcr.generate.chat import ASSISTANT, Chat, said_by, text_of
from gfcr.types import Message, Node, Path, Rollout, Segment, SegmentKind, StopReason, derive_id, path_ids


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """Messages and the tokens they became."""

    chat: Chat
    messages: tuple[Message, ...]
    """The chat as text; answers decoded, without the control token that ended them."""
    path: Path
    stop: StopReason | None = None
    """How the last answer ended; None before the first."""
    turn: int = 0
    """Answers so far."""

    @classmethod
    def start(cls, chat: Chat, messages: Sequence[Message], id: str = "prompt") -> Conversation:
        """A chat before the policy's first answer; `id` names the prompt's node. Raises DataError."""
        ids = np.asarray(chat.prompt(messages), np.int32)
        node = Node(id, None, Segment(SegmentKind.PROMPT, ids, template=chat.id))
        return cls(chat, tuple(messages), (node,))

    def said(self, rollout: Rollout) -> Conversation:
        """After an answer: `rollout` was sampled from `path`. Raises ValueError for another path's rollout."""
        known = len(self.path)
        if [n.id for n in rollout.path[:known]] != [n.id for n in self.path]:
            raise ValueError(f"rollout {rollout.id} does not continue this conversation: its path begins otherwise")
        new = tuple(_in_turn(node, self.turn) for node in rollout.path[known:])
        text, messages = self._text(new), self.messages
        if messages and messages[-1].role == ASSISTANT:  # it went on with an answer that was begun
            text, messages = text_of(messages[-1]) + text, messages[:-1]
        return replace(
            self,
            messages=(*messages, said_by(ASSISTANT, text)),
            path=self.path + new,
            stop=rollout.stop,
            turn=self.turn + 1,
        )

    def heard(self, new: Sequence[Message], author: str = "environment", id: str = "") -> Conversation:
        """After the environment's messages, which are rendered jointly; `id` names the new node (derived when empty). Raises
        DataError when the template refuses or hides them, ValueError before the first answer."""
        if not new or self.stop is None or self.messages[-1].role != ASSISTANT:
            raise ValueError("an observation is one or more messages after an answer")
        tail = self.chat.after(self.messages[:-1], new)
        codec, last = self.chat.codec, self._last()
        messages, before = self.messages, None
        found = codec.leading(tail)
        if found is not None and last == found[0]:
            before, tail = last, tail[found[1] :]
        elif self.stop is StopReason.STOP_STRING and (already := _overlap(text_of(messages[-1]), tail)):
            tail = tail[already:]
            messages = (*messages[:-1], said_by(ASSISTANT, text_of(messages[-1])[:-already]))
        ids = codec.encode_after(tail, before)
        if not ids:
            raise DataError(
                f"the model's chat template hides messages of the role {new[0].role!r}", "use roles the template knows"
            )
        segment = Segment(
            SegmentKind.OBSERVATION, np.asarray(ids, np.int32), turn=self.turn, author=author, template=self.chat.id
        )
        node = Node(id or derive_id("observation", self.path[-1].id, segment.ids.tobytes()), self.path[-1].id, segment)
        return replace(self, messages=(*messages, *new), path=(*self.path, node))

    def ids(self) -> np.ndarray:
        """int32[n]: all tokens."""
        return path_ids(self.path)

    def tally(self) -> dict[SegmentKind, int]:
        """Tokens by kind; they sum to the length."""
        out = Counter[SegmentKind]()
        for node in self.path:
            out[node.segment.kind] += len(node.segment)
        return dict(out)

    def _last(self) -> int | None:
        """The last token, if the policy wrote it."""
        segment = self.path[-1].segment
        return int(segment.ids[-1]) if segment.kind is SegmentKind.ACTION and len(segment) else None

    def _text(self, new: Path) -> str:
        ids = path_ids(new)
        if len(ids) and int(ids[-1]) in self.chat.codec.control_ids:
            ids = ids[:-1]
        return self.chat.codec.text_after(self.ids(), ids) if len(ids) else ""


def _in_turn(node: Node, turn: int) -> Node:
    return node if node.segment.turn == turn else replace(node, segment=replace(node.segment, turn=turn))


def _overlap(said: str, tail: str) -> int:
    """Characters of `tail` that `said` ends with already: a stop string that is the template's own next words."""
    return next((n for n in range(min(len(said), len(tail)), 0, -1) if said.endswith(tail[:n])), 0)
