"""Two thousand random chats through ten shapes of template, half of them with tools: every token is what was rendered, sampled or
fed, and stands once. `python -m bench chats 10000` plays all ten thousand."""

import numpy as np
import pytest

from chat_cases import SHAPES, chat_of, messages_of, toy
from chat_play import every_shape, play, play_many, some_text
from gfcr.generate.drift import check

CHATS = 100
"""Per shape and tokenizer: 2,000 in all."""


@pytest.mark.parametrize("case", [pytest.param(c, id=c[0]) for c in every_shape()])
def test_random_chats_are_accounted_for_token_by_token(case):
    name, made, chat, player = case
    rng = np.random.default_rng([len(name), sum(name.encode())])
    tokens, own, courses = play_many(made, chat, player, rng, CHATS)
    assert tokens > own > CHATS
    assert sum(courses.values()) == CHATS // 10


@pytest.mark.parametrize("shape", list(SHAPES))
def test_the_checker_says_exact_when_and_only_when_a_full_rendering_agrees(shape):
    made = toy(shape)
    chat = chat_of(made)
    rng = np.random.default_rng(5)
    exact = 0
    for _ in range(100):
        conversation, _, _ = play(rng, made, chat)
        texts = [(m.role, m.parts[0].text) for m in conversation.messages]
        full = made.ids(made.shape.pieces(texts, False))
        drift, own = check(conversation), conversation.ids().tolist()
        assert drift.exact == (own == full[: len(own)])
        if drift.exact:
            exact += 1
            assert own + drift.pending.tolist() == full
        for one in drift.mismatches:
            assert len(one.own) or len(one.rendered)
            assert str(one.kind) and one.what
    assert exact >= (5 if shape not in ("brackets", "plain") else 0)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_prompt_is_what_the_tokenizer_itself_renders(shape):
    made = toy(shape)
    chat = chat_of(made)
    rng = np.random.default_rng(3)
    seen = 0
    for _ in range(60):
        texts = [("user", some_text(rng, ())), ("assistant", "so"), ("user", some_text(rng, ()) + "?")]
        if any(c in text for _, text in texts for c in made.shape.controls):
            continue
        seen += 1
        dicts = [{"role": role, "content": text} for role, text in texts]
        theirs = made.tokenizer.apply_chat_template(dicts, add_generation_prompt=True, tokenize=True, return_dict=False)
        assert chat.prompt(messages_of(texts)) == theirs
    assert seen > 20
