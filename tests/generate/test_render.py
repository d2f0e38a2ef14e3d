"""Tasks to prompts: text and chats, begin tokens, spelled control tokens, prompts that are too long; and what ends an answer."""

import numpy as np
import pytest

from chat_cases import chat_of, messages_of, toy
from gfcr.errors import ConfigError, DataError
from gfcr.generate.codec import Codec
from gfcr.generate.ends import stop_spec
from gfcr.generate.fit import fitting
from gfcr.generate.render import TokenizerRenderer
from gfcr.generate.settings import PromptSettings
from gfcr.types import Task


def adding_begin(shape="header"):
    """A tokenizer that puts its begin token before every text."""
    from copy import deepcopy

    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    made = toy(shape)
    begin = made.tokenizer.bos_token
    base = deepcopy(made.tokenizer.backend_tokenizer)
    base.post_processor = processors.TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, made.id(begin))])
    out = PreTrainedTokenizerFast(
        tokenizer_object=base, bos_token=begin, eos_token=made.tokenizer.eos_token, pad_token=made.tokenizer.eos_token
    )
    out.chat_template = made.shape.template
    assert out("a")["input_ids"][0] == made.id(begin)
    return made, out


def render(tokenizer, prompt, room=None, **settings):
    made = TokenizerRenderer(tokenizer, PromptSettings(**settings), room)
    return made(Task("t", prompt)).ids.tolist()


CHAT = [("user", "12 + 30?"), ("assistant", "42"), ("user", "so?")]


def test_a_chat_gets_one_begin_token_though_template_and_tokenizer_both_add_it():
    made, tokenizer = adding_begin()
    ids = render(tokenizer, messages_of(CHAT))
    assert ids == made.ids(made.shape.pieces(CHAT, True))
    assert ids.count(tokenizer.bos_token_id) == 1
    assert ids == tokenizer.apply_chat_template(
        [{"role": r, "content": t} for r, t in CHAT], add_generation_prompt=True, tokenize=True, return_dict=False
    )


def test_a_text_rendered_beforehand_gets_no_second_begin_token():
    made, tokenizer = adding_begin()
    dicts = [{"role": r, "content": t} for r, t in CHAT]
    text = tokenizer.apply_chat_template(dicts, add_generation_prompt=True, tokenize=False)
    assert tokenizer(text)["input_ids"].count(tokenizer.bos_token_id) == 2  # the trap
    with pytest.raises(DataError, match="spells the control token") as caught:
        render(tokenizer, text)
    assert 'generate.prompt.controls = "tokens"' in caught.value.remedy
    assert render(tokenizer, text, controls="tokens") == made.ids(made.shape.pieces(CHAT, True))
    assert render(tokenizer, "so <|eot_id|>", controls="tokens") == [
        tokenizer.bos_token_id, *made.ids(["so "]), made.id("<|eot_id|>")
    ]  # fmt: skip


def test_a_text_prompt_may_spell_control_tokens_as_plain_text():
    made, tokenizer = adding_begin()
    ids = render(tokenizer, "what is <|eot_id|>?", controls="text")
    assert ids == [tokenizer.bos_token_id, *made.ids(["what is <|eot_id|>?"])]
    assert made.id("<|eot_id|>") not in ids
    assert render(tokenizer, "hello") == tokenizer("hello")["input_ids"]


def test_chat_and_system_settings():
    made = toy("chatml")
    whole = [("system", "Add."), ("user", "1 + 2")]
    expected = made.ids(made.shape.pieces(whole, True))
    assert render(made.tokenizer, "1 + 2", chat=True, system="Add.") == expected
    assert render(made.tokenizer, messages_of(whole[1:]), system="Add.") == expected
    assert render(made.tokenizer, messages_of(whole), system="Multiply.") == expected
    with pytest.raises(ConfigError, match="a text has no system message"):
        render(made.tokenizer, "1 + 2", system="Add.")
    task = Task("t", messages_of(whole))
    assert TokenizerRenderer(made.tokenizer)(task).template == chat_of(made).id


def test_a_chat_without_a_template_is_refused_by_task():
    made = toy("plain", template=" ")
    made.tokenizer.chat_template = None
    for prompt, settings in ((messages_of(CHAT), {}), ("1 + 2", {"chat": True})):
        with pytest.raises(DataError, match="the tokenizer has no chat template"):
            render(made.tokenizer, prompt, **settings)
    assert TokenizerRenderer(made.tokenizer).turn_end is None


