"""The environment contract: turns in, observations out.

Invariants every environment keeps: what it answers is data (a tool's text never becomes an instruction or an answer of the
policy's); `terminated` (the task is over) and `truncated` (a limit of its own cut it) are told apart; equal states have equal
keys; the same seed and the same turns give the same answers, unless `deterministic` is False; work that can hang runs in a
process that can be killed. An environment is used by one rollout at a time and knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gfcr.types import ArtifactKind, Message, Task, ToolCall, Verdict

__all__ = ["Environment", "EnvironmentFault", "Fragment", "Said", "Step", "ToolCall"]


@dataclass(frozen=True, slots=True)
class Said:
    """What the policy wrote in one turn."""

    text: str
    """Its own text, whole; control tokens left out."""
    calls: tuple[ToolCall, ...] = ()
    """Tool calls found in it, in order; executed as one joint step."""
    invalid: str = ""
    """Why a call in it could not be read (`bad_json: ...`); empty when all could."""
    agent: str = ""
    """Which agent said it; empty where there is one."""


@dataclass(frozen=True, slots=True)
class Step:
    """What the environment answers."""

    messages: tuple[Message, ...] = ()
    """What the policy reads next, rendered jointly (parallel results are one observation). For models without a chat template
    their texts are joined as they are. Empty when nothing is to be read."""
    reward: float | None = None
    """Reward of this turn; None = the environment gives none here, which is not 0."""
    terminated: bool = False
    truncated: bool = False
    state: str = ""
    """Key of the state reached: equal states have equal keys (derive_id over what the state is); empty = not known."""
    calls: int = 0
    """Tool calls executed."""
    invalid: str = ""
    """Why the turn held no valid action, `kind: words`; empty when it did. The policy's fault, not the environment's."""
    agent: str = ""
    """Which agent speaks next; empty where there is one."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Facts for the record, as JSON data; shown to nobody."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a trajectory worth keeping (a patch, a test, an error, a tool sequence)."""

    kind: ArtifactKind
    text: str
    turn: int
    """Turn it comes from, from 0."""
    meta: Mapping[str, Any] = field(default_factory=dict)


class EnvironmentFault(Exception):
    """The environment itself broke (its sandbox did not start, a server is gone): says nothing about the policy. `kind`: a word
    that becomes a metric."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(f"{kind}: {words}")
        self.kind = kind


class Environment(Protocol):
    """One episode. Methods may block; a host calls them with a deadline, many environments at once."""

    name: str
    version: str
    deterministic: bool
    snapshots: bool
    """Whether `snapshot` and `restore` work."""

    def tools(self, task: Task) -> tuple[str, ...]:
        """JSON schemas of the tools it offers for a task, as canonical JSON text; empty where turns are plain text."""

    def reset(self, task: Task, seed: int) -> Step:
        """Begin an episode; `messages`: what is read before the first turn besides the prompt (usually nothing). Raises DataError
        for a task it cannot play, EnvironmentFault when it broke."""

    def step(self, said: Said) -> Step:
        """Play one turn. Never raises for what the policy wrote; raises EnvironmentFault when it broke itself."""

    def verify(self) -> Verdict:
        """The verdict on the episode so far; UNSCORABLE where nobody can say."""

    def fragments(self) -> Sequence[Fragment]:
        """What of the episode is worth keeping, oldest first."""

    def snapshot(self) -> bytes:
        """The state, so that `restore` in another environment of the same task goes on from here, equal to the bit."""

    def restore(self, task: Task, snapshot: bytes) -> None: ...

    def close(self) -> None:
        """Let go of processes and files; may be called twice."""
