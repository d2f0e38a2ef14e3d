"""Python values to SQLite columns. Invariant: what a column cannot hold exactly is refused here, never coerced."""

from __future__ import annotations


def text(value: str) -> str:
    """`value` as an exact str (an enum's value); SQLite would turn a number into text without a word."""
    if value.__class__ is str:
        return value
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{value!r} is a {type(value).__name__} where text belongs")


def text_or_none(value: str | None) -> str | None:
    return value if value is None or value.__class__ is str else text(value)


def integer(value: int | None) -> int | None:
    return None if value is None else int(value)
