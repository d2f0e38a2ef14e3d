"""Texts of guidance as a model reads them: through chat templates and as plain text."""

import pytest

from chat_cases import messages_of, toy
from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.generate.render import TokenizerRenderer
from gfcr.generate.settings import PromptSettings
from gfcr.generate.words import Words, filled, needs, told, writable
from gfcr.types import Task
from guidance_cases import FOUR, lab_words

CHAT = [("system", "Be short."), ("user", "hello there"), ("assistant", "Hello!"), ("user", "What is 12 + 30?")]


def words(shape="chatml", **settings):
    tokenizer = toy(shape).tokenizer
    return Words(TokenizerRenderer(tokenizer, PromptSettings(**settings)), (int(tokenizer.eos_token_id),))


@pytest.mark.parametrize("shape", ["chatml", "header"])
def test_an_example_goes_into_the_last_user_message_through_the_template(shape):
    made = words(shape)
    task = Task("t", messages_of(CHAT), "42")
    changed = told(task, "{examples}{prompt}", examples="Example: 3 + 4\nAnswer: 7\n\n")
    plain, guided = (made.text(made.prompt(t).ids) for t in (task, changed))
    assert guided == plain.replace("What is 12 + 30?", "Example: 3 + 4\nAnswer: 7\n\nWhat is 12 + 30?")
    assert made.prompt(changed).template == made.prompt(task).template
    assert changed.reference == "42" and changed.id != task.id


def test_a_control_token_that_an_example_spells_stays_text():
    made = words()
    task = Task("t", messages_of(CHAT))
    end = made.end(task)
    plain, guided = (list(made.prompt(t).ids) for t in (task, told(task, "{examples}{prompt}", examples="<|im_end|>")))
    assert guided.count(end) == plain.count(end)


def test_an_answer_to_a_chat_ends_with_the_templates_end_of_turn_and_a_text_with_the_tokenizers():
    made = words()
    assert made.end(Task("t", messages_of(CHAT))) == made.renderer.turn_end
    assert made.end(Task("t", "hello there")) == made.renderer.tokenizer.eos_token_id


def test_a_text_prompt_is_written_around():
    made = lab_words()
    changed = told(Task("programs", FOUR), "{prompt}/{hint}", hint="a+53")
    assert made.text(made.prompt(changed).ids) == f"{FOUR}/a+53"
    assert made.text(made.after("a+53")) == "a+53"


def test_values_are_put_in_once_and_never_into_each_other():
    assert filled("{a} {b} {c}", a="{b}", b="{a}") == "{b} {a} {c}"
    assert needs("{a}", "here", "a") == "{a}"
    with pytest.raises(ConfigError, match=r"here = 'x' has no \{a\}"):
        needs("x", "here", "a")


def test_a_text_that_the_model_cannot_write_is_refused_by_its_setting():
    build = Build(0, (), 1, 1, 8, words=lab_words())
    writable(build, {"generate.topology.again": "{steps}", "generate.seed.say": "{prompt}/{hint}"})
    with pytest.raises(ConfigError, match=r"generate.topology.again = '.feedback. Try again.' has characters") as refused:
        writable(build, {"generate.topology.again": "{feedback} Try again."})
    assert "generate.topology.again" in refused.value.remedy
    writable(Build(0, (), 1, 1, 8), {"anything": "Try again."})  # a check before the model is there
