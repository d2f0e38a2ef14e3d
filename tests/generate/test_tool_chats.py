"""Tool calls in chats: what each family's template gives, what is refused, and what a policy or a tool cannot break."""

import json

import numpy as np
import pytest

from chat_cases import answer, toy
from chat_play import NONCE
from gfcr.errors import ConfigError, DataError
from gfcr.generate.chat import Chat
from gfcr.generate.codec import Codec
from gfcr.generate.drift import Course, check
from gfcr.generate.render import TokenizerRenderer
from gfcr.generate.settings import PromptSettings
from gfcr.generate.turns import Conversation
from gfcr.types import Node, StopReason, Task, ToolCall
from tool_cases import FAMILIES, TOOL, TOOLS, message, tool_toy

ASK = [message("user", "12 + 30?")]
CALL = ToolCall("add", {"x": 12, "y": [30]}, "abcdefgh1")


def begin(made, tools=TOOLS, chat=None):
    return Conversation.start(chat or made.chat(), ASK, tools=tools)


def call(made, one, calls=(CALL,), end=True):
    ids = made.ids(made.family.written(calls)) + ([made.id(made.family.end)] if end else [])
    return one.said(answer(one, ids, StopReason.EOS if end else StopReason.MAX_TOKENS), calls)


def text(one):
    return one.chat.codec.text(one.path[-1].segment.ids)


def test_what_each_family_wants_is_found_by_rendering():
    wants = {name: tool_toy(name).chat("template") for name in FAMILIES}
    assert {name: wants[name].tool_turns.calls for name in ("hermes", "ipython", "results", "outputs")} == {
        "hermes": False, "ipython": False, "results": True, "outputs": True,
    }  # fmt: skip
    assert wants["results"].tool_turns.end == tool_toy("results").id("</s>")
    assert "tool" in wants["ipython"].tool_turns.roles
    with pytest.raises(DataError, match=r'shows no results of tools(.|\n)*tools = "text"'):
        _ = wants["told"].tool_turns


@pytest.mark.parametrize("name", list(FAMILIES))
def test_parallel_results_are_one_observation(name):
    """slime#2263, in every family: one header after two results, whatever the template does between them."""
    made = tool_toy(name)
    calls = (CALL, ToolCall("add", {"x": 1}, "abcdefgh2"))
    one = call(made, begin(made), calls).heard([message("tool", "42"), message("tool", "1")])
    ids = one.path[-1].segment.ids.tolist()
    seen = [message("tool", t, id=c.id) for t, c in zip(("42", "1"), calls)]
    assert ids == made.fed(seen, True, True)
    assert one.messages[-1].role == ("user" if name == "told" else "tool")
    if name == "hermes":
        assert text(one).count("<|im_start|>user") == 1
    if name == "results":
        assert '"call_id": "abcdefgh1"}' in text(one)
        assert '"call_id": "abcdefgh2"}' in text(one)


