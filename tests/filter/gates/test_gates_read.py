"""Gates that read: a final answer, sections, JSON under a schema. Right answers in odd formats pass."""

from __future__ import annotations

import json
import sys

import pytest
from gate_cases import judge, passes

from gfcr.context import Build
from gfcr.errors import ConfigError, MissingExtra
from gfcr.filter.gates.schema import JsonSchema
from gfcr.types import Status, StopReason, Task

STATED = {"forms": ["stated"]}


@pytest.mark.parametrize(
    "text",
    [
        "42",
        r"\boxed{42}",
        r"so $\boxed{\text{B}}$.",
        "<answer>42</answer>",
        "<Answer>\n42\n</ANSWER>",
        "<answer>42",
        "#### 42",
        "The answer is 42",
        "**Final answer:** 42",
        "Answer:\r\n\r\n42",
        "\ufeff42",
        "答案：42",
        "☆",
        "<think>hm</think>\n42",
        "I think 42.</think>",
        "-½",
        "∅",
    ],
)
def test_every_form_of_a_final_answer_passes(text: str) -> None:
    assert passes("parse", text)


@pytest.mark.parametrize(
    ("text", "forms", "ok"),
    [
        ("", ["words"], False),
        (" \n\t", ["words"], False),
        ("...", ["words"], False),
        ("<think>42</think>", ["words", "stated", "last-number"], False),
        ("<think>42", ["words"], False),
        ("it is forty-two", ["stated"], False),
        (r"\boxed{}", ["stated"], False),
        (r"\boxed{ }", ["boxed"], False),
        ("<answer></answer>", ["tags"], False),
        ("<answer>x</answer>", ["boxed", "tags"], True),
        ("forty", ["last-number"], False),
        ("```json\n{'a': 1,}\n```", ["json"], True),
        ("{a", ["json"], False),
        ("~~~\nx\n~~~", ["fence"], True),
        ("```\n```", ["fence"], False),
    ],
)
def test_forms(text: str, forms: list[str], ok: bool) -> None:
    assert passes("parse", text, forms=forms) is ok


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>b</answer>",
        "<think>\r\na\r\n</think>\r\n\r\n<answer>\r\nb\r\n</answer>\r\n",
        "a</think><answer>b</answer>",  # the prompt opened it
        "<THINK>a</THINK> <Answer>b</ Answer >",
        "<think>I shall put it into <answer>...</answer>.</think><answer>b</answer>",
        "<think>a</think><answer>b</answer> Hope this helps!",
        "<think>a</think>\nSo:\n<answer>b",
        "\ufeff<think></think><answer>b</answer>",
        "<think>a <think>b</think></think><answer>c</answer>",
    ],
)
def test_sections_in_order_pass(text: str) -> None:
    assert passes("sections", text), judge("sections", text).evidence


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "<answer> is not there"),
        ("b", "<answer> is not there"),
        ("<think>a</think>b", "<answer> is not there"),
        ("<answer>b</answer>", "<think> is not there"),
        ("<answer>b</answer><think>a</think>", "<think> is not there"),
        ("<think>a</think><answer> </answer>", "<answer> is empty"),
        ("<think>a</think>b</answer>", "</answer> closes nothing"),
    ],
)
def test_sections_that_are_not_there_are_named(text: str, why: str) -> None:
    verdict = judge("sections", text)
    assert verdict.status is Status.INVALID and verdict.evidence.startswith(why)


def test_text_after_the_last_section_by_setting() -> None:
    text = "<think>a</think><answer>b</answer> c"
    assert passes("sections", text) and not passes("sections", text, last=True)
    with pytest.raises(ConfigError, match="no name of a tag"):
        judge("sections", "", names=["a b"])


SCHEMA = {
    "type": "object",
    "required": ["name", "age"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
}
GOOD = {"name": "Ada", "age": 36}
TEXT = json.dumps(GOOD)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"```json\n{TEXT}\n```",
        f"Sure, here you go:\n\n```JSON\r\n{TEXT}\r\n```\r\nAnything else?",
        f"~~~\n{TEXT}\n~~~",
        f"\ufeff{TEXT}",
        f"The result: {TEXT}. As in [1].",
        f"<answer>{TEXT}</answer>",
        f"<think>{{}}</think>{TEXT}",
        "{'name': 'Ada', 'age': 36,}",
        "{“name”: “Ada”, “age”: 36}",
        '{"age": 36, "name": "Ada", "more": [1, 2]}',
        '{"name": "<think> </s>", "age": 36}',
        json.dumps(GOOD, indent=8),
    ],
)
def test_fitting_json_in_odd_formats_passes(text: str) -> None:
    verdict = judge("json-schema", text, json_schema=SCHEMA)
    assert verdict.status is Status.SCORED, verdict.evidence


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON value"),
        ("Ada is 36", "no JSON value"),
        (TEXT[:-1], "no JSON value"),
        ('{"name": "Ada"}', "'age' is a required property"),
        ('{"name": "Ada", "age": -1}', r"$.age: -1 is less than"),
        ('{"name": 5, "age": 1}', "$.name: 5 is not of type"),
        ("[1]", "is not of type 'object'"),
        ('{"name": "Ada", "age": NaN}', "NaN"),
    ],
)
def test_what_does_not_fit_is_named(text: str, why: str) -> None:
    verdict = judge("json-schema", text, json_schema=SCHEMA)
    assert verdict.status is Status.INVALID and why in verdict.evidence, verdict.evidence


def test_schemas_are_checked_when_the_gate_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="is no JSON schema"):
        judge("json-schema", TEXT, json_schema={"type": "objekt"})
    own = Task("t", "q", None, meta={"json_schema": {"type": 5}})
    with pytest.raises(ConfigError, match="column 'json_schema' is no JSON schema"):
        JsonSchema(JsonSchema.Settings(), Build(0, [own], 1, 1, 8))
    assert judge("json-schema", TEXT, task=own).status is Status.UNSCORABLE  # never the policy's fault
    far = {"$ref": "https://example.com/schema.json"}
    assert judge("json-schema", TEXT, json_schema=far).status is Status.UNSCORABLE  # nothing is fetched
    assert passes("json-schema", "[1]", task=Task("t", "q", None, meta={"json_schema": {"type": "array"}}))
    assert passes("json-schema", "5") and not passes("json-schema", "five")
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtra, match="structured"):
        judge("json-schema", TEXT, json_schema={"type": "object", "title": "not cached"})


@pytest.mark.parametrize("gate", ["parse", "sections", "json-schema", "code-compiles", "sql-parses", "tool-call"])
def test_a_cut_answer_passes_unjudged_and_ours_is_unscorable(gate: str) -> None:
    assert judge(gate, "(", stop=StopReason.MAX_TOKENS).status is Status.SCORED
    assert judge(gate, "(", stop=StopReason.FAILED).status is Status.UNSCORABLE
