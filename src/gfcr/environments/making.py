"""A recipe's environment as running parts. Invariant: what can be refused is refused here, before the first token."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from gfcr.context import Build
from gfcr.environments.contract import Said
from gfcr.environments.host import Host
from gfcr.environments.settings import HostSettings
from gfcr.errors import ConfigError
from gfcr.registry import Method, Slot, find, settings_of
from gfcr.settings import MethodRef
from gfcr.types import Task


def make_host(ref: MethodRef | None, settings: HostSettings, build: Build) -> Host | None:
    """The host of the recipe's environment; None without one. Raises ConfigError or DataError for what cannot work."""
    if ref is None:
        return None
    found = find(Slot.ENVIRONMENT, ref.name)
    return Host.of(found, settings_of(found, ref.values()), build, settings)


def reader(ref: MethodRef | None) -> Callable[[str], Said] | None:
    """How a turn's text is read where the environment says so (a classmethod `reader(settings)`); None = the text is all there is."""
    if ref is None:
        return None
    found = find(Slot.ENVIRONMENT, ref.name)
    make = getattr(found.cls, "reader", None)
    read: Callable[[str], Said] | None = None if make is None else make(settings_of(found, ref.values()))
    return read


def with_tools(ref: MethodRef | None, tasks: Sequence[Task], build: Build, chat: bool) -> Sequence[Task]:
    """The tasks with the tools that their environment offers, where they name none and are chats (`chat`: text prompts become chats, too),
    so that the model's template shows them."""
    if ref is None or not tasks:
        return tasks
    with Host.of(
        found := find(Slot.ENVIRONMENT, ref.name), settings_of(found, ref.values()), replace(build, tasks=tasks)
    ) as host:
        return [
            task
            if task.tools or not (chat or not isinstance(task.prompt, str)) or not (tools := host.tools(task))
            else replace(task, tools=tools, id="")
            for task in tasks
        ]


def refuse_unjudged(ref: MethodRef | None, verifiers: Sequence[Method], tasks: Sequence[Task]) -> None:
    """Raise ConfigError where nobody but the environment judges, and it says of every task that it cannot (a classmethod
    `unjudged(settings, task) -> str`, why; empty = it can)."""
    if ref is None or not tasks or not all(getattr(found.cls, "of_environment", False) for found in verifiers):
        return
    found = find(Slot.ENVIRONMENT, ref.name)
    ask, settings = getattr(found.cls, "unjudged", None), settings_of(found, ref.values())
    if ask is None or not all(ask(settings, task) for task in tasks):
        return
    raise ConfigError(
        f"generate.environment {ref.name!r} can judge none of the {len(tasks)} tasks, so every answer would be unscorable; the first, task "
        f"{tasks[0].id}: {ask(settings, tasks[0])}",
        "take tasks that it can judge (docs/environments.md has a table), or name who judges instead in filter.verifiers",
    )


def untold(ref: MethodRef | None, tasks: Sequence[Task], build: Build, chat: bool) -> str:
    """A note where no prompt tells the model of the environment's tools: a text has no place for a schema, and none names one of
    them; empty = they are told, or there are none."""
    if ref is None or chat or not tasks or not all(isinstance(task.prompt, str) for task in tasks):
        return ""
    with Host.of(
        found := find(Slot.ENVIRONMENT, ref.name), settings_of(found, ref.values()), replace(build, tasks=tasks)
    ) as host:
        names = [json.loads(tool)["function"]["name"] for tool in host.tools(tasks[0])]
    if not names or any(name in str(task.prompt) for task in tasks for name in names):
        return ""
    return (
        f"the model is not told of {', '.join(names)}, which generate.environment {ref.name!r} offers: prompts are texts without a place for "
        "its schema, and none of them names it; set generate.prompt.chat = true, or write it into the prompts"
    )
