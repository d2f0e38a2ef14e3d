"""Chats with tool calls out of tables: every form kept, nothing lost, what cannot be kept refused."""

import json

import pytest

from gfcr.domains.chats import prompt_of, tools_of
from gfcr.domains.source import FileTasks
from gfcr.errors import ConfigError, DataError
from gfcr.run.bodies import task_body
from gfcr.run.decode import task as decoded
from gfcr.types import Message, Part, PartKind, Task, ToolCall
from gfcr.types.task import messages_to_json

USER = {"role": "user", "content": "12 + 30?"}
RESULT = {"role": "tool", "content": "42", "name": "add", "tool_call_id": "c1"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"y": 1, "x": [2]}}},
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"y": 1, "x": [2]}'}},
        {"id": "c1", "name": "add", "arguments": {"y": 1, "x": [2]}},
    ],
)
def test_forms_of_a_call(call):
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    user, assistant, tool = prompt_of([USER, said, RESULT], "prompt")
    assert assistant == Message("assistant", (), calls=(ToolCall("add", {"y": 1, "x": [2]}, "c1"),))
    assert list(assistant.calls[0].arguments) == ["y", "x"]  # the order a template shows
    assert tool == Message("tool", (Part(PartKind.TEXT, "42"),), "add", call_id="c1")
    assert (user.calls, user.call_id) == ((), None)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"role": "assistant", "content": "x", "tool_calls": [{"name": "f", "arguments": "[1"}]}, "a name and a table"),
        ({"role": "assistant", "content": "x", "tool_calls": [{"name": "f", "arguments": {}, "more": 1}]}, "nothing else"),
        ({"role": "assistant", "content": "x", "tool_calls": [{"arguments": {}}]}, "a name and a table"),
        ({"role": "assistant", "content": "x", "tool_calls": [7]}, "a name and a table"),
        ({"role": "assistant", "content": "x", "tool_calls": [{"name": "f", "arguments": '{"x": NaN}'}]}, "at x: nan"),
        ({"role": "user", "content": "x", "tool_calls": [{"name": "f"}]}, "only an assistant's may"),
        ({"role": "tool", "content": "x", "tool_call_id": 7}, "'tool_call_id' is text"),
        ({"role": "assistant", "content": "x", "reasoning_content": "hm"}, "'reasoning_content', which would be lost"),
        ({"role": "assistant", "content": None}, "needs a role and text"),
    ],
)
def test_what_cannot_be_kept_is_refused(item, words):
    with pytest.raises(ValueError, match=words):
        prompt_of([USER, item, USER], "prompt")


def test_tools_of_a_table_become_the_tasks(tmp_path):
    file = tmp_path / "t.jsonl"
    rows = [
        {"prompt": [USER], "answer": "42", "tools": [TOOL]},
        {"prompt": [{**USER, "content": "1?"}], "answer": "1", "tools": json.dumps([TOOL])},
        {"prompt": [{**USER, "content": "2?"}], "answer": "2", "tools": None},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second, third = FileTasks(file, "t").load()
    assert [json.loads(t) for t in first.tools] == [TOOL]
    assert (first.tools, third.tools) == (second.tools, ())
    assert "tools" not in first.meta
    file.write_text(json.dumps({"prompt": "hang a picture", "answer": "nail", "tools": "hammer"}) + "\n")
    (task,) = FileTasks(file, "t").load()  # a label, no schemas
    assert (task.tools, task.meta["tools"]) == ((), "hammer")
    with pytest.raises(DataError, match="tools are a list of JSON schemas"):
        FileTasks(file, "t", {"tools": "tools"}).load()
    with pytest.raises(ConfigError, match="reads tools from 'functions'"):
        FileTasks(file, "t", {"tools": "functions"}).load()
    with pytest.raises(ValueError, match="nan is not a finite"):
        tools_of([{"x": float("nan")}], "tools")


def test_ids_of_tasks_without_calls_are_what_they_were():
    """Computed before messages had calls; a task with calls has another id than one without."""
    parts = (Part(PartKind.TEXT, "12 + 30?"),)
    assert Task("d", (Message("system", ()), Message("user", parts, "ann"))).id == "65a13c8ceed70975d16519b1d31c1b45"
    plain = Task("d", (Message("user", parts), Message("assistant", ()), Message("tool", parts)))
    called = Task("d", (Message("user", parts), Message("assistant", (), calls=(ToolCall("f", {}),)), Message("tool", parts)))
    answered = Task("d", (Message("user", parts), Message("assistant", ()), Message("tool", parts, call_id="")))
    assert len({plain.id, called.id, answered.id}) == 3
    assert messages_to_json(plain.prompt) == [
        {"role": "user", "parts": [{"kind": "text", "text": "12 + 30?"}]},
        {"role": "assistant", "parts": []},
        {"role": "tool", "parts": [{"kind": "text", "text": "12 + 30?"}]},
    ]


def test_a_stored_task_has_its_calls_in_their_order():
    calls = (ToolCall("f", {"b": 1, "a": [{"$x": None}]}, "c1"), ToolCall("g", {}))
    task = Task("d", (Message("assistant", (), calls=calls), Message("tool", (), "f", call_id="c1")), tools=("{}",))
    again = decoded(task_body(task))
    assert again == task
    assert list(again.prompt[0].calls[0].arguments) == ["b", "a"]
    bare = Task("d", (Message("user", ()),))
    assert '["user",[],null]' in task_body(bare)  # as it was stored before
