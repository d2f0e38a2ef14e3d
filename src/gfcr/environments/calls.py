"""A turn's text as what the policy wants done: reading tool calls.

Invariants: only what the policy says outside its thoughts is a call; a call that cannot be read says why in `Said.invalid`, and the others
stand; a call ends at the first closing tag, as in the models' own parsers; nothing here raises for any text; the text itself stays whole
in `Said.text`.
"""

from __future__ import annotations

from typing import Any, Literal

from gfcr.environments.contract import Said, ToolCall
from gfcr.filter.texts.calls import MOST, NoCall, arguments, bare, named, tagged
from gfcr.filter.texts.fences import blocks
from gfcr.filter.texts.spoken import spoken
from gfcr.filter.texts.stated import statements
from gfcr.filter.texts.values import NoValue, lenient, plain, strict

Format = Literal["hermes", "llama", "any", "python", "sql", "text"]
"""How calls are written. `hermes` (also Qwen): JSON in `<tool_call>` tags; `llama`: JSON after `<|python_tag|>` or alone as the whole turn,
several apart by `;` or line breaks; `any`: either, and JSON in a fenced block; `python`, `sql`: a fenced block of that language is a call
with the block as its one argument (a block without a language counts where no other is there), and a turn with `<answer>` has none; `text`: there are no calls."""
LANGUAGES = {
    "python": ("python", "py", "python3", "ipython", "tool_code"),
    "sql": ("sql", "sqlite", "sqlite3"),
}


def read(text: str, how: Format, tool: str = "", argument: str = "", mend: bool = True) -> Said:
    """What a turn's text says. `tool`, `argument`: whose block a fenced block is, for the formats that are a language. `mend`: read single
    quotes, trailing commas and Python's literals, too."""
    if how == "text":
        return Said(text)
    zone = spoken(text)[0]
    if how in LANGUAGES and any(statement.kind == "tags" for statement in statements(zone)):
        return Said(text)  # a final answer, which may hold a block
    if how in LANGUAGES:
        return Said(text, tuple(ToolCall(tool, {argument: code}) for code in _fenced(zone, how)))
    found = tagged(zone) if how == "hermes" else _alone(zone) if how == "llama" else tagged(zone) or bare(zone)
    calls: list[ToolCall] = []
    invalid = ""
    for place in found[:MOST]:
        try:
            value = (lenient if mend else strict)(place)
            for call in value if isinstance(value, list) else [value]:
                calls.append(_call(call))
        except NoValue as error:
            invalid = invalid or f"bad_json: {str(error)[:160]}"
        except NoCall as error:
            invalid = invalid or f"no_call: {str(error)[:160]}"
    return Said(text, tuple(calls[:MOST]), invalid)


def _call(value: Any) -> ToolCall:
    """Raises NoCall."""
    name, inner = named(value)
    given = value.get("id", value.get("call_id", ""))
    return ToolCall(name, plain(arguments(inner)), given if isinstance(given, str) else "")


def _fenced(zone: str, language: str) -> list[str]:
    found = blocks(zone)
    own = [block for block in found if block.language in LANGUAGES[language]]
    return [block.text for block in own or [block for block in found if not block.language] if block.text.strip()][:MOST]


def _alone(zone: str) -> list[str]:
    """JSON behind a tag; else the whole turn, as one value or as several apart by `;` or line breaks."""
    if marked := tagged(zone):
        text = "\n".join(marked).strip()
    else:
        text = zone.strip()
        if text[:1] not in "{[" or not bare(text):
            return []
    try:
        lenient(text)
        return [text]
    except NoValue:
        parts = [part.strip().rstrip(";").strip() for part in text.replace("};", "}\n").splitlines()]
        parts = [part for part in parts if part]
        return parts if len(parts) > 1 and all(part[:1] == "{" for part in parts) else [text]