@pytest.mark.parametrize("name", ["hermes", "ipython", "results", "outputs"])
def test_a_prompt_with_tools_and_calls_is_what_the_tokenizer_itself_renders(name):
    made = tool_toy(name)
    chat = made.chat()
    plain = {**TOOL, "function": {**TOOL["function"], "description": "Adds é."}}
    history = [*ASK, message("assistant", "", calls=[CALL]), message("tool", "42", "add", id=CALL.id)]
    tables = [
        {"role": "user", "content": "12 + 30?"},
        {
            "role": "assistant", "content": "",
            "tool_calls": [{"type": "function", "id": CALL.id, "function": {"name": "add", "arguments": dict(CALL.arguments)}}],
        },
        {"role": "tool", "content": "42", "name": "add", "tool_call_id": CALL.id},
    ]  # fmt: skip
    theirs = made.toy.tokenizer.apply_chat_template(
        tables, tools=[plain], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert chat.prompt(history, (json.dumps(plain),)) == theirs
    assert chat.prompt(history, (json.dumps(plain),)) == theirs  # a second rendering clears nothing (verl#3960)
    assert '"add"' in chat.codec.text(theirs) or "<call>add" in chat.codec.text(theirs)


@pytest.mark.parametrize("kind", ["bytes", "fallback"])
@pytest.mark.parametrize("name", list(FAMILIES))
def test_spellings_in_results_arguments_and_schemas_are_text(name, kind):
    made = tool_toy(name, kind)
    end, all_ = made.family.end, "".join(made.family.controls)
    schema = json.dumps({"type": "function", "function": {"name": "f", "description": all_, "parameters": {all_: 1}}})
    calm = json.dumps({"type": "function", "function": {"name": "f", "description": "", "parameters": {"": 1}}})
    history = [
        *ASK,
        message("assistant", "", calls=[ToolCall("f", {all_: [all_]}, CALL.id)]),
        message("tool", all_, id=CALL.id),
    ]
    quiet = [*ASK, message("assistant", "", calls=[ToolCall("f", {"": [""]}, CALL.id)]), message("tool", ".", id=CALL.id)]
    chat = made.chat()

    def controls(messages, tools):
        return [i for i in chat.prompt(messages, tools) if i in chat.codec.control_ids]

    assert controls(history, (schema,)) == controls(quiet, (calm,))
    one = call(made, begin(made), [ToolCall("add", {"x": all_}, CALL.id)]).heard([message("tool", all_ + "\\boxed{42}")])
    calm_one = call(made, begin(made)).heard([message("tool", ".")])

    def fed(c):
        return [i for i in c.path[-1].segment.ids.tolist() if i in chat.codec.control_ids]

    assert fed(one) == fed(calm_one)
    assert text(one).count(end) >= 1 + fed(one).count(made.id(end))


def test_a_template_that_writes_texts_as_ascii_or_as_python_shows_them_keeps_spellings_text():
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'tool' %}"
        "{{ (m.content | tojson(ensure_ascii=true)) + ({'a': m.content} | string) }}{% else %}{{ m.content }}{% endif %}"
        "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    made = toy("chatml", template=template)
    one = Conversation.start(Chat(Codec(made.tokenizer)), ASK)
    one = one.said(answer(one, [*made.ids(["look"]), made.id("<|im_end|>")])).heard([message("tool", "é<|im_end|>")])
    assert '"\\u00e9<|im_end|>"' in text(one)
    assert "{'a': 'é<|im_end|>'}" in text(one)
    assert one.path[-1].segment.ids.tolist().count(made.id("<|im_end|>")) == 1


def test_tools_that_a_template_hides_are_refused_with_the_remedy():
    made = toy("chatml")  # shows any role, and neither schemas nor calls
    chat = Chat(Codec(made.tokenizer))
    with pytest.raises(DataError, match=r'has tools, and the model.s chat template does not show them(.|\n)*"text"'):
        chat.prompt(ASK, TOOLS)
    with pytest.raises(DataError, match="has tool calls"):
        chat.prompt([*ASK, message("assistant", "", calls=[CALL]), message("tool", "42")])
    blind = "{% for m in messages %}{% if m.role != 'tool' %}{{ m.role + m.content }}{% endif %}{% endfor %}"
    hiding = Chat(Codec(toy("chatml", template=blind).tokenizer))
    with pytest.raises(DataError, match="has results of tools"):
        hiding.prompt([*ASK, message("assistant", "x"), message("tool", "42")])
    with pytest.raises(DataError, match="calls tools"):
        chat.prompt([*ASK, message("assistant", "", calls=[CALL])])
    with pytest.raises(DataError, match=r"shows no results of tools"):
        one = Conversation.start(hiding, ASK)
        one.said(answer(one, [5])).heard([message("tool", "42")])
    with pytest.raises(DataError, match="hides messages of the role 'note'"):
        odd = Chat(Codec(toy("chatml", template=blind.replace("'tool'", "'note'")).tokenizer))
        one = Conversation.start(odd, ASK)
        one.said(answer(one, [5])).heard([message("note", "42"), message("user", "so?")])


def test_tools_as_text_for_a_template_without_any():
    made = tool_toy("told")
    one = begin(made)
    prompt = one.chat.codec.text(one.ids())
    assert TOOLS[0] in prompt
    assert prompt.endswith("12 + 30?<end_of_turn>\n<start_of_turn>model\n")
    one = call(made, one).heard([message("tool", "42"), message("user", "so?")])
    assert text(one) == (
        "\n<start_of_turn>user\n<tool_response>\n42\n</tool_response>\n\nso?<end_of_turn>\n<start_of_turn>model\n"
    )
    assert check(one).course is Course.CLEAN
    history = [message("system", "Be brief."), *ASK, message("assistant", "look", calls=[CALL]), message("tool", "42")]
    spoken = toy("chatml")
    shown = Codec(spoken.tokenizer).text(Chat(Codec(spoken.tokenizer), tools="text").prompt(history, TOOLS))
    assert shown.startswith("<|im_start|>system\nBe brief.\n\nYou may call tools.")
    assert 'look\n<tool_call>\n{"name": "add", "arguments": {"x": 12, "y": [30]}}\n</tool_call><|im_end|>' in shown
    assert Chat(Codec(spoken.tokenizer), tools="text").id != Chat(Codec(spoken.tokenizer)).id


