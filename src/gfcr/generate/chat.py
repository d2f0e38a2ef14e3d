"""Chat messages to token ids through a model's own template.

Invariants: a prompt's ids are those of the tokenizer's own rendering (what trainers do by default), except that texts that spell
a control token stay texts, also in tool results, arguments and schemas; what comes after an answer is rendered in one, several
messages jointly, and encoded by itself, so that the answer's tokens are never touched; nothing of a message is left out silently.

What a template puts after an answer depends, for most, on nothing before it. So it is rendered behind a chat of one question
instead of the whole chat, after it was seen once, for the same kind of step at the same depth, that the whole chat gives the same;
where it does not, the whole chat is rendered each time. Where a frame (frames.py) says what it puts there, not even that is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from gfcr.errors import ConfigError, DataError
from gfcr.generate.codec import PLACE, Codec
from gfcr.generate.frames import Frame, frame_of, words_compared
from gfcr.generate.shown import ASSISTANT, TOOL_ROLES, deep, roles_of, said_by, table, text_of
from gfcr.generate.tool_text import spoken
from gfcr.generate.tool_turns import ToolTurns, after_end, tool_turns
from gfcr.types import Message, derive_id

__all__ = ["ASSISTANT", "Chat", "said_by", "text_of"]
_OURS = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
"""Template variables that are not the recipe's to set."""
_MOST_KEPT = 4096
"""Kinds of steps remembered; beyond them the whole chat is rendered."""
_QUESTION = {"role": "user", "content": "a"}
_SEEN = "7q7q"


