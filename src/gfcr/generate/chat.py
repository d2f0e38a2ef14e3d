"""Chat messages to token ids through a model's own template.

Invariants: a prompt's ids are those of the tokenizer's own rendering (what trainers do by default), except that texts that spell
a control token stay texts; what comes after an answer is rendered from the whole chat, several messages jointly, and encoded
by itself, so that the answer's tokens are never touched; nothing of a message is left out silently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from gfcr.errors import ConfigError, DataError
from gfcr.generate.codec import PLACE, Codec
from gfcr.types import Message, Part, PartKind, derive_id

ASSISTANT = "assistant"
_OURS = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
"""Template variables that are not the recipe's to set."""


def said_by(role: str, text: str) -> Message:
    """A message of one text."""
    return Message(role, (Part(PartKind.TEXT, text),))


def text_of(message: Message) -> str:
    """A message's text. Raises DataError for media: this renderer would lose them."""
    if media := [part.kind for part in message.parts if part.kind is not PartKind.TEXT]:
        raise DataError(
            f"a {message.role} message holds {media[0]}, and this model reads text only",
            "take tasks without media, or a model and an engine that read them",
        )
    return "".join(part.text or "" for part in message.parts)


class Chat:
    """A tokenizer's chat template with the recipe's variables."""

    def __init__(self, codec: Codec, variables: Mapping[str, Any] | None = None) -> None:
        """Raises ConfigError when the tokenizer has no template, or for a variable that the template does not read."""
        template = getattr(codec.tokenizer, "chat_template", None)
        if not template:
            raise ConfigError(
                "the tokenizer has no chat template, so chat messages cannot become a prompt",
                "use a model with a chat template (a chat_template.jinja beside its tokenizer), or tasks with text prompts",
            )
        self.codec, self.variables = codec, dict(variables or {})
        source = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
        set_ = [json.dumps(self.variables, sort_keys=True)] if self.variables else []
        self.id = derive_id("template", source, *set_)
        """Hash of the template and of the variables that are set, recorded in segments."""
        _check_variables(template if isinstance(template, str) else "\n".join(template.values()), self.variables)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a chat up to where the policy goes on: after a new turn's header, or inside a last assistant message (a
        prefix to be continued). Raises DataError for messages that the template refuses."""
        if messages and messages[-1].role == ASSISTANT:
            opened = self._dicts(messages)
            opened[-1]["content"] += PLACE
            return self.codec.encode(self._split(self._render(opened, ask=False))[0])
        return self.codec.encode(self.render(messages, ask=True))

    def render(self, messages: Sequence[Message], ask: bool) -> str:
        """Marked text of a chat; `ask`: with the header of the turn to come."""
        return self._render(self._dicts(messages), ask)

    def after(self, before: Sequence[Message], new: Sequence[Message]) -> str:
        """Marked text from right after an answer to the header of the next one: what the template puts at an answer's end and
        then `new`, rendered jointly. `before`: the chat up to the answer. Raises DataError when the template shows no answer,
        or not as it is."""
        if any(message.role == ASSISTANT for message in new):
            raise DataError(
                "an observation holds an assistant message", "only the policy speaks as assistant; use another role"
            )
        answer = {"role": ASSISTANT, "content": PLACE}
        return self._split(self._render([*self._dicts(before), answer, *self._dicts(new)], ask=True))[1]

    @cached_property
    def end(self) -> int | None:
        """The control token that the template puts at an answer's end; None when it puts none."""
        chat = [{"role": "user", "content": "a"}, {"role": ASSISTANT, "content": PLACE}]
        try:
            tail = self._split(self._render(chat, ask=False))[1]
        except DataError:
            return None
        found = self.codec.leading(tail)
        return None if found is None else found[0]

    def _dicts(self, messages: Sequence[Message]) -> list[dict[str, str]]:
        return [
            {"role": m.role, "content": self.codec.shielded(text_of(m))} | ({"name": m.name} if m.name else {})
            for m in messages
        ]

    def _render(self, messages: list[dict[str, str]], ask: bool) -> str:
        try:
            text = self.codec.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=ask, **self.variables
            )
        except Exception as error:  # templates raise whatever they like
            roles = ", ".join(m["role"] for m in messages) or "none"
            raise DataError(
                f"the model's chat template refuses the messages (roles: {roles}): {error}",
                "give messages in the order the template wants; some take no system message",
            ) from None
        return self.codec.unshielded(self.codec.marked(str(text)))

    @staticmethod
    def _split(text: str) -> tuple[str, str]:
        """What stands before and after the one PLACE."""
        if text.count(PLACE) != 1:
            raise DataError(
                f"the model's chat template shows an assistant's text {text.count(PLACE)} times instead of once",
                "use a template that shows each assistant message once, as it is",
            )
        before, _, after = text.partition(PLACE)
        return before, after


def _check_variables(template: str, variables: Mapping[str, Any]) -> None:
    if not variables:
        return
    import jinja2
    from jinja2 import meta

    if ours := sorted(_OURS & set(variables)):
        raise ConfigError(f"generate.prompt.template sets {ours[0]!r}, which the renderer sets itself", "take it out")
    try:
        read = meta.find_undeclared_variables(jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(template))
    except jinja2.TemplateSyntaxError:  # a tag that only transformers knows: nobody can say what it reads
        return
    if unread := sorted(set(variables) - read):
        known = ", ".join(sorted(read - _OURS)) or "none"
        raise ConfigError(
            f"the model's chat template does not read the variable {unread[0]!r} (generate.prompt.template)",
            f"correct or remove it; it reads: {known}",
        )
