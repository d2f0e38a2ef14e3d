"""Test scripts run apart from the answer: what honest answers need works, and what fools an assert in its own process does not."""

from __future__ import annotations

import pytest
from code_scripts import FOOLING, HONEST

from gfcr.filter.verifiers.code.verifier import Code
from gfcr.types import Status, StopReason, Task, Verdict
from sandbox_cases import needs_sandbox

pytestmark = needs_sandbox


def judged(answer: str, script: str, prompt: str = "Write it.", **settings: object) -> Verdict:
    kind = "unittest" if "unittest.TestCase" in script else "asserts"
    judge = Code(Code.Settings.model_validate(settings), None)
    return judge.judge(Task("code", prompt, {"type": kind, "code": script}), answer, StopReason.EOS)


def names(pairs: list[tuple[str, str]]) -> list[str]:
    return [f"{i}-{tests.splitlines()[-1].strip()[:40]}" for i, (_, tests) in enumerate(pairs)]


@pytest.mark.parametrize(("answer", "tests"), HONEST, ids=names(HONEST))
def test_an_honest_answer_passes(answer: str, tests: str) -> None:
    verdict = judged(answer, tests, score="share")
    assert (verdict.status, verdict.correct, verdict.score) == (Status.SCORED, True, 1.0), verdict.evidence


@pytest.mark.parametrize(("answer", "tests"), FOOLING, ids=names(FOOLING))
def test_an_answer_that_fools_an_assert_of_its_own_process_fails(answer: str, tests: str) -> None:
    verdict = judged(answer, tests)
    assert (verdict.status, verdict.correct) == (Status.SCORED, False), verdict.evidence


def test_together_is_fooled_as_it_says_and_runs_what_apart_cannot() -> None:
    fooled, tests = FOOLING[0]
    assert judged(fooled, tests).correct is False
    assert judged(fooled, tests, tests="together").correct is True
    base = "class Base:\n    def name(self): return self.own() + '!'\n"
    derived = "class Mine(Base):\n    def own(self): return 'a'\nassert Mine().name() == 'a!'\n"
    apart = judged(base, derived)
    assert apart.correct is False and "tests = 'together'" in apart.evidence
    assert judged(base, derived, tests="together").correct is True
    assert judged("def f(): return 1\n", "assert f() == 2\n", tests="together").correct is False


def test_objects_of_its_own_decide_for_themselves_where_the_task_wants_it() -> None:
    vector = "class V:\n    def __init__(self, *a): self.a = a\n    def __eq__(self, o): return self.a == tuple(o)\n"
    assert judged(vector, "assert V(1, 2) == (1, 2)\n").correct is False
    assert judged(vector, "assert V(1, 2) == (1, 2)\n", objects="own").correct is True


def test_a_builtin_is_the_tests_own_unless_the_task_asks_for_one_of_that_name() -> None:
    answer, tests = "def sum(xs):\n    return 6\n", "assert sum([1, 2]) == 6\n"
    assert judged(answer, tests).correct is False
    assert judged(answer, tests, prompt="Write a function `sum` that adds up doubled.").correct is True


def test_every_assert_is_a_case_and_the_offending_line_is_found() -> None:
    answer = "```python\ndef f(x):\n    if x == 2:\n        return 1 / 0\n    return x\n```"
    verdict = judged(answer, "assert f(1) == 1\nassert f(2) == 2\nassert f(3) == 3\nassert f(4) == 5\n", score="share")
    assert verdict.score == 0.5 and "ZeroDivisionError" in verdict.evidence and "case 2" in verdict.evidence
    (span,) = verdict.spans
    assert span.kind == "line" and answer[span.start : span.end] == "return 1 / 0"


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ("assert f(1 == 1\n", "do not compile"),
        ("import math\ndef helper(x): return x\n", "nothing in the tests that could fail"),
        ("import unittest\nclass T(unittest.TestCase):\n    @unittest.skip('')\n    def test(self): self.fail()\n", "nothing"),
    ],
)
def test_tests_that_cannot_say_anything_make_the_answer_unscorable(tests: str, why: str) -> None:
    verdict = judged("def f(x): return x\n", tests)
    assert verdict.status is Status.UNSCORABLE and why in verdict.evidence
