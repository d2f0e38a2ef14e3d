"""What is read before the first turn besides the prompt. Invariant: a chat's prompt is rendered anew, as a whole, so that the template
decides how messages at its end look; what follows a text prompt is encoded by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gfcr.errors import DataError
from gfcr.generate.dialogue import Dialogue, observation
from gfcr.generate.plain import Transcript
from gfcr.generate.shown import text_of
from gfcr.generate.turns import Conversation
from gfcr.types import Message, Node, Segment, SegmentKind, derive_id


def opened(dialogue: Dialogue, new: Sequence[Message], author: str) -> Dialogue:
    """A dialogue before its first answer, after these messages. Raises DataError for a chat with guidance after its prompt."""
    if not new:
        return dialogue
    if isinstance(dialogue, Transcript):
        ids = dialogue.codec.plain(dialogue.codec.cleaned("".join(map(text_of, new))))
        if not ids:
            return dialogue
        node = observation(dialogue.path, ids, 0, author, None, "")
        return replace(dialogue, path=(*dialogue.path, node), messages=(*dialogue.messages, *new))
    assert isinstance(dialogue, Conversation)
    if len(dialogue.path) > 1:
        raise DataError(
            "an environment says something before the first turn, and guidance stands after the chat's prompt already",
            "leave generate.seed out, or use an environment whose reset says nothing",
        )
    messages, first = (*dialogue.messages, *new), dialogue.path[0]
    prompt = np.asarray(dialogue.chat.prompt(messages, dialogue.tools), np.int32)
    node = Node(
        derive_id("opened", first.id, prompt.tobytes()), None, Segment(SegmentKind.PROMPT, prompt, template=dialogue.chat.id)
    )
    return Conversation.after(dialogue.chat, messages, (node,), dialogue.tools)
