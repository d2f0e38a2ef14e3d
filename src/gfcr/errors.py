"""Errors meant for the user. Invariants: each says what is wrong and what to do about it; a caller that catches
`GfcrError` catches nothing that is a bug of this library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping


def literal(value: object) -> str:
    """A value as a recipe writes it: `true`, `16`, `6e-04`, `"text"`, `[1, 2]`, `{name = "grpo"}`; None is `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value!r}"
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Iterable):
        return "[" + ", ".join(map(literal, value)) + "]"
    return str(value)


def leave_out(key: str, default: object = None) -> str:
    """The remedy for a setting that should not be there: out of the file, or, where a shipped recipe has it, back to `default`."""
    value = default if isinstance(default, str) else literal(default)
    return f"leave {key} out (where a shipped recipe has it: --set {key}={value})"


class GfcrError(Exception):
    """Something the user can put right."""

    def __init__(self, what: str, remedy: str) -> None:
        """`what` is wrong, in one sentence; `remedy`: what to do about it."""
        super().__init__(what, remedy)  # both in args: the error survives pickling between processes
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\n  remedy: {self.remedy}"


class ConfigError(GfcrError):
    """A recipe, a setting or a combination of methods that cannot work."""


class DataError(GfcrError):
    """A task file, a checkpoint or another input that cannot be read as what it should be."""


class MissingExtra(GfcrError):
    """An optional dependency is not installed."""

    def __init__(self, module: str, extra: str, purpose: str) -> None:
        """`module` failed to import; `gfcr[extra]` brings it; `purpose` says what it is needed for."""
        super().__init__(
            f"{purpose} needs the module {module!r}, which is not installed", f'install the extra: pip install "gfcr[{extra}]"'
        )
        self.args = (module, extra, purpose)
