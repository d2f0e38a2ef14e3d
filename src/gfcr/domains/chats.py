"""Prompts of a table: texts, chats with tool calls, and the tools they may call.

Invariant: a field of a message is kept or the row is refused, none is cleared; what a call's arguments and a tool's schema hold
keeps its order, because templates show it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gfcr.domains.conventions import short
from gfcr.domains.rows import fault_in, missing
from gfcr.types import Message, Part, PartKind, ToolCall

_KEPT = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})


def prompt_of(value: Any, column: str) -> str | tuple[Message, ...]:
    """A prompt from a cell; ValueError with the column when it is none."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list) and value:
        messages = tuple(_message(item, column) for item in value)
        if column == "messages" and messages[-1].role == "assistant":
            raise ValueError(f"column {column!r}: the last message is the assistant's; a prompt ends before the answer")
        return messages
    raise ValueError(f"column {column!r}: a prompt is text or a list of chat messages, not {short(value)}")


def tools_of(value: Any, column: str) -> tuple[str, ...]:
    """JSON schemas of the tools in a cell (a list of tables, or JSON text of one); () for an empty cell. ValueError with the column
    for anything else."""
    if missing(value) or value == "":
        return ()
    found = parsed(value)
    if not isinstance(found, list) or not all(isinstance(tool, Mapping) and tool for tool in found):
        raise ValueError(f"column {column!r}: tools are a list of JSON schemas, or JSON text of one, not {short(value)}")
    if wrong := fault_in(found):
        raise ValueError(f"column {column!r}{wrong}")
    return tuple(json.dumps(tool, ensure_ascii=False) for tool in found)


def parsed(value: Any) -> Any:
    """The data that a JSON text spells; a text that spells none, and anything else, as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _message(item: Any, column: str) -> Message:
    """A chat message `{"role", "content"}`, whose content is text or parts `{"type": "text", "text"}`; an assistant's may have
    `tool_calls`, and then no content; a tool's `name` and `tool_call_id`."""
    if isinstance(item, Mapping) and isinstance(item.get("role"), str):
        if lost := [key for key, value in item.items() if key not in _KEPT and value]:
            raise ValueError(f"column {column!r}: a message has {lost[0]!r}, which would be lost: {short(item)}")
        role, call_id = item["role"], item.get("tool_call_id")
        calls = tuple(_call(one, column) for one in item.get("tool_calls") or ())
        if calls and role != "assistant":
            raise ValueError(f"column {column!r}: a {role} message has 'tool_calls'; only an assistant's may: {short(item)}")
        if call_id is not None and not isinstance(call_id, str):
            raise ValueError(f"column {column!r}: a message's 'tool_call_id' is text, not {short(call_id)}")
        content = item.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else [] if content is None else content
        if (
            isinstance(parts, list)
            and (parts or calls)
            and all(isinstance(p, Mapping) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in parts)
        ):
            return Message(role, tuple(Part(PartKind.TEXT, p["text"]) for p in parts), item.get("name"), calls, call_id)
    raise ValueError(f"column {column!r}: a message needs a role and text content, not {short(item)}")


def _call(item: Any, column: str) -> ToolCall:
    """A tool call: `{"id", "type": "function", "function": {"name", "arguments"}}`, or the inner table alone; the arguments as a
    table or its JSON text."""
    inner = item.get("function", item) if isinstance(item, Mapping) else None
    arguments = parsed(inner.get("arguments") or {}) if isinstance(inner, Mapping) else None
    if isinstance(item, Mapping) and isinstance(inner, Mapping) and isinstance(arguments, Mapping):
        known = {"name", "arguments"} if inner is not item else {"name", "arguments", "id", "type"}
        lost = [key for key, value in inner.items() if key not in known and value]
        lost += [key for key, value in item.items() if inner is not item and key not in ("id", "type", "function") and value]
        name, number = inner.get("name"), item.get("id") or ""
        if not lost and isinstance(name, str) and name and isinstance(number, str):
            if wrong := fault_in(arguments):
                raise ValueError(f"column {column!r}: arguments of the call {name!r}{wrong}")
            return ToolCall(name, dict(arguments), number)
    raise ValueError(f"column {column!r}: a tool call has a name and a table of arguments, and nothing else: {short(item)}")