def test_calls_that_a_template_refuses_are_the_policys_fault_and_end_nothing():
    """Mistral's ids of nine characters: a call without one is answered in a user's message, and the chat goes on."""
    made = tool_toy("results")
    bad = [ToolCall("add", {"x": 1}, "no"), ToolCall("add", {"x": 2}, "")]
    one = call(made, begin(made), bad).heard([message("tool", "42"), message("tool", "43")])
    assert "[INST] <tool_response>\n42\n</tool_response>\n\n<tool_response>\n43\n</tool_response>[/INST]" in text(one)
    one = call(made, one).heard([message("tool", "44")])
    assert text(one) == '[TOOL_RESULTS] {"content": 44, "call_id": "abcdefgh1"}[/TOOL_RESULTS]'
    one = call(made, one, ()).heard([message("tool", "bad_json: no call")])
    assert text(one).endswith("[INST] <tool_response>\nbad_json: no call\n</tool_response>[/INST]")
    with pytest.raises(DataError, match="Only user and assistant roles"):
        call(made, one).heard([message("note", "x")])


@pytest.mark.parametrize("name", list(FAMILIES))
def test_private_characters_of_a_policy_or_a_tool_end_no_run(name):
    made = tool_toy(name)
    private = "\U0010fff00\U0010fff1\U0010fff3"
    one = begin(made)
    ids = [*made.ids(["x" + private]), made.id(made.family.end)]
    one = one.said(answer(one, ids), [ToolCall(private, {private: private}, "abcdefgh1")])
    assert one.path[-1].segment.ids.tolist() == ids
    one = one.heard([message("tool", private)])
    one = call(made, one).heard([message("tool", "42")])
    assert "�0��" in one.chat.codec.text(one.ids())
    with pytest.raises(DataError, match=r"U\+10FFF0"):  # in a task it is refused, before the first token
        Conversation.start(one.chat, [message("user", private)])


def test_a_joint_answer_that_was_rendered_behind_one_question_is_that_of_the_whole_chat():
    """Frames and short renderings, against a chat that renders all of it each time."""
    for name in FAMILIES:
        made = tool_toy(name)
        fast, slow = begin(made), begin(made)
        for turn in range(12):
            slow.chat._steps.clear()
            new = [message("tool", f"{turn} <b>&\"'\\ é")]
            calls = (CALL,) if turn % 3 else ()
            if not calls:
                new = [message("user", " more \n")]
            fast = call(made, fast, calls).heard(new)
            slow = call(made, slow, calls).heard(new)
            assert fast.ids().tolist() == slow.ids().tolist()
        if name in ("hermes", "ipython", "outputs", "told"):
            assert any(not isinstance(step, bool) for step in fast.chat._steps.values()), name


def test_a_template_whose_words_depend_on_the_history_is_rendered_whole():
    """Mistral's tools stand before the last question; a template may number its turns."""
    made = tool_toy("results")
    one = call(made, begin(made), ()).heard([message("user", "why?")])
    assert text(one).startswith("[AVAILABLE_TOOLS]")
    assert list(one.chat._steps.values()) == [False]
    assert check(one).course is Course.FORKED  # in a full rendering the tools are gone from where they were
    numbered = toy("plain", template="{% for m in messages %}{{ loop.index ~ m.role + m.content }}{% endfor %}{{ 'so: ' }}")
    one = Conversation.start(Chat(Codec(numbered.tokenizer)), ASK)
    for turn in range(8):
        one = one.said(answer(one, numbered.ids(["yes"]), StopReason.MAX_TOKENS)).heard([message("user", "why?")])
        assert text(one) == f"{2 * turn + 3}userwhy?so: "


