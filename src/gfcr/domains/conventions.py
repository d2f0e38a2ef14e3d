"""Which column is what: explicit maps, and the column conventions of TRL, verl, OpenRLHF, verifiers, slime, AReaL, GSM8K, MATH.

Invariants: an explicit column map wins over everything; what two columns could be is settled only when they say the same in
every row, else it is an error that names both; whatever was recognised can be told in a sentence (`str(Recognised)`).

Sources: TRL 1.16 (`prompt` + `solution` | `answer` | `ground_truth`), verl 0.9 (`prompt`, `data_source`, `ability`,
`reward_model.ground_truth`, `extra_info`), OpenRLHF (`input`, `label`), verifiers (`question` | `prompt`, `answer`, `info`), slime
(`prompt`, `label`), AReaL (`messages`, `answer`), openai/gsm8k (`question`, `answer` ending in `#### 42`), MATH
(`problem`, `solution` with `\\boxed{}`, `level`, `type`), MATH-500 (the same with `answer`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gfcr.domains.answers import Extract, extract
from gfcr.domains.rows import Row, missing
from gfcr.errors import ConfigError, DataError

CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompt", "question", "problem", "input", "messages"),
    "reference": ("answer", "solution", "reference", "label", "ground_truth", "reward_model.ground_truth"),
    "category": ("category", "subject", "topic", "level", "type", "ability", "data_source"),
}
"""Columns looked for when the column map does not name a field. A category is only a label: the first one found is taken."""
FIELDS = ("prompt", "reference", "reference_rev", "category", "tools", "solution")
MARKS = (Extract.HASH, Extract.BOXED)
"""Marks of a final answer that are looked for in references."""
_WORDS = {
    Extract.HASH: "what follows ####",
    Extract.BOXED: r"what the last \boxed{} holds",
    Extract.TAGS: "what <answer> holds",
    Extract.LAST_NUMBER: "its last number",
    Extract.WHOLE: "",
}


@dataclass(frozen=True, slots=True)
class Recognised:
    """What the columns of a table were taken for."""

    convention: str
    """Whose columns these are; `your column map` where nothing had to be looked for."""
    columns: Mapping[str, str]
    """Field -> column (`a.b` inside a nested one); a field without a column is absent."""
    extract: Extract
    """What of the reference column is the reference."""

    def __str__(self) -> str:
        parts = [f"{field} from {column!r}" for field, column in self.columns.items()]
        if "reference" in self.columns and self.extract is not Extract.WHOLE:
            parts.insert(2, f"of it {_WORDS[self.extract]}")
        return f"{self.convention}: {', '.join(parts)}"


def value_at(values: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or of `a.b` inside the nested column `a` (a struct, or JSON text of one); None where absent."""
    if column in values:
        return values[column]
    head, dot, rest = column.partition(".")
    inner = values.get(head)
    if not dot or inner is None:
        return None
    if isinstance(inner, str) and inner.lstrip().startswith("{"):
        try:
            inner = json.loads(inner)
        except (ValueError, RecursionError):
            return None
    return value_at(inner, rest) if isinstance(inner, Mapping) else None


