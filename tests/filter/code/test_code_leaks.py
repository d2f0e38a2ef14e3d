"""Answers that know the tests and not the task."""

from __future__ import annotations

from typing import Any

import pytest

from gfcr.filter.verifiers.code.leaks import hard_coded, perturbed
from gfcr.filter.verifiers.code.reference import reference
from gfcr.filter.verifiers.code.verifier import Code
from gfcr.types import Status, StopReason, Task, Verdict
from sandbox_cases import needs_sandbox

SQUARES = {"type": "call", "fn": "f", "cases": [{"args": [n], "expected": n * n} for n in (12, 25, 31, 44)]}
HONEST = "def f(x):\n    return x * x\n"
TABLE = "T = {12: 144, 25: 625, 31: 961, 44: 1936}\ndef f(x):\n    return T.get(x, 0)\n"
BRANCHES = "def f(x):\n    if x == 12:\n        return 144\n    if x == 25: return 625\n    return x * x\n"
SUM = {"type": "stdio", "cases": [{"input": "2\n10 20\n", "output": "30\n"}, {"input": "3\n5 6 7\n", "output": "18\n"}]}
SUM_HONEST = "n = int(input())\nxs = list(map(int, input().split()))\nassert len(xs) == n\nprint(sum(xs))\n"
SUM_TABLE = "import sys\nprint({'2\\n10 20\\n': 30}.get(sys.stdin.read(), 18))\n"


def judged(tests: dict, answer: str, reference_solution: str | None = None, **settings: Any) -> Verdict:
    data = {"tests": tests} | ({"solution": reference_solution} if reference_solution else {})
    return Code(Code.Settings.model_validate(settings), None).judge(Task("code", "f", data), answer, StopReason.EOS)


@needs_sandbox
@pytest.mark.parametrize(
    ("tests", "honest", "table"), [(SQUARES, HONEST, TABLE), (SUM, SUM_HONEST, SUM_TABLE)], ids=["call", "stdio"]
)
def test_changed_inputs_tell_a_table_from_a_program(tests: dict, honest: str, table: str) -> None:
    assert judged(tests, table).correct is True  # knows every case
    found = judged(tests, table, honest, perturb=6)
    assert (found.status, found.correct) == (Status.SCORED, False) and "hidden" in found.evidence
    kept = judged(tests, honest, honest, perturb=6)
    assert kept.correct is True and "changed inputs" in kept.evidence, kept.evidence
    assert judged(tests, honest, honest, perturb=6) == kept
    assert "no solution of its own" in judged(tests, honest, perturb=3).evidence


@needs_sandbox
def test_inputs_on_which_the_tasks_own_program_fails_are_none() -> None:
    picky = "def f(x):\n    if x not in (12, 25, 31, 44): raise ValueError\n    return x * x\n"
    found = judged(SQUARES, HONEST, picky, perturb=4)
    assert found.correct is True and "no changed input was valid" in found.evidence


@needs_sandbox
def test_hidden_and_held_back_cases_decide_and_are_not_shown() -> None:
    tests = {**SQUARES, "cases": [*SQUARES["cases"][:2], *({**c, "hidden": True} for c in SQUARES["cases"][2:])]}
    public = "T = {12: 144, 25: 625}\ndef f(x):\n    return T.get(x, 0)\n"
    for settings in ({}, {"score": "share"}, {"score_on": "hidden"}):
        found = judged(tests, public, **settings)
        assert found.correct is False and "961" not in found.evidence and "f(31)" not in found.evidence
    assert judged(tests, public, score="share").score == 0.5
    hidden = judged(tests, public, score="share", score_on="hidden")
    assert hidden.score == 0.0 and "public 2 of 2, hidden 0 of 2" in hidden.evidence
    wrong_public = "def f(x):\n    return 0 if x == 12 else x * x\n"
    on_hidden = judged(tests, wrong_public, score_on="hidden")
    assert on_hidden.correct is True and on_hidden.score == 1.0
    held = judged(SQUARES, "def f(x): return 0\n", hold_back=0.5)
    assert "hidden 0 of 2" in held.evidence and held.correct is False


@needs_sandbox
def test_the_scan_flags_or_condemns() -> None:
    for answer, flagged in ((TABLE, True), (BRANCHES, True), (HONEST, False)):
        found = judged(SQUARES, answer, scan="flag")
        assert found.correct is True and ("stand in the program" in found.evidence) is flagged
        assert judged(SQUARES, answer, scan="wrong").correct is not flagged


@needs_sandbox
def test_a_flaky_answer_is_found_by_repeating() -> None:
    flaky = "import random\ndef f(x):\n    return x * x if random.random() < 0.8 else 0\n"
    one = {**SQUARES, "cases": SQUARES["cases"][:1]}
    found = (judged(one, flaky, repeat=10) for _ in range(40))  # each is found with chance .69; the first hit ends it
    assert any(v.correct is False and "flaky: right" in v.evidence for v in found)
    assert judged(SQUARES, HONEST, repeat=3).correct is True


def test_changed_inputs_are_new_typed_alike_and_drawn_once() -> None:
    tests = reference(
        {"type": "call", "fn": "f", "cases": [{"args": [3, [1, 2], "ab", True, {"k": 1.5}], "expected": 0}]}
    ).sets[0]
    found = perturbed(tests, 20, "t")
    assert found == perturbed(tests, 20, "t") and len(found) >= 10 and len({repr(c.args) for c in found}) == len(found)
    for new in found:
        assert new.hidden and new.args != tests.cases[0].args and [type(a) for a in new.args] == [int, list, str, bool, dict]
    programs = reference(SUM).sets[0]
    assert all(
        c.input.count("\n") == 2 and c.input not in {x.input for x in programs.cases} for c in perturbed(programs, 10, "t")
    )
    assert perturbed(reference({"type": "stdio", "cases": [{"input": "", "output": "1"}]}).sets[0], 5, "t") == ()


def test_the_scan_counts_results_beside_their_inputs_only() -> None:
    tests = reference(SQUARES).sets[0]
    assert hard_coded(tests, TABLE) == 4 and hard_coded(tests, BRANCHES) == 2
    assert hard_coded(tests, HONEST) == 0 and hard_coded(tests, "x = [12, 5, 7]\ny = 1144\n") == 0
