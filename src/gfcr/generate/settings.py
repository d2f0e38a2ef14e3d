"""How tasks become prompts, and how much of an answer a round generates."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gfcr.registry import FrozenModel


class PromptSettings(FrozenModel):
    """See docs/methods.md, "Prompts and chats"."""

    chat: bool = False
    """Make a text prompt a user's message, so that it goes through the model's chat template (chat models want it)."""
    system: str | None = Field(None, min_length=1)
    """System message put before chats that begin with none; None = as the tasks have it."""
    template: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    """Variables of the model's chat template, e.g. `enable_thinking = false`; one that the template does not read is refused."""
    tools: Literal["template", "text"] = "template"
    """How a chat shows a task's tools, the calls and their results: `template`, as the model's chat template has them (one that has
    none is refused); `text`, in words: schemas in the system message (or the first user's), calls as `<tool_call>`, results as
    `<tool_response>` in a user's message, for models such as Gemma whose template knows no tools."""
    check_drift: int = Field(0, ge=0)
    """Rollouts a step, the first ones, whose tokens are compared with their template's full rendering (metric `drift`); 0 = none."""
    controls: Literal["refuse", "tokens", "text"] = "refuse"
    """What a text prompt means by the spelling of a control token (`<|im_end|>`, `<s>`): `tokens`, it was rendered beforehand;
    `text`, plain characters; `refuse`, say so. In chat messages and observations it is always plain text."""
    overflow: Literal["refuse", "drop", "truncate"] = "refuse"
    """A prompt that leaves no room for the longest answer: `refuse` the task set; `drop` the task (metric `tasks_dropped`);
    `truncate` it from the left, by whole turns where there are several, the system turn kept (metric `prompts_cut`)."""


class PartialSettings(FrozenModel):
    """Partial rollouts (Kimi k1.5, arXiv:2501.12599, section 2.6; APRIL, arXiv:2509.18521). See docs/generate.md."""

    tokens: int = Field(ge=1)
    """Tokens an answer may get in one round; what is longer waits, and goes on first in the next."""
    most_resumes: int = Field(3, ge=1)
    """Times one answer is resumed; what is longer still leaves the group as `stale`. UNCONFIRMED: neither paper bounds it."""
    max_age: int = Field(4, ge=1)
    """Rounds after the one it was opened in, after which a group that is not done is given up as `stale`. UNCONFIRMED, as above."""
    train: Literal["all", "newest"] = "all"
    """`newest`: tokens of weights older than those in use carry no loss (slime's --mask-offpolicy-in-partial-rollout; there the
    finished answers of a group that waited are trained all the same); rewards and baseline stay whole."""
