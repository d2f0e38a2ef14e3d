"""A recipe's environment as running parts. Invariant: what can be refused is refused here, before the first token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gfcr.context import Build
from gfcr.environments.contract import Said
from gfcr.environments.host import Host
from gfcr.environments.settings import HostSettings
from gfcr.registry import Slot, find, settings_of
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
