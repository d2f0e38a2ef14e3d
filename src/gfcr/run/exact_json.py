"""JSON that gives back what it was given.

Invariants: the text is valid JSON (NaN and infinities are tagged, never bare tokens); floats keep every bit but a NaN's
payload, -0.0 included; tuples, sets, bytes, non-string keys and lone surrogates survive; what cannot be represented raises
TypeError naming its place, nothing is turned into a string on the way. Keys keep their order.

Tags, single-key objects: {"$float": "nan"}, {"$tuple": []}, {"$set": []}, {"$frozenset": []}, {"$bytes": base64},
{"$dict": [[key, value]]} (a key that is no string, or starts with "$"), and those of the caller's `leaf`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import numpy as np

Leaf = Callable[[Any, str], dict[str, Any] | None]
"""(value, place) -> its tagged object, or None when it does not know the value."""
Unleaf = Callable[[str, Any], Any]
"""(tag, content) -> value. Raises KeyError for an unknown tag."""

_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)


def _compact_encode() -> Callable[[Any], str]:
    """The encoder's text, made once instead of once a call where CPython's own C part is there (a third faster)."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    iterate = make(None, _encoder.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False)
    return lambda value: "".join(iterate(value, 0))


compact = _compact_encode()
"""JSON text of what is JSON data, or was made so by `tag`."""


def dumps(value: Any) -> str:
    """Fast: `value` made of dicts with string keys, lists, strings, numbers, bools and None (a tuple comes back as a list)."""
    try:
        text = compact(value)
    except (TypeError, ValueError):
        return compact(tag(value))
    return compact(tag(value)) if '{"$' in text or ',"$' in text else text  # a key that begins with "$", or looks like one


def dumps_exact(value: Any, where: str = "", leaf: Leaf | None = None) -> str:
    """Any value this module knows, types kept. Raises TypeError naming the place (under `where`) of one it does not know."""
    return compact(tag(value, where, leaf))


def loads(text: str, unleaf: Unleaf | None = None) -> Any:
    """The value of `dumps` or `dumps_exact`."""
    if '"$' not in text:
        return json.loads(text)
    return json.loads(text, object_hook=lambda found: _untag(found, unleaf))


def tag(value: Any, where: str = "", leaf: Leaf | None = None) -> Any:
    """`value` as plain JSON data with tags."""
    kind = type(value)
    if value is None or kind is str or kind is int or kind is bool:
        return value
    if kind is float:
        return value if isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [tag(item, f"{where}[{i}]", leaf) for i, item in enumerate(value)]
    if kind is tuple:
        return {"$tuple": [tag(item, f"{where}[{i}]", leaf) for i, item in enumerate(value)]}
    if leaf is not None and (found := leaf(value, where)) is not None:
        return found
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {str(key): tag(item, f"{where}.{key}", leaf) for key, item in value.items()}
        return {
            "$dict": [[tag(key, f"{where} key", leaf), tag(item, f"{where}[{key!r}]", leaf)] for key, item in value.items()]
        }
    if isinstance(value, (set, frozenset)):
        name = "$set" if isinstance(value, set) else "$frozenset"
        return {name: sorted((tag(item, f"{where} item", leaf) for item in value), key=compact)}
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    if isinstance(value, np.generic):
        return tag(value.item(), where, leaf)
    for plain in (str, int, float):  # str and int enums, numpy's float64
        if isinstance(value, plain):
            return tag(plain(value), where, leaf)
    raise TypeError(f"{where.lstrip('.') or 'value'} is a {kind.__module__}.{kind.__qualname__}, which is not JSON data")


def _untag(found: dict[str, Any], unleaf: Unleaf | None) -> Any:
    if len(found) != 1:
        return found
    ((name, content),) = found.items()
    if not name.startswith("$"):
        return found
    if name == "$float":
        return float(content)
    if name == "$tuple":
        return tuple(content)
    if name == "$set":
        return set(content)
    if name == "$frozenset":
        return frozenset(content)
    if name == "$bytes":
        return b64decode(content)
    if name == "$dict":
        return dict(content)
    if unleaf is None:
        raise KeyError(name)
    return unleaf(name, content)
