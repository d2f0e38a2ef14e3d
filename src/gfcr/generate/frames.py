"""What a template puts around messages, kept as a frame, so that it need not be run for every turn.

Invariants: a frame is used only where it gives what the template gives: it is found by rendering messages of odd contents and proven
on others; a text that could make the template do something else (one that holds a word the template compares with, spells a control
token, or is blank) is rendered by the template itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gfcr.generate.shown import said_by, text_of
from gfcr.types import Message

_AS_JSON, _AS_IT_IS, _STRIPPED = range(3)
_FORMS: tuple[Callable[[str], str], ...] = (lambda t: json.dumps(t, ensure_ascii=False), str, str.strip)
"""What templates do with a content, the form that contains the next first."""
_CONTENT, _NAME, _ID = range(3)
Slot = tuple[int, int, int]
"""Message, field, form."""
Rendered = Callable[[Sequence[Message]], str]


@dataclass(frozen=True, slots=True)
class Frame:
    """Texts of a template, and between them what messages put there."""

    pieces: tuple[str | Slot, ...]

    def filled(self, new: Sequence[Message]) -> str:
        return "".join(
            piece if isinstance(piece, str) else _FORMS[piece[2]](_field(new[piece[0]], piece[1])) for piece in self.pieces
        )


def frame_of(new: Sequence[Message], rendered: Rendered) -> Frame | None:
    """The frame of messages of these roles, names and ids; None where the template does with them what no frame says. `rendered`
    may raise DataError, like the template."""
    odd = _odd(new, "A")
    text = rendered(odd)
    slots: dict[str, Slot] = {}
    for i, message in enumerate(odd):
        content = text_of(message)
        form = next((form for form, apply in enumerate(_FORMS) if text.count(apply(content)) == 1), None)
        if form is None:
            return None
        slots[_FORMS[form](content)] = (i, _CONTENT, form)
        slots |= {value: (i, field, _AS_IT_IS) for field in (_NAME, _ID) if (value := _field(message, field))}
    parts = re.split("(" + "|".join(map(re.escape, sorted(slots, key=len, reverse=True))) + ")", text)
    frame = Frame(tuple(slots.get(part, part) for part in parts if part))
    other = _odd(new, "B")
    return frame if frame.filled(other) == rendered(other) else None


def words_compared(template: str) -> re.Pattern[str] | None:
    """Pattern of the texts that a template compares contents with, splits them at or looks for; None where it cannot be read. Names
    of roles are compared with roles and do not count."""
    import jinja2
    from jinja2 import nodes

    try:
        tree = jinja2.Environment(extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"]).parse(template)
    except jinja2.TemplateSyntaxError:
        return None
    words: set[str] = set()
    for node in tree.find_all((nodes.Compare, nodes.Call, nodes.Filter, nodes.Test)):
        if isinstance(node, nodes.Compare) and _is_role(node.expr):
            continue
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
            continue  # raise_exception, namespace, range: functions, no methods of a text
        for word in node.find_all(nodes.Const):
            if isinstance(word.value, str) and word.value:
                words.add(word.value)
    return re.compile("|".join(map(re.escape, sorted(words))) if words else r"(?!)")


def _is_role(node: object) -> bool:
    from jinja2 import nodes

    if isinstance(node, nodes.Getattr):
        return node.attr == "role"
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == "role"


def _field(message: Message, field: int) -> str:
    if field == _CONTENT:
        return text_of(message)
    return (message.name if field == _NAME else message.call_id) or ""


def _odd(new: Sequence[Message], letter: str) -> list[Message]:
    """The messages with contents that no form leaves alone, unique names, and unique ids of the same length and letters."""
    out = []
    for i, message in enumerate(new):
        content = f" \t\"é\\{letter}<&{i}q7'> \n"
        made = replace(message, parts=said_by(message.role, content).parts)
        if message.name is not None:
            made = replace(made, name=f"{letter}q7name{i}")
        if message.call_id is not None:
            made = replace(made, call_id=odd_id(message.call_id, letter, i))
        out.append(made)
    return out


def odd_id(id: str, letter: str, number: int) -> str:
    """An id of the same length, letters and digits only."""
    return (letter + "q7" + str(number) * len(id))[: len(id)] if len(id) > 3 else id
