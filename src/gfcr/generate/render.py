"""Task to prompt tokens. Invariants: rendered once per task; chat messages go through the model's own template and the
template's hash is recorded; plain text is encoded with the tokenizer's special tokens and never twice (a begin token that a
text brings along is not added again); a text that spells a control token is never taken for one silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gfcr.errors import ConfigError, DataError
from gfcr.generate.chat import Chat, said_by
from gfcr.generate.codec import Codec
from gfcr.generate.drift import label
from gfcr.generate.overflow import cut_from_left, shorten
from gfcr.generate.plain import Transcript
from gfcr.generate.settings import PromptSettings
from gfcr.generate.turns import Conversation
from gfcr.types import Message, Path, Segment, SegmentKind, Task


class TokenizerRenderer:
    """Renders with a Hugging Face tokenizer."""

    def __init__(self, tokenizer: Any, settings: PromptSettings | None = None, room: int | None = None) -> None:
        """`room`: tokens a prompt may have; needed for `overflow = "truncate"`."""
        self.tokenizer, self.settings, self.room = tokenizer, settings or PromptSettings(), room
        self.codec = Codec(tokenizer)
        self.cut: dict[str, tuple[int, int]] = {}
        """Task id -> tokens of its prompt before and after it was cut."""
        self._cache: dict[str, Segment] = {}
        self._shorter: dict[str, tuple[Message, ...]] = {}
        """Task id -> what was left of its chat when it was cut."""

    @cached_property
    def chat(self) -> Chat:
        """The model's chat template. Raises ConfigError when it has none."""
        return Chat(self.codec, self.settings.template, self.settings.tools)

    @property
    def turn_end(self) -> int | None:
        """The control token that ends an answer in the chat template; None without one."""
        return self.chat.end if getattr(self.tokenizer, "chat_template", None) else None

    def __call__(self, task: Task) -> Segment:
        segment = self._cache.get(task.id)
        if segment is None:
            segment = self._cache[task.id] = self._render(task)
        return segment

    def dialogue(self, task: Task, path: Path) -> Conversation | Transcript:
        """A task's turns, begun: `path` is its prompt's node, and guidance where there is some. Raises DataError when the task has
        tools and the model's template shows no results of tools."""
        messages = self.messages(task)
        if messages is None:
            return Transcript(self.codec, path)
        if task.tools and self.settings.tools == "template":
            _ = self.chat.tool_turns
        return Conversation.after(self.chat, self._shorter.get(task.id, messages), path, task.tools)

    def fresh(self, task: Task) -> Segment:
        """The prompt of a task that is asked once; it is not kept."""
        return self._render(task)

    def watch(self, groups: int) -> Callable[[int, Any], str]:
        """(index of a rollout, its dialogue) -> the label of its drift for `Rollout.meta["drift"]`; empty where none is wanted. Enough
        rollouts of each of `groups` groups are compared for `check_drift` a step."""
        most = -(-self.settings.check_drift // max(1, groups))

        def labelled(index: int, dialogue: Any) -> str:
            return label(dialogue) if index < most and isinstance(dialogue, Conversation) else ""

        return labelled

    def messages(self, task: Task) -> tuple[Message, ...] | None:
        """The chat a task is, with the recipe's system message; None for a text prompt. Raises ConfigError for a system message
        that a text prompt has no place for."""
        settings, prompt = self.settings, task.prompt
        if isinstance(prompt, str):
            if not settings.chat:
                if settings.system is not None:
                    raise ConfigError(
                        f"generate.prompt.system is set, and task {task.id} is a text prompt: a text has no system message",
                        "set generate.prompt.chat = true, or write it into the prompts",
                    )
                if task.tools:
                    raise DataError(
                        f"task {task.id} has tools, and its prompt is a text, which has no place for them",
                        "set generate.prompt.chat = true, or write them into the prompts",
                    )
                return None
            prompt = (said_by("user", prompt),)
        if settings.system is not None and prompt[0].role != "system":
            prompt = (said_by("system", settings.system), *prompt)
        return prompt

    def _render(self, task: Task) -> Segment:
        messages = self.messages(task)
        if messages is not None and not getattr(self.tokenizer, "chat_template", None):
            raise DataError(
                f"task {task.id}: its prompt is chat messages, and the tokenizer has no chat template",
                "use a model with a chat template, or tasks with plain text prompts and generate.prompt.chat = false",
            )
        try:
            ids = self._text(str(task.prompt)) if messages is None else self._chat(messages, task.tools)
            whole = len(ids)
            if self.settings.overflow == "truncate" and self.room is not None and whole > self.room:
                ids = self._shortened(task, messages, ids)
                if len(ids) < whole:
                    self.cut[task.id] = whole, len(ids)
        except DataError as error:
            raise DataError(f"task {task.id}: {error.what}", error.remedy) from None
        if not len(ids):
            raise DataError(f"task {task.id}: the prompt {task.prompt!r} has no tokens", "remove the task or give it a prompt")
        if self._unknown(task, ids):
            raise DataError(
                f"task {task.id}: the prompt {str(task.prompt)[:80]!r} has characters that the tokenizer does not know",
                "use tasks in the model's alphabet, or another model",
            )
        return Segment(SegmentKind.PROMPT, np.asarray(ids, np.int32), template=None if messages is None else self.chat.id)

    def _chat(self, messages: Sequence[Message], tools: tuple[str, ...]) -> list[int]:
        return self.chat.prompt(messages, tools)

    def _text(self, text: str) -> list[int]:
        """A text prompt, with what the tokenizer puts around a text."""
        spelled, controls = self.codec.spells(text), self.settings.controls
        if spelled is not None and controls == "refuse":
            raise DataError(
                f"the text prompt spells the control token {spelled!r}: {text[:80]!r}",
                'set generate.prompt.controls = "tokens" for prompts that were rendered beforehand, "text" for plain text',
            )
        if spelled is None:
            try:
                return list(self.tokenizer(text, verbose=False)["input_ids"])
            except Exception as error:  # the tokenizers library raises bare Exceptions
                raise DataError(
                    f"the prompt {text[:80]!r} has characters that the tokenizer does not know: {error}",
                    "use tasks in the model's alphabet, or another model",
                ) from None
        text = self.codec.checked(text)
        ids = self.codec.encode(self.codec.marked(text) if controls == "tokens" else text)
        before, after = self.codec.wrapping()
        brought = controls == "tokens" and ids[: len(before)] == before
        return [*(() if brought else before), *ids, *after]

    def _shortened(self, task: Task, messages: tuple[Message, ...] | None, ids: list[int]) -> list[int]:
        """Ids that fit; the ids as they are when nothing can be cut."""
        room = self.room
        assert room is not None
        if messages is not None:
            shorter = shorten(messages, lambda some: len(self._chat(some, task.tools)), room)
            if shorter is None:
                return ids
            self._shorter[task.id] = shorter
            return self._chat(shorter, task.tools)
        text = str(task.prompt)
        begin = cut_from_left(text, lambda b: len(self._text(text[b:])) <= room)
        return ids if begin is None else self._text(text[begin:])

    def _unknown(self, task: Task, ids: list[int]) -> bool:
        """Whether the ids hold the unknown token; some tokenizers use their end token for it, which a template may write."""
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        if unknown is None or unknown not in ids:
            return False
        others = ("bos_token_id", "eos_token_id", "pad_token_id")
        return unknown not in [getattr(self.tokenizer, name, None) for name in others]

    def decoder(self) -> Callable[[Sequence[int] | np.ndarray], str]:
        """Token ids -> text, special tokens left out, nothing cleaned up. It can be pickled."""
        return self.codec.answer