def test_an_unknown_token_that_is_the_end_token_too_is_no_unknown_character():
    made = toy("brackets")
    from transformers import PreTrainedTokenizerFast

    both = PreTrainedTokenizerFast(
        tokenizer_object=made.tokenizer.backend_tokenizer, eos_token="</s>", bos_token="<s>", unk_token="</s>"
    )
    both.chat_template = made.shape.template
    assert render(both, messages_of(CHAT)) == made.ids(made.shape.pieces(CHAT, True))


def test_prompts_too_long_are_refused_or_dropped():
    made = toy("chatml")
    tasks = [Task("t", messages_of([("user", "a" * n)])) for n in (1, 200)]
    renderer = TokenizerRenderer(made.tokenizer)
    with pytest.raises(DataError, match="1 of 2 tasks have prompts longer than 60 tokens") as caught:
        fitting("tasks", tasks, renderer, 70, 10, 500)
    assert "generate.prompt.overflow" in caught.value.remedy
    assert fitting("tasks", tasks, renderer, 70, 10, 500, drop=True) == tasks[:1]
    assert fitting("tasks", tasks[:1], renderer, 70, 10, 500, drop=True) is not None
    with pytest.raises(DataError, match="1 of 1 tasks"):
        fitting("tasks", tasks[1:], renderer, 70, 10, 500, drop=True)


@pytest.mark.parametrize("shape", ["chatml", "brackets", "plain", "header"])
def test_truncation_keeps_the_system_turn_and_whole_turns(shape):
    made = toy(shape)
    chat = [("system", "Add."), *[(r, f"{t} {i}") for i in range(9) for r, t in (("user", "what"), ("assistant", "this"))]]
    chat.append(("user", "last"))
    whole = made.ids(made.shape.pieces(chat, True))
    sizes = [len(made.ids(made.shape.pieces([chat[0], *chat[i:]], True))) for i in range(1, len(chat), 2)]
    renderer = TokenizerRenderer(made.tokenizer, PromptSettings(overflow="truncate"), sizes[3])
    task = Task("t", messages_of(chat))
    assert renderer(task).ids.tolist() == made.ids(made.shape.pieces([chat[0], *chat[7:]], True))
    assert renderer.cut == {task.id: (len(whole), sizes[3])}
    for room in (sizes[3] - 1, sizes[4]):
        assert render(made.tokenizer, messages_of(chat), room, overflow="truncate") == made.ids(
            made.shape.pieces([chat[0], *chat[9:]], True)
        )
    assert render(made.tokenizer, messages_of(chat), len(whole), overflow="truncate") == whole


def test_truncation_inside_the_last_turn_cuts_no_character():
    made = toy("chatml")
    text = "🙂" * 30 + " the end"
    for room in range(40, 80):
        ids = render(made.tokenizer, messages_of([("system", "S"), ("user", text)]), room, overflow="truncate")
        assert len(ids) <= room
        shown = Codec(made.tokenizer).text(ids)
        assert shown.startswith("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n")
        assert shown.endswith(" the end<|im_end|>\n<|im_start|>assistant\n")
        assert "\ufffd" not in shown
    ids = render(made.tokenizer, text, 20, overflow="truncate")
    assert len(ids) <= 20
    assert text.endswith(Codec(made.tokenizer).text(ids))
    full = render(made.tokenizer, messages_of([("user", "a")]))
    assert render(made.tokenizer, messages_of([("user", "abc")]), 3, overflow="truncate")[: len(full) - 8] == full[:-8]


def test_every_end_is_known():
    made = toy("chatml")
    codec, end, own = Codec(made.tokenizer), made.id("<|im_end|>"), made.id("<|endoftext|>")
    size = len(made.tokenizer)
    assert chat_of(made).end == end
    assert stop_spec(codec, None, end, (), size).eos == (own, end)
    assert stop_spec(codec, [end, own], end, ("so",), size).eos == (end, own)
    assert stop_spec(codec, 5, None, ("<|im_end|>",), size).eos == (5, own, end)
    with pytest.raises(ConfigError, match="is a control token, which is no text"):
        stop_spec(codec, None, None, ("<|im_end|>\n",), size)
    with pytest.raises(ConfigError, match="the end token 9999 is outside"):
        stop_spec(codec, 9999, None, (), size)
    assert [chat_of(toy(s)).end for s in ("header", "turns", "brackets", "plain")] == [
        toy("header").id("<|eot_id|>"), toy("turns").id("<end_of_turn>"), toy("brackets").id("</s>"), None
    ]  # fmt: skip


def test_decoding_leaves_spaces_alone_and_survives_half_characters():
    made = toy("chatml")
    codec = Codec(made.tokenizer)
    ids = made.ids(["so , what ? n't"])
    assert codec.answer(ids) == "so , what ? n't"
    assert codec.answer(made.ids(["é"])[:1]) == "\ufffd"
    assert codec.answer(np.array([], np.int32)) == ""
