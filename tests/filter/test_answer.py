"""The final answer: found where the recipe says, compared exactly, and never right by resemblance."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.domains.answers import Extract, extract, normalise, number, same
from gfcr.errors import ConfigError
from gfcr.registry import Slot, find, settings_of
from gfcr.types import Status, StopReason, Task, Verdict


def judge(mode: str, text: str, reference: object = "42", stop: StopReason = StopReason.EOS, **more: object) -> Verdict:
    found = find(Slot.VERIFIER, "answer")
    assert found.cls is not None
    return found.cls(settings_of(found, {"mode": mode, **more}), None).judge(Task("math", "q", reference), text, stop)


@pytest.mark.parametrize(
    ("mode", "text", "found"),
    [
        ("hash", "6*7=42\n#### 42", "42"),
        ("hash", "#### 41\nno: #### 42 \nbye", "42"),
        ("hash", "##### 42", "42"),
        ("hash", "the answer is 42", None),
        ("hash", "####", ""),
        ("boxed", r"so \boxed{42}", "42"),
        ("boxed", r"\boxed{41} rather \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("boxed", r"\fbox{42}", "42"),
        ("boxed", r"\boxed{41} then \boxed{42", "41"),
        ("boxed", r"\boxed{\text{a \} b}}", r"\text{a \} b}"),
        ("boxed", r"a } stray \boxed{42} brace {", "42"),
        ("boxed", "42", None),
        ("tags", "<answer>41</answer><answer> 42\n</answer>", "42"),
        ("tags", "<answer>42", None),
        ("last-number", "between 3-2 and 1,234.50 it is", "1,234.50"),
        ("last-number", "x = -2", "-2"),
        ("last-number", "3-2", "2"),
        ("last-number", "none", None),
        ("whole", " 42 ", "42"),
    ],
)
def test_where_the_answer_stands(mode: str, text: str, found: str | None) -> None:
    assert extract(text, Extract(mode)) == found


@pytest.mark.parametrize(
    ("answer", "reference", "equal"),
    [
        ("42", "42.0", True),
        ("1,234", "1234", True),
        ("$18", "18", True),
        ("18.", "18", True),
        ("0.5", "1/2", True),
        (r"\frac{3}{4}", "0.75", True),
        ("−3", "-3", True),
        (".5", "0.50", True),
        ("1,23", "123", False),
        ("50%", "50", False),
        ("0.333", "1/3", False),
        ("1/0", "1/0", True),
        ("x+1", "x + 1", False),
        ("two  words", "two words", True),
        ("1e400", "1e401", False),
        ("9" * 500, "9" * 499 + "8", False),
        ("", "0", False),
    ],
)
def test_what_is_the_same(answer: str, reference: str, equal: bool) -> None:
    assert same(answer, reference) is equal and same(reference, answer) is equal


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6))
def test_numbers_are_exact(top: int, bottom: int) -> None:
    assert same(f"{top}/{bottom}", f"{2 * top}/{2 * bottom}") and not same(f"{top}/{bottom}", f"{top + 1}/{bottom}")
    assert same(f"{top:,}", str(top)) and number(str(top)) == top


@given(st.text(max_size=60), st.sampled_from(list(Extract)))
def test_any_text_is_read_and_equals_itself(text: str, mode: Extract) -> None:
    found = extract(text, mode)
    assert found is None or (found in text and same(found, found))
    assert normalise(normalise(text)) == normalise(normalise(normalise(text)))


def test_right_wrong_and_unscorable() -> None:
    assert judge("hash", "#### 42").correct is True and judge("hash", "#### 41").correct is False
    assert judge("hash", "42").correct is False and "no final answer" in judge("hash", "42").evidence
    assert judge("hash", "#### 42", "6*7\n#### 42").correct is True  # a reference that was not extracted
    assert judge("hash", "#### 42", 42).correct is True
    for verdict in (judge("hash", "#### 42", None), judge("hash", "#### 42", stop=StopReason.CANCELLED)):
        assert (verdict.status, verdict.score, verdict.correct) == (Status.UNSCORABLE, None, None)


def test_text_after_the_answer_does_not_lose_it() -> None:
    """verl#7274: only the last 300 characters were searched."""
    assert judge("hash", "#### 42\n" + "filler " * 80).correct is True


def test_a_cut_answer() -> None:
    cut = StopReason.MAX_TOKENS
    assert judge("hash", "#### 42\nand so on", stop=cut).correct is False
    assert judge("hash", "#### 42\nand so on", stop=cut, accept_cut=True).correct is True
    assert judge("hash", "#### 42", stop=cut, accept_cut=True).correct is False  # it may have become 421


def test_no_text_takes_long() -> None:
    for text in (
        r"\boxed{" * 50_000,
        "{" * 200_000,
        "1" * 200_000,
        "1,111" * 40_000,
        "####" * 50_000,
        "<answer>" * 30_000,
        r"\frac{" * 30_000,
        "(" * 200_000,
    ):
        began = time.process_time()
        for mode in Extract:
            judge(mode, text)
        assert time.process_time() - began < 2


def test_the_mode_must_be_said() -> None:
    with pytest.raises(ConfigError, match="mode: Field required"):
        settings_of(find(Slot.VERIFIER, "answer"), {})


@pytest.mark.parametrize(
    ("mode", "text", "reference", "correct"),
    [
        ("last-number", "so the answer is 4", "3/4", False),
        ("last-number", "30", "12:30", None),
        ("last-number", "it is 5", "1e5", None),
        ("last-number", "it is 5", 1e-05, False),
        ("hash", "#### 0.00001", 1e-05, True),
        ("hash", "#### 10000000000000000", 1e16, True),
        ("boxed", r"\boxed{\rightarrow}", r"\leftarrow", False),
        ("boxed", r"\boxed{\left(1\right)}", "(1)", True),
        ("last-number", "so 7", "add them: 7", True),
    ],
)
def test_a_reference_is_never_cut_down_to_a_part(mode: str, text: str, reference: object, correct: bool | None) -> None:
    assert judge(mode, text, reference).correct is correct
