"""Figures as text. Invariant: None is a dash, never 0."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

FILTERS = ("share", "count", "percent", "seconds", "signed", "spread", "interval")


def share(value: float | None, digits: int = 3) -> str:
    """`.523`."""
    if value is None:
        return "–"
    text = f"{abs(value):.{digits}f}"
    return ("−" if value < 0 and float(text) else "") + (text[1:] if text.startswith("0.") else text)


def count(value: float | None) -> str:
    """`149,312`."""
    return "–" if value is None else f"{value:,.0f}"


def percent(value: float | None) -> str:
    if value is None:
        return "–"
    return (
        "< 0.1 %"
        if 0 < value < 0.0005
        else f"{100 * value:.0f} %"
        if value == 0 or abs(value) >= 0.095
        else f"{100 * value:.1f} %"
    )


def seconds(value: float | None) -> str:
    """`36 s`, `2 min 05 s`."""
    if value is None:
        return "–"
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    return (
        f"{whole} s"
        if whole < 100
        else f"{whole // 60} min {whole % 60:02d} s"
        if whole < 3600
        else f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    )


def signed(value: float | None) -> str:
    return "–" if value is None else ("+" if value >= 0 else "") + share(value)


def spread(value: Mapping[str, Any]) -> str:
    """`.523 ± .031`."""
    return share(value["mean"]) + ("" if value["sd"] is None else f" ± {share(value['sd'])}")


def interval(value: Mapping[str, Any]) -> str:
    """`+.101 [+.040, +.160]`."""
    return signed(value["value"]) + ("" if value["low"] is None else f" [{signed(value['low'])}, {signed(value['high'])}]")


def toml(data: Mapping[str, Any], head: str = "") -> str:
    """A frozen recipe as TOML; what is None stands as a comment, because TOML has no word for it."""
    plain, tables = [], []
    for key, value in data.items():
        if (
            isinstance(value, Mapping) and value and (not head or "name" not in value)
        ):  # a method is one line, a section a table
            tables.append((key, value))
        else:
            plain.append(f"# {key} is not set" if value is None else f"{key} = {_value(value)}")
    out = ([f"[{head}]"] if head and plain else []) + plain
    text = "\n".join(out)
    for key, value in tables:
        inner = toml(value, f"{head}.{key}" if head else key)
        text += ("\n\n" if text else "") + inner
    return text


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
