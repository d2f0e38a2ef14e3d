"""Structured answers: JSON, lists and patterns, in the forms people write them."""

from __future__ import annotations

import contextlib
import json
import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfcr.build import _make
from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.killable import KillableVerifier
from gfcr.filter.texts.values import NoValue, find, lenient, plain, strict
from gfcr.filter.verifiers.structured.equal import Rules, canonical, share
from gfcr.filter.verifiers.structured.items import items
from gfcr.filter.verifiers.structured.rows import case
from gfcr.filter.verifiers.structured.verifier import Structured
from gfcr.registry import Slot
from gfcr.types import Status, StopReason, Task, Verdict
from lifecycle_cases import batch_of, row_advantages
from text_cases import through

GOLD = {"name": "Ada", "age": 36, "tags": ["a", "b"], "at": {"city": "London", "zip": None}}
TEXT = json.dumps(GOLD)


def judge(text: str, reference: object, stop: StopReason = StopReason.EOS, **own: object) -> Verdict:
    return Structured(Structured.Settings.model_validate(own)).judge(Task("t", "q", reference), text, stop)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        json.dumps(GOLD, indent=4),
        '{"tags": ["a", "b"], "at": {"zip": null, "city": "London"}, "age": 36.0, "name": "Ada"}',
        f"Here it is:\n```json\n{TEXT}\n```\nHope this helps!",
        f"```\n{TEXT}\n```",
        f"~~~JSON\n{TEXT}\n~~~",
        f"```json\n{TEXT}",
        f"Sure! The object is {TEXT}. See [1] for more.",
        f"\ufeff{TEXT}\r\n",
        f"<answer>{TEXT}</answer>",
        f"<think>maybe {{}}</think>{TEXT}",
        f'First I had {{"name": "Bob"}}, but it is {TEXT}',
        f"A stray {{ brace, then {TEXT} and a stray }} one",
        TEXT.replace('"', "“", 1).replace('"', "”", 1),
        str(GOLD),  # Python
        '{"name": "Ada", "age": 36, "tags": ["a", "b",], "at": {"city": "London", "zip": null},}',
        '{"name": "Ada", // who\n "age": 36, "tags": ["a", "b"], "at": {"city": "London", "zip": null}}',
        TEXT.replace("Ada", "\\u0041da"),
        f"{TEXT}<|im_end|>",
    ],
)
def test_right_json_in_odd_formats_passes(text: str) -> None:
    for reference in (GOLD, TEXT):
        verdict = judge(text, reference)
        assert verdict.correct is True, verdict.evidence
        assert verdict.answer == canonical(GOLD)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("no json here", "no JSON value"),
        (TEXT[:-1], "no JSON value|is missing|wanted"),
        (TEXT.replace("36", "37"), r"\$.age is 37, wanted 36"),
        (TEXT.replace("36", '"36"'), r'\$.age is "36", wanted 36'),
        (TEXT.replace("36", "true"), r"\$.age is true, wanted 36"),
        (TEXT.replace("36", "NaN"), "NaN is no JSON number"),
        (TEXT.replace('"age": 36, ', ""), r"\$.age is missing"),
        (TEXT.replace('"age": 36', '"age": 36, "x": 1'), r"\$.x is not in the reference"),
        (TEXT.replace('"age": 36', '"age": 35, "age": 36'), "stands twice"),
        (TEXT.replace('["a", "b"]', '["b", "a"]'), r"\$.tags\[0\]"),
        (TEXT.replace('["a", "b"]', '["a"]'), r"\$.tags has 1 elements, wanted 2"),
        (TEXT.replace("Ada", "ada"), r"\$.name"),
        ("[" * 100_000, "deeper|no JSON"),
        ("9" * 5000, "no JSON|wanted"),
    ],
)
def test_wrong_json_says_where(text: str, why: str) -> None:
    verdict = judge(text, GOLD)
    assert (verdict.status, verdict.correct, verdict.score) == (Status.SCORED, False, 0.0)
    import re

    assert re.search(why, verdict.evidence), verdict.evidence


def test_numbers_are_exact_unless_a_tolerance_is_given() -> None:
    assert judge("[0.1, 1e2]", [0.1, 100]).correct is True
    assert judge("[0.10000000000000001]", [0.1]).correct is False
    assert judge("[1.0000001]", [1]).correct is False
    assert judge("[1.05]", [1], rel_tol=0.05).correct is True
    assert judge("[1.051]", [1], rel_tol=0.05).correct is False
    assert judge("[0.001]", [0], rel_tol=0.5).correct is False and judge("[0.001]", [0], abs_tol=0.01).correct is True
    assert judge("[2]", [1], rel_tol=0.6).correct is False  # relative to the reference, not to what was found
    assert judge("[1e999999999]", [1], rel_tol=0.5).correct is False
    assert judge('["3"]', [3]).correct is False and judge('["3"]', [3], number_text=True).correct is True


