"""Frozen dataclasses that are cheap to make, for what is made several times a token run.

Invariant: the signature, the defaults and the frozenness are those of the dataclass; only how its `__init__` fills the slots differs.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

Made = TypeVar("Made")

_ABSENT: Any = object()


def quickly_made(cls: type[Made]) -> type[Made]:
    """A frozen dataclass with slots whose `__init__` fills them directly: the generated one goes through `object.__setattr__` by name for
    every field, which takes up to twice as long. Like `dataclass` it writes the text of `__init__` and runs it. Raises TypeError for a
    class without slots, or with fields that are keyword-only or left out of `__init__`."""
    given: dict[str, Any] = {"_absent": _ABSENT}
    parameters, body = ["self"], []
    for field in fields(cls):  # type: ignore[arg-type]
        name = field.name
        member: Any = getattr(cls, name, None)
        if not field.init or field.kw_only or not hasattr(member, "__set__"):
            raise TypeError(f"{cls.__name__}.{name} is no positional field with a slot of its own")
        given[f"_set_{name}"] = member.__set__
        value = name
        if field.default is not MISSING:
            given[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not MISSING:
            given[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_absent")
            value = f"_make_{name}() if {name} is _absent else {name}"
        else:
            parameters.append(name)
        body.append(f"_set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(body or ["pass"]), given)
    generated, made = cls.__init__, given["__init__"]
    made.__qualname__, made.__module__, made.__annotations__ = generated.__qualname__, cls.__module__, generated.__annotations__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls
