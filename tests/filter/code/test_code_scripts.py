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


STOPS = "def f(x): raise StopIteration\n"


@pytest.mark.parametrize(
    "tests",
    [
        "for got, want in zip(map(f, [1, 2]), [2, 4]):\n    assert got == want\n",
        "assert all(map(f, [2, 3]))\nassert not any(map(f, [4, 6]))\n",
        "for value in iter(lambda: f(1), 5):\n    assert value == 3\n",
    ],
)
def test_an_error_that_ends_the_tests_loops_passes_none_of_them(tests: str) -> None:
    assert judged(STOPS, tests).correct is False
    assert judged("def f(x): return 2 * x\n", "assert list(map(f, [1, 2])) == [2, 4]\n").correct is True


def test_iterators_end_as_they_do_and_tests_may_look_for_the_error() -> None:
    counter = "class It:\n    def __init__(s): s.n = 0\n    def __iter__(s): return s\n    def __next__(s):\n"
    counter += "        s.n += 1\n        if s.n > 3: raise StopIteration\n        return s.n\n"
    assert judged(counter, "assert list(It()) == [1, 2, 3]\nassert sum(map(abs, It())) == 6\n").correct is True
    assert judged(STOPS, "try:\n    f(1)\n    assert False\nexcept StopIteration:\n    pass\n").correct is True


@pytest.mark.parametrize(
    ("honest", "fake", "tests"),
    [
        ("import math", "class math:\n    isclose = staticmethod(lambda *a: True)", "assert math.isclose(f(3), 5)\n"),
        ("from math import isclose", "def isclose(*a): return True", "assert isclose(f(3), 5)\n"),
        (
            "from collections import Counter",
            "class Counter:\n    def __init__(s, a): pass\n    def __eq__(s, o): return True",
            "assert Counter([f(3)]) == Counter([5])\n",
        ),
        ("", "class np:\n    allclose = staticmethod(lambda *a: True)", "assert f(3) == 5 or np.allclose(f(3), 5)\n"),
    ],
)
def test_tools_that_the_answer_is_left_to_import_are_the_real_ones(honest: str, fake: str, tests: str) -> None:
    assert judged(f"{honest}\ndef f(x): return 5\n", tests).correct is True
    assert judged(f"{fake}\ndef f(x): return 9\n", tests).correct is False


def test_a_name_like_a_standard_modules_may_be_the_answers_own() -> None:
    assert judged("class Q:\n    def go(s): return 2\nqueue = Q()\n", "assert queue.go() == 2\n").correct is True
    assert judged("def sp(x): return x + 2\n", "assert sp(3) == 5\n").correct is True
    bag = "class Counter:\n    def __init__(s): s.n = 0\n    def up(s):\n        s.n += 1\n        return s.n\n"
    assert judged(bag, "assert Counter().up() == 1\n", "Write a class `Counter` that counts up.").correct is True


RETRY = "def retry(f):\n    def again(*a):\n        try: return f(*a)\n        except %s: return f(*a)\n    return again\n"
EACH = "def each(xs, do):\n    for x in xs:\n        %s\n"
TIMER = "class Timer:\n    def __enter__(self): self.n = %d; return self\n    def __exit__(self, *e): return %s\n"
FROM_UNITTEST = (
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        with Timer() as t: self.assertEqual(t.n, 1)\n"
)


@pytest.mark.parametrize(
    ("honest", "fake", "tests"),
    [
        (TIMER % (1, "None"), TIMER % (2, "True"), "with Timer() as t:\n    assert t.n == 1\n"),
        (TIMER % (1, "None"), TIMER % (2, "True"), FROM_UNITTEST),
        (TIMER % (1, "None"), TIMER % (2, "True"), "def test_n():\n    with Timer() as t:\n        assert t.n == 1\n"),
        (
            EACH % "do(2 * x)",
            EACH % "\n        try: do(9)\n        except BaseException: pass",
            "seen = []\ndef check(x):\n    assert x in (2, 4)\n    seen.append(x)\neach([1, 2], check)\n",
        ),
        (
            RETRY % "ValueError",
            "def retry(f):\n    def again(*a):\n        try: f(-1)\n        except BaseException: return 3\n    return again\n",
            "n = 0\n@retry\ndef go(x):\n    global n\n    n += 1\n    assert x == 1\n    if n < 2: raise ValueError\n    return 3\n"
            "assert go(1) == 3\n",
        ),
    ],
)
def test_a_failed_assert_that_the_answer_swallows_has_failed(honest: str, fake: str, tests: str) -> None:
    assert judged(honest, tests).correct is True
    assert judged(fake, tests).correct is False


def test_an_assertion_error_that_the_tests_themselves_expect_is_theirs_to_judge() -> None:
    quiet = "class Quiet:\n    def __enter__(s): return s\n    def __exit__(s, *e): return e[0] is not None\n"
    tests = "with Quiet():\n    raise AssertionError\nwith Quiet():\n    raise ValueError\nassert Quiet()\n"
    assert judged(quiet, tests).correct is True
