"""Rows of a JSONL, CSV or Parquet file, of a saved data set (`datasets`), and of one in memory.

Invariants: rows are numbered as an editor shows them (JSONL: the line; CSV: the line the record ends on, the header being
line 1; others: from 1); a file without rows is an error; a CSV field that is empty is the empty string; `fault_in` says of a value
whether it is data that a run can keep.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfcr.errors import ConfigError, DataError, MissingExtra

SAVED = ("dataset_dict.json", "state.json")
"""Files by which a directory of `save_to_disk` is known: of a DatasetDict, of a Dataset."""
ENDINGS = (".jsonl", ".ndjson", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    values: dict[str, Any]
    """Column -> value; a column the row lacks is absent."""


def fault_in(value: Any, place: str = "") -> str:
    """Where in a value something is that is no data, and what: ` at cases[2].x: nan is not a finite number`, or `: nan is ...` for
    the value itself; empty when all of it is data.

    Data are text, bytes, truth values, whole and finite numbers, None, and lists and tables (with text as keys) of data. A NaN
    inside a value is no missing one: nobody could tell it from a computation gone wrong. Raises RecursionError for what holds
    itself."""
    where = f" at {place.lstrip('.')}" if place else ""
    if value is None or isinstance(value, (str, bytes, bool, int)):
        return ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{where}: {value} is not a finite number"
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            return f"{where}: the key {odd[0]!r} is not text"
        return next(filter(None, (fault_in(item, f"{place}.{key}") for key, item in value.items())), "")
    if isinstance(value, (list, tuple)):
        return next(filter(None, (fault_in(item, f"{place}[{number}]") for number, item in enumerate(value))), "")
    return f"{where}: {type(value).__name__} is no JSON data"


def missing(value: Any) -> bool:
    """Whether a cell holds nothing: None, or NaN, which is how tables of numbers spell it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def read_rows(path: Path, split: str | None = None) -> tuple[tuple[str, ...], list[Row]]:
    """(columns in order of first appearance, rows). `split`: of a saved DatasetDict; None = its only one.

    Raises DataError, ConfigError (unknown ending, a split of what has none), MissingExtra.
    """
    if any((path / name).is_file() for name in SAVED):
        rows = _saved(path, split)
        return _names(rows), rows
    if split is not None:
        raise ConfigError(f"{path} is one table and has no split {split!r}", "take the split out, or name a saved DatasetDict")
    readers = {".jsonl": _jsonl, ".ndjson": _jsonl, ".csv": _csv, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(
            f"{path}: the ending {path.suffix!r} is none of {', '.join(ENDINGS)}",
            "convert the file, or rename it when its ending is wrong",
        )
    try:
        rows = reader(path)
    except FileNotFoundError:
        raise DataError(
            f"there is no file {path}",
            "check the path; a relative one starts at the recipe's folder (from Python: at the working directory)",
        ) from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder", "name one file") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}", "convert the file to UTF-8"
        ) from None
    if not rows:
        raise DataError(f"{path} has no rows", "check that it was written completely")
    return _names(rows), rows


def write_rows(data: Any, path: Path, split: str | None = None) -> int:
    """Write a data set in memory as JSONL and return its number of rows; `data` is a `datasets.Dataset`, a DatasetDict (with `split`,
    or with one), or any iterable of mappings. Raises DataError for rows that are no JSON data, ConfigError for an unknown split."""
    lines = []
    for number, values in enumerate(_table(data, split, "the data set"), 1):
        if not isinstance(values, Mapping):
            raise DataError(f"row {number} of the data set is {type(values).__name__}, not a mapping", "give one mapping a row")
        cells = {name: None if missing(value) else value for name, value in values.items()}
        for name, value in cells.items():
            try:
                wrong = fault_in(value)
                json.dumps(value)
            except (TypeError, ValueError, RecursionError):
                wrong = f": {type(value).__name__} is no JSON data"
            if wrong:
                raise DataError(
                    f"row {number} of the data set, column {name!r}{wrong}",
                    "take the column out (`remove_columns`), or turn its values into text or finite numbers",
                )
        lines.append(json.dumps(cells, ensure_ascii=False) + "\n")
    if not lines:
        raise DataError("the data set has no rows", "give at least one task")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def _table(data: Any, split: str | None, where: str) -> Iterable[Any]:
    """The table itself, or the chosen one of several by name."""
    if not isinstance(data, Mapping):
        if split is not None:
            raise ConfigError(f"{where} is one table and has no split {split!r}", "take the split out")
        return data if isinstance(data, Iterable) else ()
    names = ", ".join(map(str, data))
    if split is None and len(data) != 1:
        raise ConfigError(
            f"{where} has the splits {names}", "name one: tasks.split, and tasks.heldout_split for the held-out tasks"
        )
    if split is not None and split not in data:
        raise ConfigError(f"{where} has no split {split!r}", f"its splits are {names}")
    return data[split] if split is not None else next(iter(data.values()))


def _names(rows: list[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in rows for name in row.values))


def _saved(path: Path, split: str | None) -> list[Row]:
    try:
        import datasets
    except ImportError:
        raise MissingExtra("datasets", "datasets", f"reading the data set in {path}") from None
    try:
        data = datasets.load_from_disk(str(path))
    except Exception as error:  # pyarrow, json and OS errors of a damaged directory
        raise DataError(f"{path} is no saved data set: {error}", "write it again with save_to_disk") from None
    found = [Row(number, dict(values)) for number, values in enumerate(_table(data, split, str(path)), 1)]
    if not found:
        raise DataError(f"{path} has no rows", "check that it was written completely")
    return found


def _jsonl(path: Path) -> list[Row]:
    rows = []
    # split at newlines only: str.splitlines would also split at U+2028 and others, which may stand in JSON strings
    for number, line in enumerate(path.read_text("utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}:{number} is not JSON: {error}; the line begins {line[:60]!r}", "write one JSON object a line"
            ) from None
        if not isinstance(values, dict):
            raise DataError(f"{path}:{number} is {line.strip()[:60]!r}, not a JSON object", "write one JSON object a line")
        rows.append(Row(number, values))
    return rows


def _csv(path: Path) -> list[Row]:
    rows = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header: list[str] | None = None
        try:
            for values in reader:
                if not values:
                    continue
                if header is None:
                    header = values
                    if twice := [name for name in header if header.count(name) > 1]:
                        raise DataError(f"{path} has two columns named {twice[0]!r}", "rename one of them")
                    continue
                if len(values) != len(header):
                    raise DataError(
                        f"{path}:{reader.line_num} has {len(values)} fields, the header has {len(header)}: "
                        f"{','.join(values)[:60]!r}",
                        "quote fields that hold commas, quotes or line breaks",
                    )
                rows.append(Row(reader.line_num, dict(zip(header, values))))
        except csv.Error as error:
            raise DataError(
                f"{path}:{reader.line_num} is not CSV: {error}",
                "write comma-separated fields, in double quotes where they hold commas",
            ) from None
    return rows


def _parquet(path: Path) -> list[Row]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", f"reading {path}") from None
    if not path.exists():
        raise FileNotFoundError(path)
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}", "write it again") from None
    return [Row(number, values) for number, values in enumerate(table.to_pylist(), 1)]
