"""What environments with tools share: a turn with calls is answered with their results, a turn without one is the final answer.

Invariants (card G-16): a call that cannot be read, names no tool or lacks its argument is answered with words or ends the episode, which is
a setting, and is never the environment's fault; the same call is executed so many times and then ends the episode; a result is cut to a
length and holds no control character; the final answer is the policy's own text and nothing else.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from gfcr.environments.calls import Format, read
from gfcr.environments.contract import Fragment, Said, Step, ToolCall
from gfcr.filter.verdicts import scored, unscorable
from gfcr.registry import FrozenModel
from gfcr.types import ArtifactKind, Message, Part, PartKind, Task, Verdict, derive_id

LONGEST_ARGUMENT = 50_000
"""Characters of an argument."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class ToolSettings(FrozenModel):
    """Settings of every environment with tools."""

    format: Format = "hermes"
    """How calls are written, where they do not come read already."""
    malformed: Literal["tell", "end"] = "tell"
    """What follows a call that cannot be read or made: an error to read, or the end of the episode."""
    invalid_reward: float | None = None
    """Reward of a turn with such a call (RAGEN, arXiv:2504.20073: -0.1); None = the environment gives none."""
    turns: int = Field(16, ge=1, le=1000)
    """Turns with calls; the last one ends the episode, truncated."""
    most_calls: int = Field(8, ge=1, le=100)
    """Calls of one turn that are executed; the others are answered with an error."""
    repeats: int = Field(3, ge=1)
    """Times one and the same call is executed; one more ends the episode."""
    output_chars: int = Field(2000, ge=40)
    """Longest result, in characters (about 500 tokens); what is more is cut out of its middle, which the text says."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool with one argument, which is a text."""

    name: str
    argument: str
    about: str
    about_argument: str

    @property
    def schema(self) -> str:
        """As canonical JSON text, in the form that chat templates take."""
        argument = {"type": "string", "description": self.about_argument}
        parameters = {"type": "object", "properties": {self.argument: argument}, "required": [self.argument]}
        function = {"name": self.name, "description": self.about, "parameters": parameters}
        return json.dumps({"type": "function", "function": function}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Result:
    """What a call came to."""

    text: str
    error: str = ""
    """Its kind, one word, where the call failed for what the policy wrote (`SyntaxError`, `time`); empty when it did not."""


class ToolEnvironment(ABC):
    """One episode with one tool."""

    name: str
    version: str
    deterministic: bool = True
    snapshots: bool = True
    tool: ClassVar[Tool]

    def __init__(self, settings: ToolSettings) -> None:
        self._settings = settings
        self._task: Task | None = None
        self._clear()

    @classmethod
    def reader(cls, settings: ToolSettings) -> Callable[[str], Said]:
        """How a turn's text is read."""
        return partial(read, how=settings.format, tool=cls.tool.name, argument=cls.tool.argument)

    def _clear(self) -> None:
        self._seed = self._turn = 0
        self._answer: str | None = None
        self._over = False
        self._made: dict[str, int] = {}
        self._log: list[dict[str, Any]] = []

    # What each one does

    @abstractmethod
    def _begin(self, task: Task, seed: int) -> None:
        """Before the first turn, and before `_load`. Raises DataError for a task it cannot play."""

    @abstractmethod
    def _do(self, argument: str) -> Result:
        """Execute a call."""

    @abstractmethod
    def _judge(self, task: Task, answer: str) -> Verdict:
        """The verdict on a final answer."""

    def _dump(self) -> Any:
        """What else a snapshot holds, as JSON data."""
        return None

    def _load(self, state: Any) -> None:
        """Go on from what `_dump` gave."""
        assert state is None

    # The contract

    def tools(self, task: Task) -> tuple[str, ...]:
        return (self.tool.schema,)

    def reset(self, task: Task, seed: int) -> Step:
        """See contract.Environment."""
        self._clear()
        self._task, self._seed = task, seed
        self._begin(task, seed)
        return Step(state=self._key())

    def step(self, said: Said) -> Step:
        """See contract.Environment."""
        if self._over or self._task is None:
            return Step(terminated=True, invalid="over: the episode has ended")
        if not said.calls and not said.invalid:
            said = read(said.text, self._settings.format, self.tool.name, self.tool.argument)
        turn, self._turn = self._turn, self._turn + 1
        if not said.calls and not said.invalid:
            self._answer, self._over = said.text, True
            return Step(terminated=True, state=self._key())
        return self._called(said, turn)

    def _called(self, said: Said, turn: int) -> Step:
        s, messages, invalid, done = self._settings, [], said.invalid, 0
        for number, call in enumerate(said.calls):
            argument, why = self._argument(call, number)
            if not why:
                why = self._repeated(argument)
            if why:
                invalid = invalid or why
                self._over = self._over or why.startswith("repeated_call")
                messages.append(self._message(call.name, f"Error: {why.partition(': ')[2]}", call.id))
                continue
            done += 1
            result = self._do(argument)
            self._log.append(
                {"turn": turn, "argument": argument, "text": shown(result.text, s.output_chars), "error": result.error}
            )
            messages.append(self._message(call.name, result.text or "(no output)", call.id))
        if said.invalid:
            messages.append(
                self._message(self.tool.name, f"Error: the call cannot be read: {said.invalid.partition(': ')[2]}", "")
            )
        if invalid and s.malformed == "end":
            self._over = True
        last = self._turn >= s.turns and not self._over
        self._over = self._over or last
        return Step(
            messages=() if self._over else tuple(messages),
            reward=s.invalid_reward if invalid else None,
            terminated=self._over and not last,
            truncated=last,
            state=self._key(),
            calls=done,
            invalid=invalid,
        )

    def _argument(self, call: ToolCall, number: int) -> tuple[str, str]:
        """(argument, why the call cannot be made)."""
        tool = self.tool
        if number >= self._settings.most_calls:
            return "", f"many_calls: only {self._settings.most_calls} calls of a turn are made"
        if call.name != tool.name:
            return "", f"no_tool: there is no tool {call.name[:60]!r}; there is {tool.name}"
        found = call.arguments.get(tool.argument)
        if not isinstance(found, str):
            return "", f"bad_arguments: {tool.name} takes {tool.argument!r}, a text"
        if len(found) > LONGEST_ARGUMENT:
            return "", f"bad_arguments: {tool.argument!r} has {len(found)} characters, and at most {LONGEST_ARGUMENT} are taken"
        return found, ""

    def _repeated(self, argument: str) -> str:
        key = derive_id("call", self.tool.name, argument.encode("utf-8", "surrogatepass"))
        self._made[key] = self._made.get(key, 0) + 1
        if self._made[key] <= self._settings.repeats:
            return ""
        return f"repeated_call: the same call was made {self._settings.repeats} times before"

    def _message(self, name: str, text: str, call_id: str) -> Message:
        part = Part(PartKind.TEXT, shown(text, self._settings.output_chars))
        return Message("tool", (part,), clean(name)[:60] or self.tool.name, call_id=call_id or None)

    def verify(self) -> Verdict:
        """The verdict on the final answer; an episode without one is wrong."""
        if self._task is None:
            return unscorable(self, "no episode has begun")
        if self._answer is None:
            if self._task.reference is None:
                return unscorable(self, "the task has no reference")
            return scored(self, 0.0, False, f"no final answer after {self._turn} turns")
        return self._judge(self._task, self._answer)

    def fragments(self) -> Sequence[Fragment]:
        """The calls with their results as one tool sequence, and each failed call."""
        if not self._log:
            return ()
        calls = [{"tool": self.tool.name, self.tool.argument: each["argument"], "result": each["text"]} for each in self._log]
        whole = Fragment(ArtifactKind.TOOL_SEQUENCE, json.dumps(calls), self._log[-1]["turn"], {"calls": len(calls)})
        failed = [
            Fragment(ArtifactKind.FAILURE, each["argument"], each["turn"], {"error": each["error"], "said": each["text"]})
            for each in self._log
            if each["error"]
        ]
        return (*failed, whole)

    def snapshot(self) -> bytes:
        """See contract.Environment."""
        state = [self._seed, self._turn, self._answer, self._over, self._made, self._log, self._dump()]
        return json.dumps(state, sort_keys=True).encode()

    def restore(self, task: Task, snapshot: bytes) -> None:
        """See contract.Environment."""
        self._clear()
        self._task = task
        self._seed, self._turn, self._answer, self._over, self._made, self._log, state = json.loads(snapshot)
        self._begin(task, self._seed)
        self._load(state)

    def close(self) -> None:
        """See contract.Environment; there is nothing to let go of."""
        self._over = True

    def _key(self) -> str:
        """States are equal where the same calls have been made and gave the same; the order counts where calls change something."""
        known = sorted(f"{each['argument']}\0{each['text']}" for each in self._log)
        return self._key_of(known)

    def _key_of(self, known: Sequence[str]) -> str:
        assert self._task is not None
        parts = [part.encode("utf-8", "surrogatepass") for part in dict.fromkeys(known)]
        answer = None if self._answer is None else self._answer.encode("utf-8", "surrogatepass")
        return derive_id(self.name, self._task.id, int(self._over), answer, *parts)


def clean(text: str) -> str:
    """Without control characters and halves of characters, which are spelled out."""
    text = text.encode("utf-8", "backslashreplace").decode().replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def shown(text: str, most: int) -> str:
    """A result as it is shown: clean, and at most about `most` characters, two thirds of them from its beginning."""
    if len(text) > 4 * most:  # no more is cleaned than can be shown
        left = len(text) - 4 * most
        text, lost = text[: 2 * most] + text[-2 * most :], left
    else:
        lost = 0
    text = clean(text)
    if len(text) <= most:
        return text
    head = most * 2 // 3
    tail = most - head
    return f"{text[:head]}\n[... {len(text) - most + lost} characters left out ...]\n{text[-tail:]}"
