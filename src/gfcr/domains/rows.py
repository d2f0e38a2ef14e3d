"""Rows of a JSONL, CSV or Parquet file.

Invariants: rows are numbered as an editor shows them (JSONL: the line; CSV: the line the record ends on, the header being
line 1; Parquet: from 1); a file without rows is an error; values are JSON data; a CSV field that is empty is the empty string.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfcr.errors import ConfigError, DataError, MissingExtra

ENDINGS = (".jsonl", ".ndjson", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    values: dict[str, Any]
    """Column -> value; a column the row lacks is absent."""


def read_rows(path: Path) -> tuple[tuple[str, ...], list[Row]]:
    """(columns in order of first appearance, rows). Raises DataError, ConfigError (unknown ending), MissingExtra."""
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
        raise DataError(f"there is no file {path}", "check the path; relative paths start at the working directory") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder", "name one file") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}", "convert the file to UTF-8"
        ) from None
    if not rows:
        raise DataError(f"{path} has no rows", "check that it was written completely")
    return tuple(dict.fromkeys(name for row in rows for name in row.values)), rows


def _jsonl(path: Path) -> list[Row]:
    rows = []
    # split at newlines only: str.splitlines would also split at U+2028 and others, which may stand in JSON strings
    for number, line in enumerate(path.read_text("utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except ValueError as error:
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
