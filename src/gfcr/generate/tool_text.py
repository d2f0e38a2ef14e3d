"""Tools for templates that have none: schemas, calls and results as text (`generate.prompt.tools = "text"`).

The words are those of the Hermes function-calling format (NousResearch), which many models know: `<tools>`, `<tool_call>`,
`<tool_response>`. Invariants: results of one step stand in one user's message, and messages of one user in a row are one, so that
roles alternate; nothing is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from gfcr.generate.shown import ASSISTANT, TOOL_ROLES, said_by, text_of
from gfcr.types import Message, ToolCall

_GAP = "\n\n"


def spoken(messages: Sequence[Message], tools: Sequence[str] = ()) -> tuple[Message, ...]:
    """Messages without tools, calls and results as such. `tools` are told in the system message if there is one, else at the
    beginning of the first user's message."""
    out: list[Message] = []
    for message in messages:
        if message.role in TOOL_ROLES:
            message = said_by("user", result_text(message))
        elif message.role == ASSISTANT and message.calls:
            parts = [text_of(message), *map(call_text, message.calls)]
            message = said_by(ASSISTANT, "\n".join(part for part in parts if part))
        if out and out[-1].role == message.role == "user":
            message = replace(message, parts=said_by("user", text_of(out.pop()) + _GAP + text_of(message)).parts)
        out.append(message)
    if tools:
        first = next((i for i, m in enumerate(out) if m.role in ("system", "developer")), None)
        if first is not None:
            out[first] = replace(out[first], parts=said_by("system", text_of(out[first]) + _GAP + tools_text(tools)).parts)
        else:
            first = next((i for i, m in enumerate(out) if m.role == "user"), 0)
            out[first] = replace(out[first], parts=said_by("user", tools_text(tools) + _GAP + text_of(out[first])).parts)
    return tuple(out)


def tools_text(tools: Sequence[str]) -> str:
    """What tells a model of its tools; `tools`: JSON schemas as text."""
    schemas = "\n".join(tools)
    form = '{"name": <name of the tool>, "arguments": <its arguments as a JSON object>}'
    return (
        f"You may call tools. Their JSON schemas:\n<tools>\n{schemas}\n</tools>\n"
        f"To call one, write:\n<tool_call>\n{form}\n</tool_call>\n"
        "Several calls may follow one another; each result comes back inside <tool_response>."
    )


def call_text(call: ToolCall) -> str:
    body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def result_text(message: Message) -> str:
    return f"<tool_response>\n{text_of(message)}\n</tool_response>"
