"""What stands in an answer's text: zones keep offsets, statements and blocks lie where they say."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.filter.texts.fences import blocks, programs
from gfcr.filter.texts.lines import lines
from gfcr.filter.texts.spoken import spoken
from gfcr.filter.texts.stated import statements
from gfcr.filter.texts.values import NoValue, brackets, find, lenient, strict

PARTS = ["<think>", "</think>", "<answer>", "</answer>", "\\boxed{", "}", "```", "~~~py", "\n", "\r\n", "Answer: ", "####", " x ", "B", "<|im_end|>", "\ufeff", " "]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("x<think>a</think>b<think>c</think>d", "x b d"),
        ("<THINK >a</think>b", "b"),
        ("<think>a", ""),
        ("<think>a<answer>b</answer>", "<answer>b</answer>"),
        ("a</think>b", "b"),
        ("b<|im_end|>\n<|im_start|>user\nc", "b"),
        ("<|im_start|>b", "<|im_start|>b"),
        ("<reasoning>a</reasoning>b", "b"),
    ],
)
def test_what_is_said_to_the_reader(text: str, first: str) -> None:
    assert " ".join(spoken(text)[0].split()) == first


def test_thinking_that_the_prompt_opened_is_a_second_zone() -> None:
    after, before = spoken("a</think>b")
    assert (after.strip(), before.strip()) == ("b", "a")
    assert len(spoken("<think>a</think>b")) == 1


@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join))
def test_offsets_stay(text: str) -> None:
    for zone in spoken(text):
        assert len(zone) == len(text)
        assert all(z == t or z in " \n" for z, t in zip(zone, text))
        found = statements(zone)
        assert all(0 <= s.mark <= s.start <= s.end <= len(zone) for s in found)
        assert [s.start for s in found] == sorted(s.start for s in found)
        for block in blocks(zone):
            assert zone[block.start : block.end] == block.text
        assert lines(zone) == [(a, b) for a, b in _naive(zone)]


def _naive(text: str) -> list[tuple[int, int]]:
    out, at = [], 0
    for line in text.split("\n"):
        if line.strip():
            out.append((at, at + len(line)))
        at += len(line) + 1
    return out


def test_blocks_and_programs() -> None:
    text = "a\n```Python title\nx = 1\n```\n~~~\ny\n```\nz\n~~~\n````\n```\n````\n```sql\nopen"
    found = blocks(text)
    assert [(b.language, b.text) for b in found] == [("python", "x = 1\n"), ("", "y\n```\nz\n"), ("", "```\n"), ("sql", "open")]
    assert programs(text, frozenset({"python"}))[0] == "x = 1" and programs("  a\n  b", frozenset()) == ["a\nb"]


def test_a_value_is_taken_whole_or_not_at_all() -> None:
    assert find('{"a": {"b": 1}}')[0] == {"a": {"b": 1}}
    for broken in ('{"a": {"b": 1}, "c": NaN}', '{"a": 1, "a": {"b": 1}}'):
        with pytest.raises(NoValue):
            find(broken, want=dict)
    assert find('a 5" screen: {"a": 1} and 6"')[0] == {"a": 1}  # quotes of the prose are no strings
    assert find('{"a": 1} [1]', want=dict)[0] == {"a": 1} and find('{"a": 1} [1]')[0] == [1]
    assert brackets("{ no } {“a”: 1} [B] [1]") == [(7, 15), (20, 23)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 'it\\'s \"so\"', 'b': (1, None, True)}", {"a": 'it\'s "so"', "b": [1, None, True]}),
        ('{"a": "True, None (x)"}', {"a": "True, None (x)"}),
        ("[1, 2,]", [1, 2]),
        ("{“a”: “b”}", {"a": "b"}),
        ('{"a": 1 /* one */, // two\n "b": "//"}', {"a": 1, "b": "//"}),
    ],
)
def test_what_people_write_in_jsons_place(text: str, value: object) -> None:
    assert lenient(text) == value
    with pytest.raises(NoValue):
        strict(text + ",")


@pytest.mark.parametrize("text", ["{'a': 'b}", "{'a': 1", "{a: 1}", "[1 2]", "{'a': {1, 2}}", "[1e]", "(1", "'"])
def test_what_is_no_value(text: str) -> None:
    with pytest.raises(NoValue):
        lenient(text)


def test_blanks_take_no_time() -> None:
    for text in ("answer" + " " * 100_000, "\n" * 100_000 + "x", "```" + " " * 100_000 + "`", "so " + "\n\n" * 50_000, '"' + '\\"' * 50_000, "- " + "\t" * 100_000):  # fmt: skip
        began = time.process_time()
        spoken(text), statements(text), blocks(text), lines(text), brackets("[" + text)
        assert time.process_time() - began < 1, text[:9]
