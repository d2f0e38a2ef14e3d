"""What stands around the runs: the program in a text, what counts as equal, the tests of a reference, feedback."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.verifiers.code.compare import same, same_output, shown
from gfcr.filter.verifiers.code.extract import answer
from gfcr.filter.verifiers.code.reference import BadTests, held_back, limited, reference
from gfcr.filter.verifiers.code.report import Failure, Fault, Report, words
from gfcr.filter.verifiers.code.rows import case
from gfcr.filter.verifiers.code.verifier import Code
from gfcr.sandbox.inside.wire import DEPTH, NotPlain, from_text, plain, to_text, value_of
from gfcr.sandbox.settings import Limits, Sandbox
from gfcr.types import Task

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("print(1)\n", "print(1)\n"),
        ("Here:\n```python\nprint(1)\n```\nDone.", "print(1)\n"),
        ("```python\nwrong\n```\nbetter:\n```py\nprint(1)\n```", "print(1)\n"),
        ("```\nprint(1)\n```", "print(1)\n"),
        ("```python\nprint(1)\n```\nwhich prints\n```text\n1\n```", "print(1)\n"),
        ("~~~python\nprint('```')\n~~~", "print('```')\n"),
        ("1. so:\n   ```python\n   if 1:\n       print(1)\n   ```", "if 1:\n    print(1)\n"),
        ("```python\nprint(1)\n", "print(1)\n"),
        ("<think>\n```python\nno\n```\n</think>\n```python\nprint(1)\n```", "print(1)\n"),
        ("<think>\n```python\nno\n```\n</think>\nprint(1)", "\nprint(1)"),
        ("```python\nprint('</think>')\n```", "print('</think>')\n"),
        ('def f():\n    """Use:\n    ```\n    f()\n    ```\n    """\n    return 1\n', None),
        ("", ""),
        ("```python\n```", ""),
    ],
)
def test_the_program_of_a_text(text: str, program: str | None) -> None:
    found = answer(text, None)
    assert found.files == {"solution.py": text if program is None else program}


def test_places_of_lines_are_places_of_the_text_judged() -> None:
    text = "Sure:\n  ```python\n  def f():\n      return 1\n  ```\n"
    found = answer(text, "lib.py")
    start, end = found.line("lib.py", 2) or (0, 0)
    assert text[start:end] == "return 1" == found.source("lib.py", 2)
    assert found.line("lib.py", 9) is None and found.line("other.py", 1) is None
    files = answer(json.dumps({"a.py": "x = 1\n"}), None)
    assert files.files == {"a.py": "x = 1\n"} and files.line("a.py", 1) is None


@pytest.mark.parametrize("name", ["/etc/x", "../x.py", "a/../../x", "a//b", "./x", "", "a\0b", "a\\b", "x" * 300, "a\nb"])
def test_file_names_that_lead_elsewhere_are_refused(name: str) -> None:
    assert answer(json.dumps({"main.py": "", name: "x"}), None).refused
    assert not answer(json.dumps({"main.py": "", "pkg/__init__.py": ""}), None).refused
    assert answer(json.dumps({f"{i}.py": "" for i in range(101)}), None).refused


def test_extraction_is_linear() -> None:
    for text in (
        "```\n" * 50_000,
        "</think>```\n" * 30_000,
        "{" * 200_000,
        '"""' * 100_000,
        "```python\n" + "</think>\n" * 50_000,
    ):
        started = time.process_time()
        answer(text, None)
        assert time.process_time() - started < 2.0


def equal(expected: Any, got: Any, tolerance: float | None = None) -> bool:
    def no(value: Any) -> Any:
        raise NotPlain("no")

    return same(plain(expected, no), plain(got, no), tolerance)


@pytest.mark.parametrize(
    ("expected", "got", "tolerance", "right"),
    [
        (5, 5.0, None, True), (True, 1, None, True), (0, False, None, True), (5, "5", None, False), ("5", 5, None, False),
        ([1, [2]], (1, (2,)), None, True), ([1, 2], [1], None, False), ([1, 2], {1, 2}, None, False), ([], {}, None, False),
        ({"1": 2}, {1: 2}, None, True), ({"1.5": 2}, {1.5: 2}, None, True), ({"true": 2}, {True: 2}, None, True),
        ({"a": 1}, {"a": 1, "b": 2}, None, False), ({"1": 2}, {1: 2, "1": 3}, None, False), ({"null": 0}, {None: 0}, None, True),
        (None, None, None, True), (None, 0, None, False), (0, None, None, False), (NAN, NAN, None, True), (1.5, NAN, 1e-3, False),
        (INF, INF, None, True), (INF, 1e308, 1e-6, False), (0.3, 0.1 + 0.2, None, False), (0.3, 0.1 + 0.2, 1e-9, True),
        (1e9, 1e9 + 1, 1e-6, True), (0.0, 1e-7, 1e-6, True), (1.0, 1 + 1e-5, 1e-6, False), (10**400, 10**400, None, True),
        (10**400, 10**400 + 1, None, False), (1.0, 10**400, 1e-6, False), (1.5, Decimal("1.5"), None, True),
        ("a", b"a", None, False), ({1, 2}, {2, 1}, None, True), ({1, 2}, frozenset({1, 2}), None, True), (1, 1 + 0j, None, True),
        ({"x": [1, 2]}, {"x": (1.0, 2.0)}, None, True), ([[1, 2]], [(1, 2)], None, True), (2**53, 2**53 + 1, None, False),
    ],
)  # fmt: skip
def test_when_values_are_equal(expected: Any, got: Any, tolerance: float | None, right: bool) -> None:
    assert equal(expected, got, tolerance) is right


