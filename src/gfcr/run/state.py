"""The run's state between steps as bytes, without pickle.

Invariants: JSON data, numpy arrays and scalars come back with type, dtype, shape and every bit; dataclasses and enums of
`gfcr` come back as they were, objects shared inside the state stay shared; a rollout whose content is already in the
directory is stored as a reference to it, so a replay store costs no tokens; anything else is refused naming its place.

Layout: 8 bytes little-endian length of the JSON text, the text, padding to 8, then the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from sys import modules
from typing import Any

import numpy as np

from gfcr.run.exact_json import dumps_exact, loads, tag
from gfcr.run.failures import RunDirectoryError
from gfcr.run.payload import Payload, read_array
from gfcr.types import Node, Rollout

Find = Callable[[Rollout], tuple[int, int] | None]
"""Rollout -> where the directory has its content, or None."""
Fetch = Callable[[int, int], Rollout]


def encode_state(state: Mapping[str, Any], find: Find) -> bytes:
    """The bytes of `state`. Raises RunDirectoryError for a value that has no portable form."""
    payload = Payload()
    shared: dict[int, int] = {}

    def leaf(value: Any, where: str) -> dict[str, Any] | None:
        if isinstance(value, np.ndarray):
            return {"$array": payload.array(value, where)}
        if isinstance(value, np.generic):
            return {"$scalar": payload.array(np.asarray(value), where)}
        kind = type(value)
        if not kind.__module__.startswith("gfcr.") or getattr(modules[kind.__module__], kind.__qualname__, None) is not kind:
            return None  # local and nested classes have no name to find them by
        name = f"{kind.__module__}:{kind.__qualname__}"
        if isinstance(value, Enum):
            return {"$enum": [name, value.value]}
        if not is_dataclass(value):
            return None
        if isinstance(value, (Node, Rollout)):  # the types that others hold in common
            if (number := shared.get(id(value))) is not None:
                return {"$same": number}
            at = find(value) if isinstance(value, Rollout) else None
            body = {"$rollout": list(at)} if at is not None else _object(value, name, where)
            number = shared[id(value)] = len(shared)
            return {"$shared": [number, body]}
        return _object(value, name, where)

    def _object(value: Any, name: str, where: str) -> dict[str, Any]:
        content = {f.name: tag(getattr(value, f.name), f"{where}.{f.name}", leaf) for f in fields(value) if f.init}
        return {"$object": [name, content]}

    try:
        text = dumps_exact(state, "state", leaf).encode()
    except TypeError as error:
        raise RunDirectoryError(
            str(error),
            "state_dict must return JSON data, numpy arrays or gfcr types; turn tensors into "
            "arrays (`.numpy()`) and other objects into their data",
        ) from None
    return b"".join([len(text).to_bytes(8, "little"), text, b"\0" * (-len(text) % 8), *payload.chunks])


def decode_state(body: bytes, fetch: Fetch) -> dict[str, Any]:
    """The state of `encode_state`."""
    length = int.from_bytes(body[:8], "little")
    arrays = memoryview(body)[8 + length + -length % 8 :]
    shared: dict[int, Any] = {}

    def unleaf(name: str, content: Any) -> Any:
        if name == "$array":
            return read_array(arrays, content).copy()  # owners update their state in place
        if name == "$scalar":
            return read_array(arrays, content)[()]
        if name == "$enum":
            return _kind(content[0])(content[1])
        if name == "$object":
            return _kind(content[0])(**content[1])
        if name == "$rollout":
            return fetch(*content)
        if name == "$shared":
            shared[content[0]] = content[1]
            return content[1]
        if name == "$same":
            return shared[content]
        raise KeyError(name)

    out: dict[str, Any] = loads(body[8 : 8 + length].decode(), unleaf)
    return out


def _kind(name: str) -> Any:
    """A dataclass or enum of gfcr by name; nothing else can be named, so decoding a state runs no foreign code."""
    module, _, attribute = name.partition(":")
    kind = None
    if module.startswith("gfcr."):
        with suppress(ImportError):
            kind = getattr(import_module(module), attribute, None)
    if not (isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Enum))):
        raise RunDirectoryError(
            f"the state names the type {name!r}, which this gfcr does not have",
            "resume with the gfcr version named in card.json",
        )
    return kind
