"""Reading tool calls out of what a policy wrote."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfcr.environments.calls import read
from gfcr.environments.contract import Said, ToolCall

ONE = '{"name": "add", "arguments": {"a": 1, "b": 2.5}}'
ADD = ToolCall("add", {"a": 1, "b": 2.5})


def test_hermes_calls_in_order_with_what_stands_around_them():
    text = f'I add.<tool_call>\n{ONE}\n</tool_call> and <tool_call>{{"name": "now", "id": "call_7"}}</tool_call> done'
    assert read(text, "hermes") == Said(text, (ADD, ToolCall("now", {}, "call_7")))
    assert read(f"<tool_call>{ONE}", "hermes").calls == (ADD,)  # the end of the turn closes it
    assert read("plain", "hermes") == Said("plain")
    assert read(ONE, "hermes") == Said(ONE)  # without a tag it is no call


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('{"name": "add", "parameters": {"a": 1, "b": 2.5}}', (ADD,)),
        (f"<|python_tag|>{ONE}", (ADD,)),
        (f"{ONE}; {ONE}", (ADD, ADD)),
        (f"{ONE}\n{ONE}\n", (ADD, ADD)),
        (f"[{ONE}, {ONE}]", (ADD, ADD)),
        (f'{{"type": "function", "function": {ONE}}}', (ADD,)),
        ("the answer is 3", ()),
        ('{"result": 3}', ()),
        ("{1, 2}", ()),
    ],
)
def test_llama_calls_are_the_whole_turn(text, calls):
    found = read(text, "llama")
    assert found.calls == calls and found.invalid == "" and found.text == text


def test_a_block_of_the_language_is_a_call_unless_the_turn_has_a_final_answer():
    text = "Let me see.\n```python\nprint(1)\n```\nand\n```py\nprint(2)\n```\n"
    assert [c.arguments["code"] for c in read(text, "python", "python", "code").calls] == ["print(1)\n", "print(2)\n"]
    assert read("```\n1 + 1\n```", "python", "python", "code").calls == (ToolCall("python", {"code": "1 + 1\n"}),)
    assert read("```bash\nls\n```", "python", "python", "code").calls == ()
    assert read("```\nx\n```\n```sql\nSELECT 1\n```", "sql", "sql", "query").calls == (
        ToolCall("sql", {"query": "SELECT 1\n"}),
    )
    assert read("<answer>```sql\nSELECT 1\n```</answer>", "sql", "sql", "query") == Said(
        "<answer>```sql\nSELECT 1\n```</answer>"
    )
    assert read(text, "text") == Said(text)


def test_thoughts_hold_no_calls():
    text = f"<think>I could <tool_call>{ONE}</tool_call></think>No."
    assert read(text, "hermes").calls == () and read(text, "any").calls == ()
    assert read(f"so <tool_call>{ONE}</tool_call></think><tool_call>{ONE}</tool_call>", "hermes").calls == (ADD,)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<tool_call>{'name': </tool_call>", "bad_json"),
        ("<tool_call></tool_call>", "bad_json"),
        ('<tool_call>{"arguments": {}}</tool_call>', "no_call"),
        ('<tool_call>{"name": "add", "arguments": [1]}</tool_call>', "no_call"),
        ('<tool_call>{"name": "add", "arguments": "{"}</tool_call>', "no_call"),
        ("<tool_call>3</tool_call>", "no_call"),
        ('<tool_call>{"name": "a", "arguments": {"x": 1, "x": 2}}</tool_call>', "bad_json"),
        ('<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>', "bad_json"),
    ],
)
def test_what_cannot_be_read_says_why_and_the_others_stand(text, kind):
    found = read(f"{text}<tool_call>{ONE}</tool_call>", "hermes")
    assert found.invalid.partition(":")[0] == kind and found.calls == (ADD,)


def test_literals_of_python_are_read_unless_strictness_is_wanted():
    text = "<tool_call>{'name': 'add', 'arguments': {'a': True,}}</tool_call>"
    assert read(text, "hermes").calls == (ToolCall("add", {"a": True}),)
    assert read(text, "hermes", mend=False).invalid.startswith("bad_json")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["<tool_call>", "</tool_call>", ONE, "{", "}", '"name"', "```python\n", "```", "<think>", "</think>"])
        | st.text(max_size=8)
    ),
    st.sampled_from(["hermes", "llama", "any", "python", "sql", "text"]),
)
def test_no_text_makes_it_raise_and_arguments_are_plain_data(parts, how):
    text = "".join(parts)
    found = read(text, how, "t", "x")
    assert found.text == text
    for one in found.calls:
        json.dumps(one.arguments)
        assert isinstance(one.name, str)
