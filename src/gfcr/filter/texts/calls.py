"""Tool calls in an answer's text, and the names and arguments in them.

Calls stand in `<tool_call>` (Hermes, Qwen), after `<|python_tag|>` or `[TOOL_CALLS]`, in a fenced block, or are the whole answer; as JSON
with a name and arguments (also `parameters`, or inside `function`). Invariants: linear in the text; what is found is text or plain data,
nothing is executed; a call is taken whole or not at all.
"""

from __future__ import annotations

import re
from typing import Any

from gfcr.filter.texts.fences import blocks
from gfcr.filter.texts.values import NoValue, strict
from gfcr.filter.verdicts import short

TAGGED = re.compile(
    r"<(tool_call|function_call|tool_calls|functioncall)\s*>|<\|(?:python_tag|tool_call_start)\|>|\[TOOL_CALLS\]", re.IGNORECASE
)
_ENDS = re.compile(
    r"</(?:tool_call|function_call|tool_calls|functioncall)\s*>|<\|(?:tool_call_end|eom_id|eot_id|im_end)\|>|</s>",
    re.IGNORECASE,
)
MOST = 100
"""Calls looked at."""


class NoCall(ValueError):
    """A value that is no call; the message says why."""


def tagged(text: str) -> list[str]:
    """The texts of the calls that a tag marks, at most MOST."""
    found: list[str] = []
    at = 0
    while len(found) < MOST and (mark := TAGGED.search(text, at)) is not None:
        end = _ENDS.search(text, mark.end())
        nearest = TAGGED.search(text, mark.end())
        stop = min(m.start() for m in (end, nearest) if m) if end or nearest else len(text)
        inner = text[mark.end() : stop].strip()
        fenced = blocks(inner)
        parts = [fenced[0].text if fenced else inner]
        if mark[1] is None and "\n" in inner and not fenced and inner[:1] == "{":
            parts = [line for line in inner.splitlines() if line.strip()] if _lines(inner) else parts
        found += parts
        at = max(stop, mark.end())
    return found


def bare(text: str) -> list[str]:
    """The texts of calls without a tag, at most MOST: fenced blocks that look like calls; else the whole text where it does."""
    looks = [b.text for b in blocks(text) if b.language in ("json", "tool_call", "tool_calls", "") and _call_like(b.text)]
    return looks[:MOST] or ([text] if _call_like(text) else [])


def written(text: str) -> list[str]:
    """The texts of the calls, at most MOST: tagged ones; else bare ones."""
    return tagged(text) or bare(text)


def named(call: Any) -> tuple[str, dict[str, Any]]:
    """(name, the object that holds the arguments) of a call's value. Raises NoCall."""
    inner = call.get("function", call) if isinstance(call, dict) else None
    if isinstance(inner, str):  # {"function": "name", "parameters": {...}}
        inner = {**call, "name": inner}
    if not isinstance(inner, dict):
        raise NoCall(f"{short(call)} is no object with a name")
    name = inner.get("name", inner.get("tool_name", inner.get("tool")))
    if not isinstance(name, str) or not name:
        raise NoCall("it names no tool")
    return name, inner


def arguments(inner: dict[str, Any]) -> dict[str, Any]:
    """The arguments in what `named` gives, numbers as Decimal where they have a fraction. Raises NoCall."""
    given: Any = next((inner[k] for k in ("arguments", "parameters", "args", "input") if k in inner), {})
    if isinstance(given, str):
        try:
            given = strict(given) if given.strip() else {}
        except NoValue as error:
            raise NoCall(f"its arguments are no JSON: {error}") from None
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise NoCall(f"its arguments are {short(given)}, not an object")
    return given


def _lines(text: str) -> bool:
    """Whether each line is a value of its own."""
    for line in text.splitlines():
        if line.strip():
            try:
                strict(line)
            except NoValue:
                return False
    return True


_LIKE = re.compile(r"\s*(?:\[\s*)?\{\s*[\"'](?:name|function|tool|tool_name|type|id|arguments|parameters)[\"']\s*:")


def _call_like(text: str) -> bool:
    return _LIKE.match(text) is not None and re.search(r"[\"'](?:name|function|tool|tool_name)[\"']\s*:", text) is not None
