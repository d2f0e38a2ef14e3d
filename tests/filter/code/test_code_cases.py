"""The given code cases: every verdict and every post-check right; nothing is left of any of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gfcr.filter.verifiers.code.rows import case
from gfcr.filter.verifiers.code.verifier import Code
from gfcr.types import Status, StopReason
from sandbox_cases import needs_sandbox, processes

ROWS = [json.loads(line) for line in (Path(__file__).parents[2] / "cases" / "code_given.jsonl").read_text().splitlines()]
ENDLESS = {"infinite_loop", "threads_left", "fork_bomb"}
"""Kinds that run into their wall limit, which is 5 s in the file and less here: `python -m bench code_cases` keeps the file's."""
pytestmark = needs_sandbox


@pytest.fixture(scope="module")
def judge() -> Code:
    return Code(Code.Settings(), None)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = processes()
    yield
    assert processes() <= before


def shortened(row: dict) -> dict:
    return row | {"limits": row["limits"] | {"time_s": 1.5}} if row["kind"] in ENDLESS and "limits" in row else row


def checks(row: dict) -> None:
    for check in row.get("post_checks", ()):
        path = Path(os.path.expanduser(check.get("path", "")))
        if check["type"] == "path_absent":
            assert not path.exists()
        if check["type"] == "file_lacks":
            assert not path.exists() or check["text"] not in path.read_text(errors="replace")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['id']}-{row['kind']}")
def test_verdict_and_post_checks(judge: Code, row: dict) -> None:
    verdict = judge.judge(*case(shortened(row)), StopReason.EOS)
    assert verdict.status is Status.SCORED, verdict.evidence
    if row["expected"] is not None:
        assert verdict.correct is row["expected"], verdict.evidence
    checks(row)


def test_eight_at_once_judge_as_one_does(judge: Code) -> None:
    """Attacks beside honest answers: none disturbs another's verdict."""
    kinds = ("correct", "kill_parent", "fork_bomb", "daemon_survives", "fake_report", "network", "disk_write", "memory_bomb")
    rows = [shortened(next(row for row in ROWS if row["kind"] == kind)) for kind in kinds] * 2
    with ThreadPoolExecutor(8) as threads:
        verdicts = list(threads.map(lambda row: judge.judge(*case(row), StopReason.EOS), rows))
    for row, verdict in zip(rows, verdicts):
        assert verdict.status is Status.SCORED, verdict.evidence
        assert row["expected"] is None or verdict.correct is row["expected"], (row["id"], verdict.evidence)
        checks(row)


def test_sandboxes_started_in_advance_judge_alike_and_end_with_the_verifier() -> None:
    judge = Code(Code.Settings.model_validate({"sandbox": {"warm": 2}}), None)
    try:
        for kind in ("correct", "wrong", "daemon_survives", "multi_file", "monkeypatch_unittest"):
            row = next(row for row in ROWS if row["kind"] == kind)
            assert judge.judge(*case(row), StopReason.EOS).correct is row["expected"], row["id"]
    finally:
        judge.close()