@pytest.mark.parametrize(
    ("expected", "got", "tolerance", "right"),
    [
        ("1\n2\n", "1\n2", None, True), ("1\n", "1  \n\n\n", None, True), ("1\r\n2\r\n", "1\n2\n", None, True), ("1\n", " 1\n", None, False),
        ("1 2", "1  2", None, False), ("1 2", "1\n2", None, False), ("a", "A", None, False), ("", "\n\n", None, True), ("", "x", None, False),
        ("\n1", "1", None, False), ("0.5 x", "0.50000001 x", 1e-6, True), ("0.5 x", "0.51 x", 1e-6, False), ("0.5", "0.50", None, False),
        ("1.0", " 1.0", 1e-6, False), ("nan", "nan", 1e-6, True), ("1", "nan", 1e-6, False), ("café", "cafe\u0301", None, False),
    ],
)  # fmt: skip
def test_when_outputs_are_equal(expected: str, got: str, tolerance: float | None, right: bool) -> None:
    assert same_output(expected, got, tolerance) is right


def test_keys_that_collide_cost_no_more_than_others() -> None:
    """A dict of such keys takes minutes to build; judged code may send one."""
    prime = (1 << 61) - 1
    tree = {"d": [[{"i": hex(prime * k)}, 0] for k in range(1, 30_000)]}
    fractions = {"s": [{"k": ["fractions", "Fraction", [k * prime, 7]]} for k in range(20_000)]}
    started = time.process_time()
    assert same(tree, {"d": list(reversed(tree["d"]))}) is True
    assert same({"s": [1]}, fractions) is False and len(shown(fractions)) <= 80
    assert time.process_time() - started < 5.0


@pytest.mark.parametrize(
    "tree", [{}, {"i": "zz"}, {"i": 5}, {"d": [1]}, {"t": 5}, {"k": ["os", "system", []]}, {"c": []}, {"x": 1, "y": 2}]
)
def test_what_is_no_tree_is_never_equal(tree: Any) -> None:
    for expected in (5, [1], {"d": [["a", 1]]}, "x", None):
        with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, ArithmeticError):
            assert same(expected, tree) is False
    assert isinstance(shown(tree), str)


def test_values_cross_the_line_as_they_are() -> None:
    def no(value: Any) -> Any:
        raise NotPlain("no")

    values = [
        None,
        True,
        5,
        -(10**30),
        1.5,
        INF,
        "a\ud800é\0",
        [1, (2, {3})],
        {"a": {1: b"x"}},
        frozenset({1}),
        1j,
        range(3),
        Decimal("1.50"),
    ]
    back = value_of(from_text(to_text(plain(values, no))))
    assert back == values and [type(v) for v in back] == [type(v) for v in values]
    deep: list[Any] = []
    for _ in range(DEPTH + 2):
        deep = [deep]
    loop: list[Any] = []
    loop.append(loop)
    for value in (deep, loop, object()):
        with pytest.raises(NotPlain):
            plain(value, no)
    for text in ("", "[1", "1 2", "{", "[1]x"):
        with pytest.raises(ValueError):
            from_text(text)


@pytest.mark.parametrize(
    "data",
    [
        None, 5, {}, {"type": "magic"}, {"type": "call", "fn": "f", "cases": []}, {"type": "call", "fn": "f"}, {"type": "call", "cases": [{"expected": 1}]},
        {"type": "call", "fn": "f", "cases": [{"args": [1]}]}, {"type": "call", "fn": "f", "cases": [{"args": 1, "expected": 1}]},
        {"type": "stdio", "cases": [{"input": "1"}]}, {"type": "stdio", "cases": [{"output": 5}]}, {"type": "asserts", "code": " "}, {"type": "unittest"},
        {"type": "asserts", "code": "assert 1", "cases": []}, {"type": "asserts", "code": "assert 1", "entry": "/x.py"},
        {"type": "call", "fn": "f", "cases": [{"expected": 1}], "float_tol": -1}, {"tests": {"type": "asserts", "code": "assert 1"}, "limits": {"gpu": 1}},
        {"public": {"type": "magic"}}, {"tests": {"type": "asserts", "code": "assert 1"}, "solution": 5},
    ],
)  # fmt: skip
def test_tests_that_are_not_understood_in_full_are_refused(data: Any) -> None:
    with pytest.raises(BadTests):
        reference(data)


