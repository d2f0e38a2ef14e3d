"""The given cases: accuracy, no false positive, nothing slow; and our own cases of many forms, every one right."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from gfcr.errors import ConfigError
from gfcr.filter.verifiers.math.rows import case
from gfcr.filter.verifiers.math.verifier import Math
from gfcr.types import Status, StopReason

CASES = Path(__file__).parents[2] / "cases"
JUDGE = Math(Math.Settings())


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]


def test_given_rows() -> None:
    failed, slow, counted, right = [], [], 0, 0
    unscorable = Counter()
    for row in rows("math_given.jsonl"):
        task, text = case(row)
        start = time.perf_counter()
        verdict = JUDGE.judge(task, text, StopReason.EOS)
        if time.perf_counter() - start > 2:
            slow.append(row["id"])
        unscorable[row["kind"]] += verdict.status is Status.UNSCORABLE
        if row.get("debatable"):
            continue
        counted += 1
        if bool(verdict.correct) is row["expected"]:
            right += 1
        else:
            failed.append((row["kind"], row["id"], row["expected"], verdict.evidence))
    for one in sorted(failed):
        print(*one)
    print(f"{right} of {counted}; unscorable: {dict(+unscorable)}")
    assert counted == 624 and not slow
    assert not [f for f in failed if not f[2]], "false positives"
    assert right / counted >= 0.98


@pytest.mark.parametrize("row", rows("math_forms.jsonl"), ids=lambda row: row["id"])
def test_forms(row: dict) -> None:
    task, text = case(row)
    verdict = JUDGE.judge(task, text, StopReason.EOS)
    assert bool(verdict.correct) is row["expected"], (row["gold"], row["prediction"], verdict.evidence)


def test_a_row_says_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match="no field 'gold'; it has prediction"):
        case({"prediction": "5"})
    with pytest.raises(ConfigError, match="no text"):
        case({"prediction": 5, "gold": "5"})
    assert case({"prediction": None, "gold": "5"})[1] == ""
