"""Task to prompt tokens. Invariants: rendered once per task; chat messages go through the model's own template and the
template's hash is recorded; plain text is encoded with the tokenizer's special tokens and never twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gfcr.errors import DataError
from gfcr.types import PartKind, Segment, SegmentKind, Task, derive_id


class TokenizerRenderer:
    """Renders with a Hugging Face tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        template = getattr(tokenizer, "chat_template", None)
        self.template = derive_id("template", template) if template else None
        self._cache: dict[str, Segment] = {}

    def __call__(self, task: Task) -> Segment:
        segment = self._cache.get(task.id)
        if segment is None:
            segment = self._cache[task.id] = self._render(task)
        return segment

    def _render(self, task: Task) -> Segment:
        if isinstance(task.prompt, str):
            try:
                ids, template = self.tokenizer(task.prompt)["input_ids"], None
            except Exception as error:  # the tokenizers library raises bare Exceptions
                raise _unknown(task, f": {error}") from None
        elif self.template is None:
            raise DataError(
                f"task {task.id}: its prompt is chat messages, and the tokenizer has no chat template",
                "use a model with a chat template, or tasks with plain text prompts",
            )
        else:
            messages = [
                {"role": m.role, "content": "".join(p.text or "" for p in m.parts if p.kind is PartKind.TEXT)}
                for m in task.prompt
            ]
            ids = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
            template = self.template
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        if not len(ids):
            raise DataError(f"task {task.id}: the prompt {task.prompt!r} has no tokens", "remove the task or give it a prompt")
        if unknown is not None and unknown in ids:
            raise _unknown(task)
        return Segment(SegmentKind.PROMPT, np.asarray(ids, np.int32), template=template)

    def decoder(self) -> Callable[[np.ndarray], str]:
        """Token ids -> text, special tokens left out. It can be pickled."""
        return partial(self.tokenizer.decode, skip_special_tokens=True)


def _unknown(task: Task, detail: str = "") -> DataError:
    return DataError(
        f"task {task.id}: the prompt {str(task.prompt)[:80]!r} has characters that the tokenizer does not know{detail}",
        "use tasks in the model's alphabet, or another model",
    )
