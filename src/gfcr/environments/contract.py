"""The environment contract: turns in, observations out.

Invariants every environment keeps: what it answers is data (a tool's text never becomes an instruction or an answer of the
policy's); `terminated` (the task is over) and `truncated` (a limit of its own cut it) are told apart; equal states have equal
keys; the same seed and the same turns give the same answers, unless `deterministic` is False; work that can hang runs in a
process that can be killed. An environment is used by one rollout at a time and knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np

from gfcr.types import ArtifactKind, Message, Task, ToolCall, Verdict
from gfcr.types.frozen import quickly_made
from gfcr.types.signals import MOST_SCORE

__all__ = ["METHODS", "Environment", "EnvironmentFault", "Fragment", "Said", "Simple", "Step", "ToolCall"]


@quickly_made
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


@quickly_made
@dataclass(frozen=True, slots=True)
class Step:
    """What the environment answers. Raises TypeError or ValueError for what is none: the fault is told where it was made, and neither
    credit nor the record meet it later."""

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

    def __post_init__(self) -> None:
        reward = self.reward
        if reward is not None and (type(reward) is not float or not -MOST_SCORE < reward < MOST_SCORE):
            object.__setattr__(self, "reward", _reward(reward))
        if self.messages != ():
            object.__setattr__(self, "messages", _messages(self.messages))
        if type(self.calls) is not int or self.calls < 0:
            object.__setattr__(self, "calls", _count(self.calls))
        flags: tuple[tuple[str, Any], ...] = (("terminated", self.terminated), ("truncated", self.truncated))
        for name, flag in flags:
            if type(flag) is not bool:
                object.__setattr__(self, name, _flag(name, flag))
        for name, text in (("state", self.state), ("invalid", self.invalid), ("agent", self.agent)):
            if type(text) is not str or not text.isascii():
                object.__setattr__(self, name, _text(name, text))


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


class Simple:
    """What an environment of one's own may leave out, to be inherited: it offers no tools, keeps no fragments, cannot go back, and holds
    nothing that must be let go of. `reset`, `step`, `verify`, `name` and `version` stay its own."""

    deterministic = True
    snapshots = False

    def tools(self, task: Task) -> tuple[str, ...]:
        return ()

    def fragments(self) -> Sequence[Fragment]:
        return ()

    def snapshot(self) -> bytes:
        raise EnvironmentFault("no_snapshots", f"{type(self).__name__} cannot say its state")

    def restore(self, task: Task, snapshot: bytes) -> None:
        raise EnvironmentFault("no_snapshots", f"{type(self).__name__} cannot go on from a state")

    def close(self) -> None:
        """There is nothing to let go of."""


METHODS = ("tools", "reset", "step", "verify", "fragments", "close")
"""What no environment can do without; with `snapshots` it has `snapshot` and `restore`, too."""


def _wrong(name: str, value: object, wanted: str) -> TypeError:
    return TypeError(f"Step.{name} is {ascii(value)[:60]} ({type(value).__name__}); give {wanted}")


def _reward(value: Any) -> float:
    if not isinstance(value, Real):
        raise _wrong("reward", value, "a number, or None for no reward")
    if not -MOST_SCORE < value < MOST_SCORE:  # type: ignore[operator]
        raise ValueError(f"Step.reward is {ascii(value)[:60]}; give a finite number, or None for no reward")
    return float(value)


def _text(name: str, value: Any) -> str:
    """Half a surrogate pair is spelled out: `invalid` may quote what the policy wrote, whose fault is none of the environment's."""
    if not isinstance(value, str):
        raise _wrong(name, value, "text")
    return value.encode("utf-8", "backslashreplace").decode()


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _wrong(name, value, "True or False")
    return bool(value)


def _count(value: Any) -> int:
    if not isinstance(value, Integral) or int(value) < 0:
        raise _wrong("calls", value, "how many tool calls were executed, 0 or more")
    return int(value)


def _messages(value: object) -> tuple[Message, ...]:
    if not isinstance(value, (tuple, list)):
        raise _wrong("messages", value, "a tuple of gfcr.types.Message")
    for message in value:
        if not isinstance(message, Message) or not isinstance(message.role, str):
            raise _wrong("messages", message, "gfcr.types.Message, with its role as text")
        if not all(part.text is None or isinstance(part.text, str) for part in message.parts):
            raise _wrong("messages", message, "parts whose text is text")
    return tuple(value)