def test_order_case_and_extra_keys_by_setting() -> None:
    assert judge('["b", "a"]', ["a", "b"], ordered=False).correct is True
    assert judge('["b", "b"]', ["a", "b"], ordered=False).correct is False
    assert judge('{"a": [[2, 1], [3]]}', {"a": [[3], [1, 2]]}, ordered=False).correct is True
    assert judge('["B "]', ["b"], ignore_case=True).correct is True
    assert judge('{"a": 1, "b": 2}', {"a": 1}, extra="ignore").correct is True
    assert judge("[1.04, 2.01]", [2, 1], ordered=False, rel_tol=0.05).correct is True
    # greedy pairing would give 1.05 to 1.1 and leave 1.0 without a partner
    assert judge("[1.05, 1.14]", [1.0, 1.1], ordered=False, abs_tol=0.05).correct is True


def test_the_share_of_right_leaves_is_the_score_and_correct_needs_all() -> None:
    part = judge(TEXT.replace("36", "37"), GOLD, partial=True)
    assert (part.score, part.correct) == (5 / 6, False) and "5 of 6" in part.evidence
    assert judge(TEXT, GOLD, partial=True).score == 1.0
    assert judge('{"a": 1, "b": 2}', {"a": 1}, partial=True).score == 0.5
    assert judge("[1, 2, 3, 9]", [1, 2, 3], partial=True).score == 0.75
    assert judge("{}", GOLD, partial=True).score == 0.0
    assert judge("[3, 1]", [1, 2, 3], partial=True, ordered=False).score == 2 / 3


@pytest.mark.parametrize(
    ("text", "reference", "own", "right"),
    [
        ("[1, 2, 3]", [1, 2, 3], {}, True),
        ("1, 2, 3", [1, 2, 3], {}, True),
        ("1; 2; 3", "1, 2, 3", {}, True),
        ("The answer is 1, 2 and 3.", [1, 2, 3], {}, True),
        ("The answer is: apples, pears, and plums.", ["apples", "pears", "plums"], {}, True),
        ("- 1\n- 2\n- 3", [1, 2, 3], {}, True),
        ("1. apples\n2. pears", ["apples", "pears"], {}, True),
        ("The answer is:\n\n* apples\n* pears", ["apples", "pears"], {}, True),
        ("I considered it.\n\n1) a\n2) b\n\nThat is all.", ["a", "b"], {}, True),
        (r"\boxed{1, 2, 3}", [1, 2, 3], {}, True),
        (r"$\{1, 2, 3\}$", [1, 2, 3], {}, False),  # LaTeX sets belong to `math`
        ("<answer>['a', 'b']</answer>", ["a", "b"], {}, True),
        ("1,000; 2,000", [1000, 2000], {}, True),
        ("(1, 2), (3, 4)", ["(1, 2)", "(3, 4)"], {}, True),
        ("0.5, 1/4", [0.5, 0.25], {}, True),
        ("apples and pears", ["apples", "pears"], {}, True),
        ('"a, b", c', ["a, b", "c"], {}, True),
        ("a | b", ["a", "b"], {"separators": ["|"]}, True),
        ("3, 2, 1", [1, 2, 3], {}, False),
        ("3, 2, 1", [1, 2, 3], {"ordered": False}, True),
        ("1, 2", [1, 2, 3], {}, False),
        ("1, 2, 3, 4", [1, 2, 3], {}, False),
        ("A, B", ["a", "b"], {"ignore_case": True}, True),
        ("", [1], {}, False),
        ("red\ngreen\nblue", ["red", "green", "blue"], {}, True),
    ],
)
def test_lists(text: str, reference: object, own: dict, right: bool) -> None:
    verdict = judge(text, reference, kind="list", **own)
    assert verdict.correct is right, (verdict.evidence, items(text))


@pytest.mark.parametrize(
    ("text", "pattern", "own", "right"),
    [
        ("2024-01-31", r"\d{4}-\d\d-\d\d", {}, True),
        ("The answer is 2024-01-31.", r"\d{4}-\d\d-\d\d", {}, True),
        ("Answer: **2024-01-31**", r"\d{4}-\d\d-\d\d", {}, True),
        (r"\boxed{abc}", "abc", {}, True),
        ("It was long ago.\n2024-01-31", r"\d{4}-\d\d-\d\d", {}, True),
        ("2024-01-31 or so", r"\d{4}-\d\d-\d\d", {}, False),
        ("2024-01-31 or so", r"\d{4}-\d\d-\d\d", {"match": "search"}, True),
        ("ABC", "abc", {}, False),
        ("ABC", "abc", {"ignore_case": True}, True),
        ("U.S.A.", r"U\.S\.A\.", {}, True),
        ("The answer is U.S.A.", r"U\.S\.A\.", {}, True),
    ],
)
def test_patterns(text: str, pattern: str, own: dict, right: bool) -> None:
    verdict = judge(text, pattern, kind="regex", **own)
    assert verdict.correct is right, verdict.evidence


