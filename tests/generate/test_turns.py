"""What a conversation keeps, what it refuses, and the kinds of drift the checker names."""

from dataclasses import replace

import numpy as np
import pytest

from chat_cases import SHAPES, answer, chat_of, messages_of, toy
from gfcr.errors import ConfigError, DataError
from gfcr.generate.chat import Chat, said_by
from gfcr.generate.codec import Codec
from gfcr.generate.drift import Kind, check
from gfcr.generate.turns import Conversation
from gfcr.types import Message, Part, PartKind, StopReason

THINKING = (
    "{% set last = namespace(i=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set last.i = loop.index0 %}{% endif %}"
    "{% endfor %}{% for m in messages %}{% set text = m.content %}"
    "{% if m.role == 'assistant' and loop.index0 < last.i and '</think>' in text %}"
    "{% set text = text.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""ChatML that drops the thinking of answers before the last question, as Qwen3's template does."""
ASK = messages_of([("user", "12 + 30?")])


def begin(made, asked=ASK):
    return Conversation.start(chat_of(made), asked)


def reply(made, text, end=True):
    return made.ids([text]) + ([made.id(made.shape.end)] if end else [])


def kinds(conversation):
    return [m.kind for m in check(conversation).mismatches]


def test_an_exact_conversation_has_no_drift_and_its_glue_is_pending():
    made = toy("chatml")
    one = begin(made).said(answer(begin(made), reply(made, "42")))
    drift = check(one)
    assert drift.exact
    assert drift.pending.tolist() == made.ids(["\n"])
    two = one.heard(messages_of([("user", "why?")]))
    assert check(two).exact
    assert len(check(two).pending) == 0
    assert two.path[-1].segment.ids.tolist()[: len(drift.pending)] == drift.pending.tolist()


def follow(made, ids, stop=StopReason.EOS, new=(("user", "so?"),)):
    one = begin(made)
    return one.said(answer(one, ids, stop)).heard(messages_of(new))


def test_the_same_text_in_other_tokens_is_retokenised():
    made = toy("chatml")
    ids = [i for letter in "the answer" for i in made.ids([letter])]
    drift = check(follow(made, [*ids, made.id("<|im_end|>")]))
    assert [m.kind for m in drift.mismatches] == [Kind.RETOKENISED]
    assert drift.mismatches[0].own.tolist() != drift.mismatches[0].rendered.tolist()
    assert (drift.mismatches[0].segment, drift.mismatches[0].turn) == (1, 0)


def test_two_differences_are_two_mismatches():
    made = toy("chatml")
    ids = [i for letter in "the answer" for i in made.ids([letter])] + [made.id("<|im_end|>")]
    one = follow(made, ids)
    two = one.said(answer(one, [*made.ids(["fine"]), made.id("<|endoftext|>")])).heard(ASK)
    assert kinds(two) == [Kind.RETOKENISED, Kind.OTHER_END]


def test_thinking_that_the_template_drops_is_kept_and_reported():
    made = toy("chatml", template=THINKING)
    one = begin(made)
    one = one.said(answer(one, reply(made, "<think>\nadd\n</think>\n\n42")))
    assert check(one).exact
    sampled = one.ids().tolist()
    two = one.heard(messages_of([("user", "sure?")]))
    assert two.ids().tolist()[: len(sampled)] == sampled
    assert kinds(two) == [Kind.HISTORY_REWRITTEN]


def test_glue_that_was_not_fed_is_named():
    made = toy("chatml")
    one = follow(made, reply(made, "42"))
    newline = made.ids(["\n"])
    observation = one.path[-1]
    assert observation.segment.ids.tolist()[: len(newline)] == newline
    lost = replace(observation, segment=replace(observation.segment, ids=observation.segment.ids[len(newline) :]))
    assert kinds(replace(one, path=(*one.path[:-1], lost))) == [Kind.GLUE]


def test_a_space_that_the_template_puts_before_the_end_token_is_glue():
    made = toy("brackets")
    assert kinds(follow(made, reply(made, " 42"))) == [Kind.GLUE]


def test_white_space_that_the_template_trims():
    assert kinds(follow(toy("header"), reply(toy("header"), "42 \n"))) == [Kind.TRIMMED]


def test_a_control_token_inside_an_answer_and_bytes_that_are_no_text():
    made = toy("chatml")
    inside = [*made.ids(["4"]), made.id("<|im_start|>"), *reply(made, "2")]
    assert kinds(follow(made, inside)) == [Kind.CONTROL_WRITTEN]
    half = made.ids(["é"])[:1]
    assert kinds(follow(made, [*half, made.id("<|im_end|>")])) == [Kind.BROKEN_TEXT]


def test_tokens_that_merge_over_a_border():
    made = toy("chatml")
    one = begin(made, messages_of([("user", "12 + 30?"), ("assistant", "The ans")]))
    assert kinds(one.said(answer(one, reply(made, "wer is 42")))) == [Kind.BORDER]


def test_an_answer_cut_off_gets_its_end_token_fed_not_learnt():
    made = toy("chatml")
    one = follow(made, made.ids(["42"]), StopReason.MAX_TOKENS)
    assert one.path[-1].segment.ids[0] == made.id("<|im_end|>")
    assert check(one).exact


def test_a_stop_string_that_is_the_templates_own_word_is_not_fed_again():
    made = toy("plain")
    one = begin(made)
    ids = made.ids(["42\n\n### User:"])
    one = one.said(answer(one, ids, StopReason.STOP_STRING)).heard(messages_of([("user", "why?")]))
    assert one.chat.codec.text(one.path[-1].segment.ids) == "\nwhy?\n\n### Assistant:\n"
    assert [m.parts[0].text for m in one.messages] == ["12 + 30?", "42", "why?"]
    assert one.chat.codec.text(one.ids()) == "### User:\n12 + 30?\n\n### Assistant:\n42\n\n### User:\nwhy?\n\n### Assistant:\n"


def test_several_observations_are_rendered_jointly():
    grouping = (
        "{% for m in messages %}{% if m.role == 'tool' %}"
        "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
        "{{ '\\n[' + m.content + ']' }}"
        "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}"
        "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    made = toy("chatml", template=grouping)
    one = begin(made)
    one = one.said(answer(one, reply(made, "look"))).heard(messages_of([("tool", "4"), ("tool", "5")]))
    text = one.chat.codec.text(one.path[-1].segment.ids)
    assert text == "\n<|im_start|>user\n[4]\n[5]<|im_end|>\n<|im_start|>assistant\n"
    assert check(one).exact


def test_an_answer_that_was_begun_is_gone_on_with():
    made = toy("chatml")
    one = begin(made, messages_of([("user", "12 + 30?"), ("assistant", "The answer is ")]))
    text = "<|im_start|>user\n12 + 30?<|im_end|>\n<|im_start|>assistant\nThe answer is "
    assert one.chat.codec.text(one.ids()) == text
    one = one.said(answer(one, reply(made, "42")))
    assert one.messages[-1] == said_by("assistant", "The answer is 42")
    again = one.heard(ASK)
    assert (
        again.chat.codec.text(again.ids())
        == text + "42<|im_end|>\n<|im_start|>user\n12 + 30?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_no_space_is_put_before_an_observation_as_before_a_text():
    made = toy("chatml", "fallback-first")
    one = follow(made, [*chat_of(made).codec.plain("42"), made.id("<|im_end|>")])
    assert one.chat.codec.text(one.path[-1].segment.ids).startswith("\n<|im_start|>")
    assert check(one).exact
    assert made.tokenizer("\n", add_special_tokens=False)["input_ids"] != one.chat.codec.plain("\n")


def test_what_is_refused():
    made = toy("chatml")
    one = begin(made)
    with pytest.raises(ValueError, match="after an answer"):
        one.heard(ASK)
    other = answer(begin(made, messages_of([("user", "else")])), [5], name="x")
    with pytest.raises(ValueError, match="begins otherwise"):
        Conversation.start(chat_of(made), ASK, "another").said(other)
    said = one.said(answer(one, reply(made, "42")))
    with pytest.raises(DataError, match="only the policy speaks"):
        said.heard(messages_of([("assistant", "no")]))
    picture = Message("user", (Part(PartKind.IMAGE, uri="a.png"),))
    with pytest.raises(DataError, match="holds image"):
        said.heard([picture])
    with pytest.raises(DataError, match=r"refuses the messages \(roles: system, user\): System role not supported"):
        begin(toy("turns"), messages_of([("system", "a"), ("user", "b")]))
    with pytest.raises(DataError, match="must alternate"):
        begin(toy("brackets"), messages_of([("user", "a"), ("user", "b")]))
    with pytest.raises(DataError, match=r"U\+10FFF0"):
        begin(made, messages_of([("user", "\U0010fff01\U0010fff1")]))
    blind = toy("chatml", template="{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}")
    with pytest.raises(DataError, match="0 times instead of once"):
        follow(blind, [5, 6])
    bare = toy("plain", template=" ")
    bare.tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        chat_of(bare)


def test_template_variables_are_those_the_template_reads():
    template = "{% if enable_thinking is defined and not enable_thinking %}{{ 'quick ' }}{% endif %}" + SHAPES["plain"].template
    made = toy("plain", template=template)
    codec = Codec(made.tokenizer)
    chat = Chat(codec, {"enable_thinking": False})
    assert codec.text(np.array(chat.prompt(ASK))).startswith("quick ###")
    assert codec.text(np.array(Chat(codec).prompt(ASK))).startswith("###")
    with pytest.raises(ConfigError, match="does not read the variable 'enable_thinkin'"):
        Chat(codec, {"enable_thinkin": False})
    with pytest.raises(ConfigError, match="sets 'tools', which the renderer sets itself"):
        Chat(codec, {"tools": "x"})