class Chat:
    """A tokenizer's chat template with the recipe's variables."""

    def __init__(
        self, codec: Codec, variables: Mapping[str, Any] | None = None, tools: Literal["template", "text"] = "template"
    ) -> None:
        """`tools`: whether the template shows tools, calls and results, or they are told as text (tool_text.py). Raises ConfigError
        when the tokenizer has no template, or for a variable that the template does not read."""
        template = getattr(codec.tokenizer, "chat_template", None)
        if not template:
            raise ConfigError(
                "the tokenizer has no chat template, so chat messages cannot become a prompt",
                "use a model with a chat template (a chat_template.jinja beside its tokenizer), or tasks with text prompts",
            )
        self.codec, self.variables, self.tools = codec, dict(variables or {}), tools
        source = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
        set_ = [json.dumps(self.variables, sort_keys=True)] if self.variables else []
        self.id = derive_id("template", source, *set_, *(["tools as text"] if tools == "text" else []))
        """Hash of the template and of the variables that are set, recorded in segments."""
        self._source = template if isinstance(template, str) else "\n".join(template.values())
        _check_variables(self._source, self.variables)
        self._steps: dict[tuple[Any, ...], Frame | bool] = {}
        """Kind of step -> its frame; True = the template behind one question; False = behind the whole chat."""
        self._schemas: dict[tuple[str, ...], list[Any]] = {}

    def prompt(self, messages: Sequence[Message], tools: tuple[str, ...] = ()) -> list[int]:
        """Ids of a chat up to where the policy goes on: after a new turn's header, or inside a last assistant message (a
        prefix to be continued). `tools`: JSON schemas as text. Raises DataError for messages that the template refuses, and for
        tools that it does not show."""
        opened = bool(messages) and messages[-1].role == ASSISTANT
        if opened and messages[-1].calls:
            raise DataError("the last message of the prompt calls tools", "end the prompt with their results")

        def text(messages: Sequence[Message], tools: tuple[str, ...]) -> str:
            if not opened:
                return self.render(messages, True, tools)
            tables = self._tables(messages, tools)
            tables[-1]["content"] += PLACE
            return self._split(self._render(tables, False, self._shown_tools(tools)))[0]

        made = text(messages, tools)
        if self.tools == "template":
            hidden = "tools" if tools and made == text(messages, ()) else ""
            for i, message in enumerate(messages):
                if message.calls and made == text([*messages[:i], replace(message, calls=()), *messages[i + 1 :]], tools):
                    hidden = "tool calls"
                elif message.role in TOOL_ROLES and text_of(message):
                    blank = replace(message, parts=())
                    hidden = "results of tools" if made == text([*messages[:i], blank, *messages[i + 1 :]], tools) else hidden
            if hidden:
                raise DataError(
                    f"the task has {hidden}, and the model's chat template does not show them",
                    'use a model whose template has tools, or set generate.prompt.tools = "text"',
                )
        return self.codec.encode(made)

    def render(self, messages: Sequence[Message], ask: bool, tools: tuple[str, ...] = ()) -> str:
        """Marked text of a chat; `ask`: with the header of the turn to come."""
        return self._render(self._tables(messages, tools), ask, self._shown_tools(tools))

    # ---- what comes after an answer ----------------------------------------------------------------------------

    def after(
        self, before: Sequence[Message], answer: Message, new: Sequence[Message], tools: tuple[str, ...] = (), asked: int = 0
    ) -> str:
        """Marked text from right after an answer to the header of the next one: what the template puts at an answer's end and
        then `new` (as of `taken`), rendered jointly. `before`: the chat up to the answer, of which `asked` messages were the
        prompt. Raises DataError when the template shows no answer, or not as it is, or hides what is new."""
        if any(message.role == ASSISTANT for message in new):
            raise DataError(
                "an observation holds an assistant message", "only the policy speaks as assistant; use another role"
            )
        key = (len(before) if len(before) < 8 else 8 + len(before).bit_length(), bool(answer.calls), tools, *map(_kind, new))
        step = self._steps.get(key)
        if isinstance(step, Frame) and all(map(self._plainly, new)):
            return step.filled(new)
        if step:
            return self._tail([_QUESTION], answer, self._tables(new), None)
        whole, schemas = self._tables([*before[:asked], *map(self.own, before[asked:])], tools), self._shown_tools(tools)
        tail = self._tail(whole, answer, self._tables(new), schemas)
        if step is None:
            self._check_shown(whole, answer, new, schemas)
            if len(self._steps) < _MOST_KEPT:
                self._steps[key] = self._step(answer, new, tail)
        return tail

    def _step(self, answer: Message, new: Sequence[Message], tail: str) -> Frame | bool:
        """How a step of this kind may be rendered, whose tail behind the whole chat is known."""
        try:
            if tail != self._tail([_QUESTION], answer, self._tables(new), None):
                return False
        except DataError:
            return False
        calls, ids = answer.calls, [message.call_id for message in new]
        if self._words is None or (calls and len(calls) != len(new)):
            return True

        def rendered(odd: Sequence[Message]) -> str:
            made = answer
            if calls and any(ids):  # a template may look for the call that a result answers
                made = replace(answer, calls=tuple(replace(c, id=m.call_id or c.id) for c, m in zip(calls, odd)))
            return self._tail([_QUESTION], made, self._tables(odd), None)

        try:
            frame = frame_of(new, rendered)
        except DataError:
            return True
        return True if frame is None or (all(map(self._plainly, new)) and frame.filled(new) != tail) else frame

    def _plainly(self, message: Message) -> bool:
        """Whether no template does anything special with a message's text."""
        text = text_of(message)
        return (
            bool(text.strip())
            and self._words is not None
            and self._words.search(text) is None
            and self.codec.spells(text) is None
            and (message.name is None or (self._words.search(message.name) or self.codec.spells(message.name)) is None)
            and (message.call_id is None or self.codec.spells(message.call_id) is None)
        )

    @cached_property
    def _words(self) -> re.Pattern[str] | None:
        return words_compared(self._source)

    def taken(self, answer: Message, new: Sequence[Message]) -> tuple[Message, ...]:
        """An environment's messages as the template takes them: results under the role it knows, with their calls' ids and names
        (in the order of the calls), as a user's message where it cannot show them as results of this answer."""
        if self.tools == "text":
            return spoken(new)
        results = [message for message in new if message.role in TOOL_ROLES]
        if not results:
            return tuple(new)
        turns = self.tool_turns
        if turns.calls and not answer.calls:
            return spoken(new)
        calls = iter(answer.calls if len(answer.calls) == len(results) else ())
        out = []
        for message in new:
            if message.role in TOOL_ROLES:
                call, role = next(calls, None), turns.role(message.role)
                if call is not None and (message.call_id is None or message.name is None):
                    number = message.call_id if message.call_id is not None else call.id or None
                    message = replace(message, role=role, call_id=number, name=message.name or call.name)
                elif role != message.role:
                    message = replace(message, role=role)
            out.append(message)
        return tuple(out)

    def own(self, message: Message) -> Message:
        """A message of the policy's as the template is shown it: its text whole, calls and all, or what stood before its calls, and
        these as such (ToolTurns.calls)."""
        if not message.calls:
            return message
        if self.tools == "text" or not self.tool_turns.calls:
            return replace(message, calls=())
        text = text_of(message)
        spelled = self.codec.spells(text)
        before = text[: text.find(spelled)].strip() if spelled is not None else ""
        return replace(message, parts=said_by(ASSISTANT, before).parts)

    @cached_property
    def tool_turns(self) -> ToolTurns:
        """What the template does with results of tools. Raises DataError when it shows none."""
        return tool_turns(lambda messages, ask: self._render(messages, ask), self.codec, self._source)

    @cached_property
    def end(self) -> int | None:
        """The control token that the template puts at an answer's end; None when it puts none."""
        try:
            tail = self._split(self._render([_QUESTION, {"role": ASSISTANT, "content": PLACE}], ask=False))[1]
        except DataError:
            return None
        found = self.codec.leading(tail)
        return None if found is None else found[0]

    # ---- inside ------------------------------------------------------------------------------------------------

    def _tables(self, messages: Sequence[Message], tools: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        if self.tools == "text":
            messages = spoken(messages, tools)
        hidden = self.codec.shielded
        return [table(message, hidden) for message in messages]

    def _shown_tools(self, tools: tuple[str, ...]) -> list[Any] | None:
        if not tools or self.tools == "text":
            return None
        found = self._schemas.get(tools)
        if found is None:
            if len(self._schemas) >= _MOST_KEPT:
                self._schemas.clear()
            found = self._schemas[tools] = [deep(json.loads(tool), self.codec.shielded) for tool in tools]
        return found

    def _tail(self, before: list[dict[str, Any]], answer: Message, new: list[dict[str, Any]], tools: list[Any] | None) -> str:
        """What follows the answer in a rendering with it."""
        said: dict[str, Any] = {"role": ASSISTANT, "content": PLACE}
        end = None
        if answer.calls and self.tools == "template" and self.tool_turns.calls:
            end, said = self.tool_turns.end, table(self.own(answer), self.codec.shielded)
            said["tool_calls"][-1]["function"]["name"] = PLACE
        tail: str | None = self._split(self._render([*before, said, *new], True, tools))[1]
        if end is not None:
            tail = after_end(str(tail), self.codec, end)
        if tail is None:
            raise DataError("the model's chat template ends an answer with calls in different ways", "use another template")
        return tail

    def _check_shown(
        self, before: list[dict[str, Any]], answer: Message, new: Sequence[Message], tools: list[Any] | None
    ) -> None:
        """Raises DataError when one of the new messages does not appear."""
        tables = self._tables(new)
        for i, one in enumerate(tables):
            changed = [*tables[:i], one | {"content": _SEEN}, *tables[i + 1 :]]
            if _SEEN not in self._tail(before, answer, changed, tools):
                raise DataError(
                    f"the model's chat template hides messages of the role {one['role']!r}", "use roles the template knows"
                )

    def _render(self, messages: list[dict[str, Any]], ask: bool, tools: list[Any] | None = None) -> str:
        more = self.variables if tools is None else self.variables | {"tools": tools}
        try:
            text = self.codec.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask, **more)
        except Exception as error:  # templates raise whatever they like
            raise DataError(
                f"the model's chat template refuses the messages (roles: {roles_of(messages)}): {error}",
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


def _kind(message: Message) -> tuple[str, bool, tuple[int, bool] | None]:
    """What a template may tell messages apart by, but for their texts."""
    id = message.call_id
    return message.role, message.name is not None, None if id is None else (len(id), id.isascii() and id.isalnum())


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