@pytest.mark.parametrize(
    ("reference", "own"),
    [(None, {}), ("{broken", {}), ("(", {"kind": "regex"}), (5, {"kind": "regex"}), (5, {"kind": "list"})],
)
def test_a_bad_reference_is_unscorable(reference: object, own: dict) -> None:
    verdict = judge("{}", reference, **own)
    assert (verdict.status, verdict.score) == (Status.UNSCORABLE, None)


def test_a_pattern_runs_where_it_can_be_killed_and_a_hang_is_unscorable() -> None:
    build = Build(0, [Task("t", "q", "(a+)+b")], 1, 1, 8)
    hangs = _make(Slot.VERIFIER, "structured", {"kind": "regex"}, build)
    assert not hangs.bounded and _make(Slot.VERIFIER, "structured", {}, build).bounded
    assert not Structured(Structured.Settings()).bounded  # rows may bring a pattern
    killable = KillableVerifier(hangs, 0.5)
    try:
        began = time.monotonic()
        assert killable.judge(build.tasks[0], "a" * 60, StopReason.EOS).status is Status.UNSCORABLE
        assert killable.judge(build.tasks[0], "aab", StopReason.EOS).correct is True
        assert time.monotonic() - began < 60
    finally:
        killable.close()
    assert pickle.loads(pickle.dumps(hangs)).judge(build.tasks[0], "ab", StopReason.EOS).correct is True


def test_settings_of_a_task_go_before_the_recipes() -> None:
    verifier = Structured(Structured.Settings())
    own = Task("t", "q", "1, 2", meta={"structured": {"kind": "list"}})
    assert verifier.judge(own, "1, 2", StopReason.EOS).correct is True
    wrong = Task("t", "q", "1", meta={"structured": {"kind": "tree"}})
    assert verifier.judge(wrong, "1", StopReason.EOS).status is Status.UNSCORABLE
    with pytest.raises(ConfigError, match="column 'structured': kind"):
        Structured(Structured.Settings(), Build(0, [wrong], 1, 1, 8))


def test_rows() -> None:
    verifier = Structured(Structured.Settings())
    for row, right in (
        ({"gold": {"a": 1}, "prediction": '{"a": 1}'}, True),
        ({"kind": "list", "gold": [1, 2], "prediction": "2, 1", "ordered": False}, True),
        ({"kind": "regex", "gold": "a+", "prediction": "b"}, False),
        ({"gold": {"a": 1}, "prediction": None}, False),
        ({"gold": None, "prediction": "{}"}, None),
    ):
        task, text = case(row)
        assert verifier.judge(task, text, StopReason.EOS).correct is right
    with pytest.raises(ConfigError, match="kind is 'xml'"):
        case({"kind": "xml", "gold": "", "prediction": ""})
    with pytest.raises(ConfigError, match="no field 'prediction'"):
        case({"gold": 1})


def test_from_recipe_to_batch() -> None:
    answers = ['{"a": 1, "b": 2}', '{"a": 1, "b": 3}', "```json\n{'b': 2, 'a': 1}\n```", "{}"]
    made, members = through(Task("t", "q", {"a": 1, "b": 2}), answers, verifiers=[{"name": "structured", "partial": True}])
    assert [m.signals.reward for m in members] == [1.0, 0.5, 1.0, 0.0]
    assert [m.signals.correct for m in members] == [True, False, True, False]
    batch = batch_of(made)
    by_id = dict(zip(batch.rollout_ids, row_advantages(batch)))
    assert [by_id[m.rollout.id] for m in members] == pytest.approx([0.375, -0.125, 0.375, -0.625])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_a_value_equals_itself_and_its_text_is_found(value: object) -> None:
    text = json.dumps(value)
    assert share(strict(text), value, Rules()) == 1 and share(strict(text), value, Rules(ordered=False, rel_tol=0.1)) == 1
    assert canonical(strict(text)) == canonical(value)
    if isinstance(value, (dict, list)) and value:
        assert canonical(find(f"So here you are:\n{text}\nDone.", want=type(value))[0]) == canonical(value)
    assert plain(strict(text)) == json.loads(text) or value != value


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="{}[]\",:'1aT \n`\\/*-", max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    for read in (strict, lenient, find):
        with contextlib.suppress(NoValue):
            read(text)


def test_no_text_takes_long() -> None:
    for text in ("[" * 8_000, "{" * 8_000 + "}" * 8_000, '{"a":' * 8_000, '"' * 8_000, "[1," * 8_000, "- a\n" * 8_000, "a, " * 8_000, "```\n" * 8_000, "\\boxed{" * 8_000, "answer is " * 8_000, "1" * 8_000, "/*" * 8_000, ",]" * 8_000):  # fmt: skip
        for kind in ("json", "list"):
            began = time.process_time()
            judge(text, [1], kind=kind)
            assert time.process_time() - began < 3, (text[:8], kind)