def test_references_with_public_and_hidden_tests_and_limits() -> None:
    tests = {"type": "call", "fn": "f", "cases": [{"args": [i], "expected": i, "hidden": i > 2} for i in range(5)]}
    one = reference({"tests": tests, "limits": {"time_s": 99, "memory_mb": 128}, "solution": "def f(x): return x"})
    assert [c.hidden for c in one.sets[0].cases] == [False, False, False, True, True] and one.solution
    limits = limited(Limits(), one.limits)
    assert (limits.seconds, limits.total_seconds, limits.memory_mb, limits.procs) == (99.0, 99.0, 128, 64)
    with pytest.raises(BadTests):
        limited(Limits(), {"memory_mb": 1})
    two = reference(
        {"public": {**tests, "cases": tests["cases"][:1]}, "hidden": {"type": "asserts", "code": "assert f(9) == 9"}}
    )
    assert [(t.type, t.hidden) for t in two.sets] == [("call", False), ("asserts", True)]


def test_cases_are_held_back_the_same_way_every_time() -> None:
    tests = reference({"type": "stdio", "cases": [{"input": str(i), "output": "x"} for i in range(10)]}).sets[0]
    held = held_back(tests, 0.3, "task")
    assert sum(c.hidden for c in held.cases) == 3 and held == held_back(tests, 0.3, "task")
    assert held != held_back(tests, 0.3, "another task")
    assert sum(c.hidden for c in held_back(tests, 0.99, "t").cases) == 9 and held_back(tests, 0.0, "t") == tests


def test_feedback_says_no_more_than_its_level() -> None:
    program = answer("def f(x):\n    return {}[x]\n", None)
    shown_case = Failure(Fault.RUNTIME, "KeyError: 'secret'", 1, "f('secret')", False, ("solution.py", 2))
    report = Report(4, 1, (1, 2), (0, 2), shown_case)
    assert words(report, program, "verdict") == "1 of 4 cases passed (public 1 of 2, hidden 0 of 2)"
    assert "f('secret')" not in words(report, program, "error") and "line 2: return {}[x]" in words(report, program, "error")
    assert "f('secret')" in words(report, program, "case")
    hidden = replace(report, failure=replace(shown_case, hidden=True))
    for level in ("verdict", "error", "case"):
        assert "secret" not in words(hidden, program, level)  # type: ignore[arg-type]
    assert "f('secret')" in words(hidden, program, "all")
    wrong = replace(report, failure=Failure(Fault.WRONG, "a wrong value", 1, "f(1) gave 2, wanted 3", True))
    assert "wanted 3" not in words(wrong, program, "case") and "wanted 3" in words(wrong, program, "all")
    assert "stopped at the first failure of 4" in words(replace(report, whole=False), program, "case")


def test_rows_name_what_they_lack() -> None:
    tests = {"type": "stdio", "cases": [{"input": "", "output": "1"}]}
    task, text = case({"id": "a", "prompt": "p", "solution": {"main.py": "print(1)"}, "tests": tests, "limits": {"time_s": 2}})
    assert json.loads(text) == {"main.py": "print(1)"} and task.reference == {"tests": tests, "limits": {"time_s": 2}}
    assert case({"solution": None, "tests": None})[1] == "" and case({"solution": None, "tests": None})[0].reference is None
    for row, missing in (({"tests": tests}, "solution"), ({"solution": "x"}, "tests")):
        with pytest.raises(ConfigError, match=f"no field '{missing}'"):
            case(row)
    with pytest.raises(ConfigError, match="'solution' is int"):
        case({"solution": 5, "tests": tests})


def test_a_sandbox_may_be_named_by_a_word() -> None:
    assert Sandbox.model_validate("weak").kind == "weak"
    with pytest.raises(ValueError):
        Sandbox.model_validate("none")


def test_tests_may_be_json_text_as_files_with_typed_columns_hold_them() -> None:
    tests = {"type": "call", "fn": "f", "cases": [{"args": [1], "expected": 1}]}
    known = reference(tests)
    assert reference(json.dumps(tests)) == known == reference({"tests": json.dumps(tests)})
    with pytest.raises(BadTests, match="list, wanted one text"):
        reference({"type": "asserts", "code": ["assert f(1) == 1"]})
    for text in ("{", "[" * 100_000, '{"a":' * 100_000, "1/2", ""):
        with pytest.raises(BadTests):
            reference(text)


def test_a_pool_without_any_tests_is_refused_and_a_mixed_one_is_not() -> None:
    def made(*references: Any) -> Code:
        tasks = [Task("t", str(i), one) for i, one in enumerate(references)]
        return Code(Code.Settings(sandbox=Sandbox(kind="weak")), Build(0, tasks, 1, 1, 1))

    tests = {"type": "call", "fn": "f", "cases": [{"args": [1], "expected": 1}]}
    made("5", tests), made(tests, "5"), made()
    with pytest.raises(ConfigError, match=r"no task has tests as its reference: task \w+: the reference is str, not tests"):
        made("5", None, {"type": "cal"})
