"""Messages as the tables that chat templates read.

Invariant: whatever in them is text (contents, names, arguments and their keys, schemas) has its spellings of control tokens hidden,
so that none becomes a control token, wherever a template puts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gfcr.errors import DataError
from gfcr.types import Message, Part, PartKind, ToolCall

ASSISTANT = "assistant"
TOOL_ROLES = ("tool", "ipython", "function", "tool_results")
"""Roles of what a tool says; families name it differently."""


def said_by(role: str, text: str, calls: Sequence[ToolCall] = ()) -> Message:
    """A message of one text."""
    return Message(role, (Part(PartKind.TEXT, text),), calls=tuple(calls))


def text_of(message: Message) -> str:
    """A message's text. Raises DataError for media: this renderer would lose them."""
    parts = message.parts
    if len(parts) == 1 and parts[0].kind is PartKind.TEXT:
        return parts[0].text or ""
    if media := [part.kind for part in parts if part.kind is not PartKind.TEXT]:
        raise DataError(
            f"a {message.role} message holds {media[0]}, and this model reads text only",
            "take tasks without media, or a model and an engine that read them",
        )
    return "".join(part.text or "" for part in parts)


def table(message: Message, hidden: Callable[[str], str]) -> dict[str, Any]:
    """A message in the form of transformers' templates (role, content, name, tool_calls, tool_call_id); `hidden` is applied to
    every text."""
    made: dict[str, Any] = {"role": message.role, "content": hidden(text_of(message))}
    if message.name:
        made["name"] = hidden(message.name)
    if message.calls:
        made["tool_calls"] = [
            {"type": "function", "function": {"name": hidden(call.name), "arguments": deep(call.arguments, hidden)}}
            | ({"id": hidden(call.id)} if call.id else {})
            for call in message.calls
        ]
    if message.call_id is not None:
        made["tool_call_id"] = hidden(message.call_id)
    return made


def deep(value: Any, hidden: Callable[[str], str]) -> Any:
    """JSON data with every text in it hidden, keys too."""
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, Mapping):
        return {hidden(str(key)): deep(inner, hidden) for key, inner in value.items()}
    return [deep(inner, hidden) for inner in value] if isinstance(value, (list, tuple)) else value


def roles_of(messages: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(m["role"] for m in messages) or "none"
