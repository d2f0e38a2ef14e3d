"""A recipe's data before it is checked: keys of before, and overrides of the command line. Invariant: what cannot be read is refused
with the key it stands under.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from gfcr.errors import ConfigError
from gfcr.registry import Slot


def renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Recipes of before `control.failures` gave its numbers as keys of the section."""
    control = data.get("control")
    old = {"retries": "attempts", "min_members": "members"}
    if not isinstance(control, Mapping) or not set(old) & set(control):
        return data
    policy = control.get("failures", {"name": "retry"})
    if not isinstance(policy, Mapping):
        return data  # refused with the words of its own place
    policy = dict(policy)
    policy |= {new: control[key] for key, new in old.items() if key in control}
    return {**data, "control": {**{k: v for k, v in control.items() if k not in old}, "failures": policy}}


_LISTS = frozenset({Slot.GATE, Slot.VERIFIER, Slot.STEPS, Slot.STORE, Slot.AUGMENT})
"""Slots that take several methods."""


def override_with(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path):
        raise ConfigError(f"--set {override!r} is not KEY=VALUE", "write for example --set budget.tokens=50000")
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError as error:
        value = text.strip()
        if value.startswith(("{", "[")):  # a list or a table that is none is no name of a method
            raise ConfigError(
                f"--set {override!r}: the value is no TOML: {error}", 'write TOML, for example {name = "math"}; numbers as 0.4'
            ) from None
    node = data
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise ConfigError(f"--set {override!r}: {part!r} is a value, not a section", "give the whole key")
    if path[-1] == "none" or value == "none":
        node.pop(path[-1], None)
        if value == "none":
            node[path[-1]] = [] if ".".join(path) in _LISTS else None
        return
    if isinstance(value, str) and ".".join(path) in set(Slot):  # a method by its bare name
        value = {"name": value}
    if isinstance(value, dict) and ".".join(path) in _LISTS:
        value = [value]
    node[path[-1]] = value
