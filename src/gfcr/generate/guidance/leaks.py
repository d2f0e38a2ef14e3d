"""Does a text give the answer away? Invariant: the reference never leaves this module; callers learn that it is there, or get the text
without it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gfcr.types import Task

HIDDEN = "(hidden)"


def question_of(task: Task) -> str:
    """What is asked, as one text: the prompt, or the messages of the user; media are left out."""
    if isinstance(task.prompt, str):
        return task.prompt
    said = [m for m in task.prompt if m.role == "user"] or list(task.prompt)
    return "\n".join(part.text or "" for message in said for part in message.parts)


def answers(task: Task) -> list[str]:
    """Texts that would give the answer away: the reference's final answer, or all texts and numbers of a reference without one."""
    return [text for text in dict.fromkeys(_texts(task.reference)) if text]


def _texts(reference: Any) -> Iterable[str]:
    if isinstance(reference, Mapping):
        inner = [reference[key] for key in ("final", "answer") if key in reference] or list(reference.values())
        for value in inner:
            yield from _texts(value)
    elif isinstance(reference, (list, tuple)):
        for value in reference:
            yield from _texts(value)
    elif isinstance(reference, (str, int, float)) and not isinstance(reference, bool):
        yield str(reference).strip()


def _pattern(answer: str) -> re.Pattern[str]:
    """The answer as a word of its own: `5` is not in `55` nor in `5.2`."""
    return re.compile(rf"(?<![\w.])(?<!\w,){re.escape(answer)}(?![\w])(?!\.\d)", re.IGNORECASE)


def gives_away(text: str, task: Task) -> bool:
    """Whether the text has the task's answer, as words of their own, where the question does not have it already."""
    question = question_of(task)
    return any(_pattern(a).search(text) is not None and _pattern(a).search(question) is None for a in answers(task))


def redacted(text: str, task: Task) -> str:
    """The text with the task's answer hidden, wherever it stands."""
    for answer in sorted(answers(task), key=len, reverse=True):
        text = _pattern(answer).sub(HIDDEN, text)
    return text
