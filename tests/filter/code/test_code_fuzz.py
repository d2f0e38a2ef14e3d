"""A subset of `python -m bench code_fuzz`: programs that do anything are judged alike twice, and leave nothing."""

from __future__ import annotations

from bench.code_fuzz import run

from sandbox_cases import needs_sandbox


@needs_sandbox
def test_generated_programs_neither_hang_nor_crash_nor_leak() -> None:
    found = run(programs=40, seed=7, workers=4)
    assert found["wrong"] == []
    assert found["verdicts"]["wrong"] >= 20 and found["verdicts"]["right"] >= 3 and sum(found["verdicts"].values()) == 40
