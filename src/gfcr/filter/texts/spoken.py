"""The part of an answer that is said to the reader. Invariants: offsets stay (what is left out becomes blanks); linear in the text;
what stands inside `<think>...</think>` is never a final answer.
"""

from __future__ import annotations

import re

_THINK = re.compile(r"<(/?)(?:think|thinking|thought|thoughts|reasoning|scratchpad)\s*>", re.IGNORECASE)
_ANSWER = re.compile(r"<(?:answer|final_answer)\s*>", re.IGNORECASE)
_CONTROL = re.compile(r"<\|(?:im_end|im_start|endoftext|end_of_text|eot_id|end|eom_id)\|>|</s>|<end_of_turn>")


def spoken(text: str) -> tuple[str, ...]:
    """The zones to look for a final answer in, best first, each as long as `text`.

    The first is what stands outside thinking and before the first control token of a chat. Where thinking is closed but never
    opened (the template opened it), what stands before is a second zone: an answer there counts when the first zone has none.
    A line break is `\\n` everywhere, a byte order mark a blank.
    """
    text = text.replace("\ufeff", " ").replace("\r\n", " \n").replace("\r", "\n")
    for token in _CONTROL.finditer(text):
        if text[: token.start()].strip():
            text = text[: token.start()] + " " * (len(text) - token.start())
            break
    hidden: list[tuple[int, int]] = []
    opened: int | None = None
    implied: tuple[int, int] | None = None
    for token in _THINK.finditer(text):
        if not token[1]:
            opened = token.start() if opened is None else opened
        elif opened is not None:
            hidden.append((opened, token.end()))
            opened = None
        elif not hidden:
            implied = token.span()
    if opened is not None:  # never closed: an answer in tags ends it all the same
        tags = [m.start() for m in _ANSWER.finditer(text, opened)]
        hidden.append((opened, tags[-1] if tags else len(text)))
    zone = _blank(text, hidden)
    if implied is None:
        return (zone,)
    return _blank(zone, [(0, implied[1])]), _blank(zone, [(implied[0], len(text))])


def _blank(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with `spans` (in order, apart) as line breaks."""
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], "\n" * (end - start)]
        at = end
    return "".join([*parts, text[at:]])
