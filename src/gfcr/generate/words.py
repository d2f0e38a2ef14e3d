"""Texts of guidance as tokens of one model, through its chat template where the task is a chat. Invariant: a text that spells a control
token stays plain characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gfcr.context import Build
from gfcr.context import Words as WordsProtocol
from gfcr.errors import ConfigError, DataError
from gfcr.generate.chat import text_of
from gfcr.generate.render import TokenizerRenderer
from gfcr.types import Message, Part, PartKind, Segment, Task, derive_id

_NAMES = re.compile(r"\{[a-z]+\}")


class Words:
    """See `gfcr.context.Words`; over a recipe's renderer."""

    def __init__(self, renderer: TokenizerRenderer, eos: Sequence[int]) -> None:
        """`eos`: the recipe's end tokens, the model's own first."""
        self.renderer, self.eos = renderer, tuple(eos)

    def prompt(self, task: Task) -> Segment:
        return self.renderer.fresh(task)

    def after(self, text: str) -> np.ndarray:
        return np.asarray(self.renderer.codec.plain(text), np.int32)

    def text(self, ids: np.ndarray) -> str:
        return self.renderer.codec.answer(ids)

    def end(self, task: Task) -> int | None:
        turn = self.renderer.turn_end if self.renderer.messages(task) is not None else None
        own = self.renderer.tokenizer.eos_token_id
        return turn if turn is not None else int(own) if own is not None else self.eos[0] if self.eos else None


def told(task: Task, template: str, **more: str) -> Task:
    """The task with another question: `template` with `{prompt}` and what `more` names put in; of a chat, the last user message is
    changed."""
    prompt = task.prompt
    if isinstance(prompt, str):
        changed: str | tuple[Message, ...] = filled(template, prompt=prompt, **more)
    else:
        at = max((i for i, message in enumerate(prompt) if message.role == "user"), default=len(prompt) - 1)
        new = (Part(PartKind.TEXT, filled(template, prompt=text_of(prompt[at]), **more)),)
        changed = (*prompt[:at], replace(prompt[at], parts=new), *prompt[at + 1 :])
    return replace(task, prompt=changed, id=derive_id("told", task.id, template, *more.values()))


def filled(template: str, **values: str) -> str:
    """`{name}` replaced by its value, each once and none inside another's value; other braces stay."""
    parts = [template]
    for name, value in values.items():
        mark = "{" + name + "}"
        out: list[str] = []
        for i, part in enumerate(parts):
            pieces = part.split(mark) if i % 2 == 0 else [part]
            out.append(pieces[0])
            for piece in pieces[1:]:
                out += [value, piece]
        parts = out
    return "".join(parts)


def needs(template: str, where: str, *names: str) -> str:
    """The template. Raises ConfigError when it lacks one of `{name}`."""
    if lacking := [name for name in names if "{" + name + "}" not in template]:
        raise ConfigError(f"{where} = {template!r} has no {{{lacking[0]}}}", f"put {{{lacking[0]}}} where it belongs")
    return template


def writable(build: Build, texts: Mapping[str, str]) -> None:
    """Raise ConfigError for a text of a recipe (`setting -> text`) that the model's tokenizer cannot write; `{name}` aside. Without the
    run's words `build.lacks` is asked, and with neither nothing is refused."""
    for where, text in texts.items():
        if any(_lacks(build, part) for part in _NAMES.split(text)):
            raise ConfigError(
                f"{where} = {text!r} has characters that the model's tokenizer does not know",
                f"set {where} to a text in the model's alphabet, or name another model (model.path)",
            )


def _lacks(build: Build, text: str) -> bool:
    if build.words is None:
        return build.lacks is not None and build.lacks(text)
    try:
        build.words.after(text)
    except DataError:
        return True
    return False


def words_of(build: Build, who: str) -> WordsProtocol:
    """The run's words. Raises ConfigError where a method that writes texts was built without a tokenizer."""
    if build.words is None:
        raise ConfigError(
            f"{who} writes texts, and it was built without a tokenizer", "give Build its words (generate/words.py)"
        )
    return build.words
