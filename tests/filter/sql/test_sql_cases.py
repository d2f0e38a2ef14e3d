"""The given SQL cases: every verdict right, within its limit, and database files as they were."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gfcr.errors import ConfigError
from gfcr.filter.verifiers.sql.rows import case
from gfcr.filter.verifiers.sql.verifier import Sql
from gfcr.types import Status, StopReason

CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "cases" / "sql_given.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def judge() -> Iterator[Sql]:
    made = Sql(Sql.Settings(workers=1))
    yield made
    made.close()


@pytest.mark.parametrize("row", CASES, ids=lambda row: f"{row['id']}-{row['kind']}")
def test_a_given_case(judge: Sql, row: dict[str, Any]) -> None:
    started = time.monotonic()
    verdict = judge.judge(*case(row), StopReason.EOS)
    assert verdict.status is Status.SCORED, verdict
    assert verdict.correct is row["expected"] or row.get("debatable"), verdict
    assert verdict.evidence and verdict.score == float(bool(verdict.correct))
    if "time_limit_s" in row:
        assert time.monotonic() - started < row["time_limit_s"]


def test_database_files_are_as_they_were(judge: Sql, tmp_path: Path) -> None:
    """Every query runs against a file of its schema, also those that would write; nothing appears beside it."""
    files = {schema: tmp_path / f"{i}.sqlite" for i, schema in enumerate(sorted({row["schema_sql"] for row in CASES}))}
    for schema, file in files.items():
        with sqlite3.connect(file) as db:
            db.executescript(schema)
        db.close()
    before = {file.name: sha256(file.read_bytes()).hexdigest() for file in files.values()}
    wrong = []
    for row in CASES:
        if row.get("time_limit_s"):
            continue  # said above; they only take their time here
        on_file = {name: value for name, value in row.items() if name != "schema_sql"}
        verdict = judge.judge(*case({**on_file, "db_path": str(files[row["schema_sql"]])}), StopReason.EOS)
        if verdict.correct is not row["expected"] and not row.get("debatable"):
            wrong.append((row["id"], verdict))
    assert wrong == []
    assert {file.name: sha256(file.read_bytes()).hexdigest() for file in tmp_path.iterdir()} == before


def test_rows_that_are_no_case_are_refused_by_field() -> None:
    row = CASES[0]
    for name in ("gold_sql", "pred_sql", "schema_sql"):
        with pytest.raises(ConfigError, match=name):
            case({key: value for key, value in row.items() if key != name})
    with pytest.raises(ConfigError, match="not text"):
        case({**row, "pred_sql": 7})


def test_a_null_reference_is_unscorable_and_a_null_reply_is_wrong(judge: Sql) -> None:
    assert judge.judge(*case({**CASES[0], "gold_sql": None}), StopReason.EOS).status is Status.UNSCORABLE
    assert judge.judge(*case({**CASES[0], "pred_sql": None}), StopReason.EOS).correct is False
