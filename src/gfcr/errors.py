"""Errors meant for the user. Invariants: each says what is wrong and what to do about it; a caller that catches
`GfcrError` catches nothing that is a bug of this library.
"""

from __future__ import annotations


def leave_out(key: str, default: object = None) -> str:
    """The remedy for a setting that should not be there: out of the file, or, where a shipped recipe has it, back to `default`."""
    value = "none" if default is None else str(default).lower() if isinstance(default, bool) else f"{default}"
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
