"""Gates against the given cases: none refuses a right answer (F-01: a gate's confusion with the gold)."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from pathlib import Path

import pytest
from gate_cases import judge

from gfcr.types import Status

CASES = Path(__file__).parents[2] / "cases"
GATES = {
    "code": [("code-compiles", {}), ("repetition", {}), ("parse", {}), ("length", {})],
    "sql": [("sql-parses", {}), ("repetition", {}), ("parse", {}), ("language", {"language": "en"})],
    "math": [
        ("parse", {"forms": ["stated", "last-number", "words"]}),
        ("repetition", {}),
        ("language", {"language": "en", "share": 0.1}),
    ],
}
REFUSED = {"code-compiles": 3, "sql-parses": 5}
"""How many wrong answers they take off the verifier's hands."""


@pytest.mark.parametrize("kind", GATES)
def test_no_right_answer_is_refused(kind: str) -> None:
    case = importlib.import_module(f"gfcr.filter.verifiers.{kind}.rows").case
    confusion: Counter[tuple[str, bool, bool]] = Counter()
    for line in (CASES / f"{kind}_given.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["expected"] is None or row.get("debatable"):
            continue
        task, text = case(row)
        for gate, settings in GATES[kind]:
            status = judge(gate, text, task=task, **settings).status
            confusion[gate, row["expected"], status is Status.SCORED] += 1
            assert status is Status.SCORED or not row["expected"], (gate, row["id"])
    for gate, least in REFUSED.items():
        if any(gate == name for name, _ in GATES[kind]):
            assert confusion[gate, False, False] >= least
