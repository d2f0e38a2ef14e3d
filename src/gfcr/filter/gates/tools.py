"""Whether an answer's tool calls are well formed.

Invariants: an answer without a call passes unless calls are needed; every call must be readable, name a tool that the task has, and bring
the arguments that tool requires; what is inside the arguments is the environment's business unless `arguments = "schema"`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.gates.schema import BadSchema, checked, fault
from gfcr.filter.texts.calls import TAGGED, NoCall, arguments, named, written
from gfcr.filter.texts.spoken import spoken
from gfcr.filter.texts.values import NoValue, lenient, strict
from gfcr.filter.verdicts import passes, refused, short, unjudged, unscorable
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import StopReason, Task, Verdict


@method("tool-call", Slot.GATE, title="tool calls are well formed", criterion="reliability", faithfulness=Faithfulness.OURS)
class ToolCall:
    """Refuses a finished answer with a tool call that cannot be read, names no tool of the task, or lacks an argument. Calls stand in
    `<tool_call>` (Hermes, Qwen), after `<|python_tag|>` or `[TOOL_CALLS]`, in a fenced block, or are the whole answer; as JSON with a name
    and arguments (also `parameters`, or inside `function`)."""

    class Settings(FrozenModel):
        need: bool = False
        """Refuse an answer without any call, too."""
        arguments: Literal["any", "required", "schema"] = "required"
        """What of a call's arguments is looked at: that they are an object; that those the tool requires are there; that all fit the tool's
        schema."""
        lenient: bool = True
        """Read single quotes, trailing commas and Python's literals, too."""

    name, version = "tool-call", "1"

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings
        self.bounded = build is not None and settings.arguments != "schema"
        for task in build.tasks if build else ():
            try:
                tools = _tools(task)
            except ValueError as error:
                raise ConfigError(
                    f"filter.gates 'tool-call': task {task.id}: {error}", "give each tool as a JSON schema"
                ) from None
            if settings.arguments == "schema":
                for name, schema in tools.items():
                    checked(schema, f"filter.gates 'tool-call': task {task.id}: the parameters of {name!r}")

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if (unheard := unjudged(self, stop)) is not None:
            return unheard
        try:
            tools = _tools(task)
        except ValueError as error:
            return unscorable(self, str(error))
        found = written(text if TAGGED.search(text) else spoken(text)[0])
        if not found:
            return refused(self, "no tool call in it") if self.settings.need else passes(self, "no tool call in it")
        for number, place in enumerate(found, 1):
            try:
                why = self._fault(place, tools)
            except (BadSchema, ConfigError) as error:
                return unscorable(self, str(error).partition("\n")[0])
            if why:
                return refused(self, f"call {number}: {why}")
        return passes(self, f"{len(found)} well formed")

    def _fault(self, place: str, tools: Mapping[str, Mapping[str, Any]]) -> str:
        try:
            value = (lenient if self.settings.lenient else strict)(place)
        except NoValue as error:
            return str(error)
        for call in value if isinstance(value, list) else [value]:
            if why := self._call(call, tools):
                return why
        return "" if value != [] else "an empty list of calls"

    def _call(self, call: Any, tools: Mapping[str, Mapping[str, Any]]) -> str:
        try:
            name, inner = named(call)
            if tools and name not in tools:
                return f"there is no tool {name[:60]!r}; there are {', '.join(sorted(tools))[:200]}"
            given = arguments(inner)
        except NoCall as error:
            return str(error)
        schema = tools.get(name)
        if schema is None or self.settings.arguments == "any":
            return ""
        required = schema.get("required")
        if isinstance(required, list) and (lacking := [str(r) for r in required if r not in given]):
            return f"{name} lacks the argument {lacking[0]!r}"
        if self.settings.arguments == "schema" and (why := fault(given, schema)):
            return f"{name}: {why}"
        return ""


def _tools(task: Task) -> dict[str, Mapping[str, Any]]:
    """Name -> schema of the parameters. Raises ValueError for a tool that is none."""
    found: dict[str, Mapping[str, Any]] = {}
    for text in task.tools:
        try:
            tool = json.loads(text)
        except ValueError as error:
            raise ValueError(f"a tool of the task is no JSON: {error}") from None
        inner = tool.get("function", tool) if isinstance(tool, dict) else {}
        if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
            raise ValueError(f"a tool of the task has no name: {short(tool)}")
        schema = inner.get("parameters", inner.get("input_schema")) or {}
        if not isinstance(schema, dict):
            raise ValueError(f"the parameters of the tool {inner['name']!r} are no JSON schema")
        found[inner["name"]] = schema
    return found