def test_a_frame_is_not_used_for_a_text_that_the_template_looks_into():
    template = (
        "{% for m in messages %}{% if m.role == 'user' and m.content.startswith('#') %}{{ '<|im_start|>title\\n' }}"
        "{% elif 'STOP' in m.content %}{{ '<|im_start|>stop\\n' }}{% else %}{{ '<|im_start|>' + m.role + '\\n' }}{% endif %}"
        "{{ m.content + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    made = toy("chatml", template=template)
    chat = Chat(Codec(made.tokenizer))
    for words, role in (("so", "user"), ("why", "user"), ("# so", "title"), ("no STOP", "stop"), ("user", "user")):
        one = Conversation.start(chat, ASK)
        one = one.said(answer(one, [*made.ids(["42"]), made.id("<|im_end|>")])).heard([message("user", words)])
        assert f"<|im_start|>{role}\n{words}<|im_end|>" in text(one)
    assert [type(step).__name__ for step in chat._steps.values()] == ["Frame"]


def test_what_a_text_trainer_would_see_is_told_apart():
    made = tool_toy("hermes")
    clean = call(made, begin(made)).heard([message("tool", "42" + NONCE)])
    assert check(clean).course is Course.CLEAN
    apart = [i for letter in "the answer" for i in made.ids([letter])]
    one = begin(made)
    other = one.said(answer(one, [*apart, made.id("<|im_end|>")])).heard([message("user", "so?")])
    assert check(other).course is Course.REALIGNED
    forked = one.said(answer(one, [made.id("<|im_start|>"), made.id("<|im_end|>")])).heard([message("user", "so?")])
    assert check(forked).course is Course.FORKED


def test_a_renderer_begins_the_dialogue_of_a_task():
    made = tool_toy("hermes")
    renderer = TokenizerRenderer(made.toy.tokenizer)
    task = Task("t", tuple(ASK), tools=TOOLS)
    prompt = Node("p", None, renderer(task))
    one = renderer.dialogue(task, (prompt,))
    assert isinstance(one, Conversation)
    assert one.path[0].segment.ids.tolist() == begin(made).ids().tolist()
    assert call(made, one).heard([message("tool", "42")]).tally()
    with pytest.raises(DataError, match="a text, which has no place"):
        renderer(Task("t", "12 + 30?", tools=TOOLS))
    told = TokenizerRenderer(tool_toy("told").toy.tokenizer)
    with pytest.raises(DataError, match="does not show them"):
        told(task)
    told = TokenizerRenderer(tool_toy("told").toy.tokenizer, PromptSettings(tools="text"))
    assert np.array_equal(told(task).ids, begin(tool_toy("told")).ids())
    with pytest.raises(ConfigError, match="renderer sets itself"):
        Chat(made.chat().codec, {"tools": "x"})


@pytest.mark.parametrize("name", ["hermes", "ipython", "outputs", "told"])
def test_a_turn_costs_the_same_however_long_the_chat_is(name):
    """The template is asked a bounded number of times over 128 turns, and again of another chat never; texts are encoded once."""
    made = tool_toy(name, "fallback")
    chat = made.chat()
    rendered = []

    def counting(messages, **more):
        rendered.append(len(messages))
        return type(made.toy.tokenizer).apply_chat_template(made.toy.tokenizer, messages, **more)

    made.toy.tokenizer.apply_chat_template = counting
    try:
        for again in range(2):
            one = begin(made, chat=chat)
            begun = len(rendered)
            for turn in range(128):
                one = call(made, one).heard([message("tool", f"{turn} it is")])
            if again:
                assert len(rendered) == begun
            else:
                assert len(rendered) < 120
    finally:
        del made.toy.tokenizer.apply_chat_template
    assert one.turn == 128
    assert len(one.path) == 257


def test_short_texts_that_come_again_are_encoded_once_and_the_store_of_them_is_bounded(monkeypatch):
    made = toy("chatml")
    codec = Codec(made.tokenizer)
    monkeypatch.setattr("gfcr.generate.codec._MOST_KEPT", 8)
    for i in range(40):
        assert codec.plain(f"so {i} <|im_end|>") == codec.plain(f"so {i} <|im_end|>") == made.ids([f"so {i} <|im_end|>"])
        assert len(codec._encoded) <= 8
    first = codec.plain("so")
    first.append(0)  # what was given away is not what is kept
    assert codec.plain("so") == first[:-1]
    assert codec._twin_agrees
    assert codec._backend is not None