def absent(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def recognise(
    where: str,
    names: Sequence[str],
    rows: Sequence[Row],
    wanted: Mapping[str, str],
    need_reference: bool,
    mode: Extract | None = None,
) -> Recognised:
    """Which column each field is read from. `mode` None: a mark that all references have is taken for the reference's.

    Raises ConfigError for an unknown field or column; DataError when a needed column is not found or two could be it.
    """
    if unknown := [name for name in wanted if name not in FIELDS]:
        raise ConfigError(f"the column map names a field {unknown[0]!r}", f"fields are {', '.join(FIELDS)}")
    for name, column in wanted.items():
        if column not in names and all(value_at(row.values, column) is None for row in rows):
            raise ConfigError(
                f"the column map reads {name} from {column!r}, but {where} has {listed(names)}", "correct the column map"
            )
    columns = {name: wanted[name] for name in FIELDS if name in wanted}
    modes: dict[str, Extract] = {}
    for name in ("prompt", "reference"):
        if name not in wanted:
            taken = set(columns.values())
            found = [c for c in CANDIDATES[name] if c not in taken and _present(c, names, rows)]
            if name == "reference":
                modes = {c: mode or _mark(where, c, rows) for c in found}
            if chosen := _one(where, name, found, rows, modes):
                columns[name] = chosen
            elif name == "prompt" or need_reference:
                raise DataError(
                    f"{where} has no column for the {name}: looked for {listed(CANDIDATES[name])}; it has {listed(names)}",
                    f'name it in the column map, e.g. columns = {{ {name} = "{next((n for n in names if n not in taken), "...")}" }}',
                )
    if "category" not in columns:
        left = (c for c in CANDIDATES["category"] if c in names and c not in columns.values())
        columns |= {"category": c} if (c := next(left, None)) else {}
    if "tools" in names and "tools" not in columns and "tools" not in columns.values() and _are_tools(rows):
        columns["tools"] = "tools"
    columns = {name: columns[name] for name in FIELDS if name in columns}
    reference = columns.get("reference")
    final = mode or (Extract.WHOLE if reference is None else modes.get(reference) or _mark(where, reference, rows))
    return Recognised(_convention(columns, names, final, wanted), columns, final)


def solution_in(values: Mapping[str, Any], recognised: Recognised) -> str | None:
    """The worked solution of a row: of the column the map names, of one called `solution`, or the text around a reference that was
    taken out of it; None where it has none. Privileged: methods of guidance alone use it."""
    columns, whole = recognised.columns, recognised.extract is Extract.WHOLE
    named = columns.get("solution")
    if named is None and (not whole or columns.get("reference") != "solution"):
        named = "solution" if "solution" in values else None if whole else columns.get("reference")
    found = value_at(values, named) if named is not None else None
    return found if isinstance(found, str) and found.strip() else None


def reference_of(value: Any, mode: Extract) -> Any:
    """The reference a column's value states; None where it states none."""
    if mode is Extract.WHOLE or not isinstance(value, str):
        return None if absent(value) else value
    found = extract(value, mode)
    return None if absent(found) else found


def _are_tools(rows: Sequence[Row]) -> bool:
    """Whether a column `tools` holds what chats may call (lists of JSON schemas, or JSON text of them) and not some label."""
    found = False
    for row in rows:
        value = row.values.get("tools")
        if isinstance(value, str) and value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return False
        if isinstance(value, list) and all(isinstance(tool, Mapping) for tool in value):
            found = found or bool(value)
        elif not absent(value) and not missing(value):
            return False
    return found


def _present(column: str, names: Sequence[str], rows: Sequence[Row]) -> bool:
    return column in names or ("." in column and any(value_at(row.values, column) is not None for row in rows))


def _one(where: str, name: str, found: Sequence[str], rows: Sequence[Row], modes: Mapping[str, Extract]) -> str | None:
    """The one column of these; several are one where they say the same in every row."""
    if len(found) < 2:
        return found[0] if found else None
    for row in rows:
        said = {c: reference_of(value_at(row.values, c), modes.get(c, Extract.WHOLE)) for c in found}
        first = said[found[0]]
        for column in found[1:]:
            if str(said[column]).strip() != str(first).strip():
                raise DataError(
                    f"{where}: {found[0]!r} and {column!r} could both be the {name}, and they differ, first in row {row.number}: "
                    f"{short(first)} and {short(said[column])}",
                    f'say which: columns = {{ {name} = "{found[0]}" }} or columns = {{ {name} = "{column}" }}',
                )
    return found[0]


def _mark(where: str, column: str, rows: Sequence[Row]) -> Extract:
    """The mark of a final answer that all texts of the column have; WHOLE when none has one."""
    texts = [value for row in rows if isinstance(value := value_at(row.values, column), str) and value.strip()]
    for mode in MARKS:
        marked = sum(extract(text, mode) is not None for text in texts)
        if marked and marked == len(texts):
            return mode
        if marked:
            sign = "'####'" if mode is Extract.HASH else r"'\boxed{}'"
            raise DataError(
                f"{where}: {marked} of {len(texts)} values of {column!r} mark their final answer with {sign}, the others do not",
                f'say what counts: tasks.extract = "{mode}" (a row without the mark then has no reference) or "whole"',
            )
    return Extract.WHOLE


def _convention(columns: Mapping[str, str], names: Sequence[str], mode: Extract, wanted: Mapping[str, str]) -> str:
    """Whose convention this is, for the reader; decides nothing."""
    pair = (columns.get("prompt"), columns.get("reference"))
    if {"prompt", "reference"} & set(wanted):
        return "your column map"
    if pair == ("question", "answer"):
        return "GSM8K columns" if mode is Extract.HASH else "columns of the library verifiers"
    if pair[0] == "prompt" and pair[1] == "answer" and "info" in names:
        return "columns of the library verifiers"
    known = {
        ("prompt", "reward_model.ground_truth"): "verl columns",
        ("problem", "solution"): "MATH columns",
        ("problem", "answer"): "MATH-500 columns",
        ("input", "label"): "OpenRLHF columns",
        ("prompt", "label"): "slime columns",
        ("messages", "answer"): "AReaL columns",
        ("prompt", "answer"): "TRL columns",
        ("prompt", "solution"): "TRL columns",
        ("prompt", "ground_truth"): "TRL columns",
    }
    return known.get((pair[0] or "", pair[1] or ""), "columns")


def short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
