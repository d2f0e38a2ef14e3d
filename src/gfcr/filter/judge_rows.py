"""Rows of a file as tasks and answers: which verifier a word names, and what of a row it reads.

Invariants: a row that cannot be read becomes a reason in words and is never left out; a null prediction is the empty answer, a null
gold is for the verifier to call UNSCORABLE.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

from gfcr.context import Build
from gfcr.errors import ConfigError, GfcrError
from gfcr.filter.slots import Verifier
from gfcr.filter.verifiers.given import prediction
from gfcr.functions import is_place
from gfcr.registry import Slot, find, names, settings_of
from gfcr.types import Task

KINDS = ("math", "choice", "structured", "code", "sql", "vision")
"""Verifiers with rows of their own (`filter/verifiers/<kind>/rows.py`); every other one reads `prediction` and `gold`."""
LONGEST_LINE = 64 * 2**20
"""Bytes of a line that are read."""

Case = Callable[[Mapping[str, Any]], tuple[Task, str]]


def resolve(kind: str, function: str | None, overrides: Sequence[str]) -> tuple[Verifier, Case, dict[str, Any]]:
    """The verifier, how it reads a row, and its settings. `kind`: a registered verifier, a place in code, or `function` with the place in
    `function`. `overrides`: `key=value`. Raises ConfigError."""
    if (kind == "function") != (function is not None):
        raise ConfigError(
            f"the verifier is {kind!r} and --function is {function!r}",
            "name the function together with `function`: gfcr verify function INPUT --out OUT --function rewards.py:right",
        )
    name = function or kind
    if is_place(name) and name.rpartition(":")[0].endswith(".py"):
        file, _, attribute = name.rpartition(":")
        name = f"{Path(file).resolve()}:{attribute}"
    if not is_place(name) and name not in names(Slot.VERIFIER):
        missing = " (this version has none of that kind yet)" if name in KINDS else ""
        raise ConfigError(
            f"there is no verifier {name!r}{missing}",
            f"name one of {', '.join(names(Slot.VERIFIER))}, `function` with --function, or `run` for a run directory",
        )
    if name == "reasoning-gym":
        raise ConfigError(
            "the verifier 'reasoning-gym' asks a data set's own scorer about its own tasks, and rows of a file are none",
            "judge the answers with `answer` or `math`, or run a recipe with tasks.source = 'reasoning-gym'",
        )
    found = find(Slot.VERIFIER, name)
    assert found.cls is not None
    settings = settings_of(found, dict(map(_override, overrides)))
    case = _own_rows(name) or generic
    return found.cls(settings, Build(0, [], 1, 1, 1)), case, settings.model_dump(mode="json")


def _own_rows(name: str) -> Case | None:
    if is_place(name):
        return None
    place = f"gfcr.filter.verifiers.{name.replace('-', '_')}.rows"
    try:
        case: Case = import_module(place).case
    except ModuleNotFoundError as error:
        if error.name and f"{place}.".startswith(f"{error.name}."):
            return None
        raise
    return case


def generic(row: Mapping[str, Any]) -> tuple[Task, str]:
    """`prediction`, and where the verifier wants one `gold`; every column is in the task's `meta`. Raises ConfigError."""
    meta = {name: value for name, value in row.items() if name not in ("prediction", "gold", "expected")}
    prompt = row.get("prompt")
    task = Task("file", prompt if isinstance(prompt, str) else "", row.get("gold"), meta=meta, id=str(row.get("id", "")))
    return task, prediction(row, "generic")


def column_map(text: str | None) -> dict[str, str]:
    """`gold=answer,prediction=reply.text` as field -> column. Raises ConfigError."""
    out = {}
    for part in (text or "").split(","):
        target, equals, source = part.partition("=")
        if not part.strip():
            continue
        if not equals or not target.strip() or not source.strip():
            raise ConfigError(
                f"--map {text!r}: {part!r} is not FIELD=COLUMN", "write for example --map gold=answer,prediction=reply"
            )
        out[target.strip()] = source.strip()
    return out


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r} is not KEY=VALUE", "write for example --set mode=boxed")
    try:
        return key.strip(), tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


@dataclass(slots=True)
class Row:
    """One row of the input."""

    number: int
    """Of its line, from 1."""
    id: Any
    """Its `id`, else `line N`."""
    item: tuple[Task, str] | None
    """What is judged; None for a row that cannot be read."""
    fault: str = ""
    """Why it cannot."""
    kind: str = ""
    expected: bool | None = None
    """The verdict it should have (true, false, 1 or 0); None where it does not say."""
    unread: bool = False
    """Whether `expected` is something else, which counts as not said."""
    debatable: bool = False


@dataclass(slots=True)
class Reader:
    """Reads rows one by one; the file may be larger than the memory."""

    path: Path
    case: Case
    columns: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Row]:
        with self.path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                    while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                        pass
                    yield Row(number, f"line {number}", None, f"the line is longer than {LONGEST_LINE:,} bytes")
                elif line.strip():
                    yield self._row(number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)

    def _row(self, number: int, line: bytes) -> Row:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            return Row(number, f"line {number}", None, f"the line is no JSON: {error}")
        if not isinstance(values, dict):
            return Row(number, f"line {number}", None, f"the line is {type(values).__name__}, not an object")
        named = {target: _column(values, source) for target, source in self.columns.items()}
        for target, found in named.items():  # all read from the row as it is, so that two columns can change places
            values.pop(target, None)  # a column that is missing is never replaced by another one of the field's name
            if found is not _NOTHING:
                values[target] = found
        if isinstance(gold := values.get("gold"), float) and not isfinite(gold):
            values["gold"] = None  # how pandas writes a reference that is missing: it judges nobody
        expected, kind = values.get("expected"), values.get("kind")
        row = Row(
            number,
            values.get("id", f"line {number}"),
            None,
            kind=kind if isinstance(kind, str) else "",
            expected=bool(expected) if expected in (0, 1) else None,
            unread=expected is not None and expected not in (0, 1),
            debatable=bool(values.get("debatable")),
        )
        try:
            row.item = self.case(values)
        except GfcrError as error:
            row.fault = f"{error.what} ({error.remedy})" if error.remedy else error.what
        except Exception as error:  # whatever a row makes of the reader says nothing about the answer
            row.fault = f"{type(error).__name__}: {error}"
        return row


_NOTHING = object()


def _column(values: Mapping[str, Any], source: str) -> Any:
    """The value of a column, `a.b` inside a nested one; _NOTHING where the row has none."""
    if source in values:
        return values[source]
    here: Any = values
    for part in source.split("."):
        if not isinstance(here, Mapping) or part not in here:
            return _NOTHING
        here = here[part]
    return here
