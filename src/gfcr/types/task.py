"""A task: what the policy is asked, and apart from it what the verifier knows.

Invariant: a task's id does not depend on its reference, so a corrected answer key keeps the task's history; the
reference's revision is recorded beside every verdict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gfcr.types.frozen import quickly_made
from gfcr.types.ids import derive_id


class PartKind(StrEnum):
    TEXT = "text"
    IMAGE = "image"
    VIDEO = "video"


@quickly_made
@dataclass(frozen=True, slots=True)
class Part:
    """One content part of a message."""

    kind: PartKind
    text: str | None = None
    """The text of a TEXT part; None for media."""
    uri: str | None = None
    """Where the media lies; None for text."""
    sha256: str | None = None
    """Digest of the media's bytes; None where it was not computed."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool."""

    name: str
    arguments: Mapping[str, Any]
    """JSON data, in the order it was written."""
    id: str = ""
    """What the answer to it is matched by; empty where the template has none."""


@quickly_made
@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: str
    parts: tuple[Part, ...]
    name: str | None = None
    """Which agent or tool speaks; None where the role says it."""
    calls: tuple[ToolCall, ...] = ()
    """Tool calls an assistant makes, in order. Of the policy's own answers they are a record: its text holds them too."""
    call_id: str | None = None
    """Id of the call that a tool's message answers; None where it names none."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a task comes from."""

    kind: str = "dataset"
    """`dataset` or `generated`."""
    source: str = ""
    """Data set name, or the generator's name."""
    version: str = ""
    parents: tuple[str, ...] = ()
    """Ids of the tasks and rollouts a generated task was made from."""


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt with its environment, and apart the reference (x in the survey)."""

    domain: str
    prompt: str | tuple[Message, ...]
    """Text, or chat messages whose template is applied by the renderer."""
    reference: Any = None
    """What the verifier compares with, as JSON data; None where the verifier needs none. Never shown to the policy."""
    reference_rev: str = "1"
    tools: tuple[str, ...] = ()
    """JSON schemas of the tools, as canonical JSON text."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Environment spec as JSON data; empty for single-turn tasks."""
    category: str = ""
    """A label that difficulty may be shared over (topic, length, level); empty when unknown."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Anything else the source carried, as JSON data; not part of the id."""
    origin: Origin = Origin()
    id: str = ""
    """Derived from domain, prompt, tools and environment; leave empty."""

    def __post_init__(self) -> None:
        if not self.id:
            prompt = self.prompt if isinstance(self.prompt, str) else json.dumps(messages_to_json(self.prompt))
            environment = json.dumps(self.environment, sort_keys=True)
            object.__setattr__(self, "id", derive_id("task", self.domain, prompt, *self.tools, environment))


def messages_to_json(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Messages as JSON data, absent fields left out."""
    out = []
    for message in messages:
        parts = [
            {k: v for k, v in (("kind", str(p.kind)), ("text", p.text), ("uri", p.uri), ("sha256", p.sha256)) if v}
            for p in message.parts
        ]
        more: dict[str, Any] = {"name": message.name} if message.name else {}
        if message.calls:
            more["calls"] = [{"name": c.name, "arguments": dict(c.arguments), "id": c.id} for c in message.calls]
        if message.call_id is not None:
            more["call_id"] = message.call_id
        out.append({"role": message.role, "parts": parts} | more)
    return out
