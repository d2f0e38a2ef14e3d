"""How a chat template shows tool calls and their results: found by rendering small chats, before the first token.

Invariant: what a template does with a second round of calls is looked at, not only with the first: some demand that roles
alternate, some begin a joint block of results only after a message with calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gfcr.errors import DataError
from gfcr.generate.codec import PLACE, Codec
from gfcr.generate.shown import ASSISTANT, TOOL_ROLES

Render = Callable[[list[dict[str, Any]], bool], str]
"""(tables of messages, with the next header) -> marked text."""
_SEEN = "7q7q"


@dataclass(frozen=True, slots=True)
class ToolTurns:
    """What a template wants of a chat with tools."""

    roles: frozenset[str]
    """Roles of results that it shows: `tool`, and others that it names; never empty."""
    calls: bool
    """Whether an answer with calls is given to it as `tool_calls`. False: as the text the policy wrote, calls and all, which gives
    the same tokens after the answer and leaves the answer in a full rendering as it was sampled."""
    end: int | None
    """Control token at the end of an answer with calls; None where the text's own end serves."""

    def role(self, wanted: str) -> str:
        """The role a result is shown under: the wanted one, if the template has it."""
        return wanted if wanted in self.roles else next(role for role in TOOL_ROLES if role in self.roles)


def tool_turns(render: Render, codec: Codec, source: str) -> ToolTurns:
    """`source`: the template's text. Raises DataError when the template shows no results of tools."""
    end = _end_of_calls(render, codec)
    found: dict[str, bool] = {}
    refusal = ""
    for role in TOOL_ROLES:
        if role != "tool" and role not in source:  # a template that shows any role gives this one no meaning
            continue
        as_text, refused = _tail(render, codec, role, False, None)
        as_calls, _ = _tail(render, codec, role, True, end) if end is not None else (None, "")
        refusal = refusal or refused
        if as_text is not None and as_calls is not None:
            found[role] = as_text != as_calls
        elif as_text is not None or as_calls is not None:
            found[role] = as_text is None
    if not found:
        raise DataError(
            f"the model's chat template shows no results of tools: {refusal or 'it hides them'}",
            'set generate.prompt.tools = "text" (calls and results as text, results in a user\'s message), '
            "or use a model whose template has tools",
        )
    calls = found[next(iter(found))]
    return ToolTurns(frozenset(role for role, own in found.items() if own == calls), calls, end if calls else None)


def _call(name: str) -> dict[str, Any]:
    call = {"type": "function", "id": "call00001", "function": {"name": name, "arguments": {"x": 1}}}
    return {"role": ASSISTANT, "content": "", "tool_calls": [call]}


def _tail(render: Render, codec: Codec, role: str, calls: bool, end: int | None) -> tuple[str | None, str]:
    """(what follows the second of two rounds of calls, ""), or (None, why it cannot be had)."""

    def result(text: str) -> dict[str, Any]:
        return {"role": role, "content": text, "name": "f", "tool_call_id": "call00001"}

    first, second = (_call("f"), _call(PLACE)) if calls else ({"role": ASSISTANT, "content": t} for t in ("b", PLACE))
    try:
        text = render([{"role": "user", "content": "a"}, first, result("r"), second, result(_SEEN)], True)
    except DataError as error:
        return None, error.what
    tail = text.partition(PLACE)[2]
    if text.count(PLACE) != 1 or _SEEN not in tail:
        return None, ""
    return (tail if end is None else after_end(tail, codec, end)), ""


def _end_of_calls(render: Render, codec: Codec) -> int | None:
    """The last control token of an answer with one call, if it stands there once."""
    try:
        text = render([{"role": "user", "content": "a"}, _call(PLACE)], False)
    except DataError:
        return None
    if text.count(PLACE) != 1:
        return None
    tokens = codec.marks_in(text.partition(PLACE)[2])
    return tokens[-1] if tokens and tokens.count(tokens[-1]) == 1 else None


def after_end(tail: str, codec: Codec, end: int) -> str | None:
    """Marked text from an answer's end token on; None where it is not there."""
    at = tail.find(codec.mark(end))
    return None if at < 0 else tail[at:]
