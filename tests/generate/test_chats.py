"""Two thousand random chats through five shapes of template: every token is what was rendered, sampled or fed, and stands once."""

import numpy as np
import pytest

from chat_cases import ENDS, SHAPES, answer, batch_of, chat_of, messages_of, sampled_mask, toy
from gfcr.generate.drift import check
from gfcr.generate.turns import Conversation
from gfcr.types import SegmentKind, StopReason

CHATS = 200
"""Per shape and tokenizer: 2,000 in all."""
WORDS = [
    "the answer",
    " is 42",
    "Hello",
    "user",
    "assistant\n",
    "\n\n",
    "  ",
    "\t",
    "12 + 30",
    "é",
    "数学",
    "🙂",
    "👩‍🔬",
    "a\u0301",
    ": ",
    "### User:",
]
EXTRA = ["<think>\nhm, 3+4\n</think>\n\n", "[INST]", "<<SYS>>", "\u2028", "\x00", "<|im_e", "nd|>", "▁", "<0x0A>"]


def some_text(rng, controls, most=6):
    """A text that may be empty, spell control tokens, and begin or end with white space."""
    pool = WORDS + EXTRA + list(controls) + ["<|im_end|>", "</s>"]
    return "".join(rng.choice(pool) for _ in range(rng.integers(0, most)))


def some_answer(rng, made, conversation):
    """(ids, stop, whether its last token is the template's end): canonical, retokenised, noise, cut off, other ends, empty."""
    end, own = made.shape.end, made.id(ENDS[made.shape.name])
    style = rng.integers(0, 7)
    text = made.ids([some_text(rng, made.shape.controls)])
    if style == 1:  # every character by itself: not what the tokenizer would give for the text
        text = [i for letter in some_text(rng, ()) for i in made.ids([letter])]
    if style == 2:  # bytes that are no characters
        text = rng.choice(made.texts, rng.integers(1, 9)).tolist()
    if style == 3:
        return text, StopReason.MAX_TOKENS if text else StopReason.CANCELLED, False
    if style == 4 and own != (made.id(end) if end else None):
        return [*text, own], StopReason.EOS, False
    if style == 5:  # a control token in the middle
        text = [*text, made.id(made.shape.controls[0]), *made.ids(["so"])]
    return [*text, made.id(end) if end else own], StopReason.EOS, end is not None


def play(rng, made, chat):
    """A conversation, and independently the ids and the mask it must have."""
    texts = [("system", some_text(rng, made.shape.controls))] if made.shape.system and rng.integers(2) else []
    texts.append(("user", some_text(rng, made.shape.controls)))
    conversation = Conversation.start(chat, messages_of(texts))
    expected = made.ids(made.shape.pieces(texts, True))
    mask = [False] * len(expected)
    ended = False
    for turn in range(rng.integers(1, 5)):
        if turn:
            new = [("user", some_text(rng, made.shape.controls))]
            if made.shape.name == "chatml" and rng.integers(2):  # several messages at once
                new = [("tool", some_text(rng, made.shape.controls)), ("tool", "7"), *new]
            fed = made.after([*texts, ("assistant", "")], new, ended)
            conversation = conversation.heard(messages_of(new))
            expected += fed
            mask += [False] * len(fed)
            texts = [*texts, ("assistant", "x"), *new]
        ids, stop, ended = some_answer(rng, made, conversation)
        conversation = conversation.said(answer(conversation, ids, stop))
        expected += ids
        mask += [True] * len(ids)
    return conversation, expected, mask


@pytest.mark.parametrize("kind", ["bytes", "fallback"])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_random_chats_are_accounted_for_token_by_token(shape, kind):
    made = toy(shape, kind)
    chat = chat_of(made)
    rng = np.random.default_rng([len(shape), len(kind)])
    conversations, masks = [], []
    for _ in range(CHATS):
        conversation, expected, mask = play(rng, made, chat)
        assert conversation.ids().tolist() == expected
        assert sampled_mask(conversation).tolist() == mask
        assert sum(conversation.tally().values()) == len(expected)
        assert conversation.tally().get(SegmentKind.ACTION, 0) == sum(mask)
        conversations.append(conversation)
        masks += mask
    batch = batch_of(conversations)
    assert batch.rl_mask.tolist() == masks
    assert batch.input_ids.tolist() == np.concatenate([c.ids() for c in conversations]).tolist()
    assert np.isfinite(batch.behaviour[batch.rl_mask]).all()
    assert np.isnan(batch.behaviour[~batch.rl_mask]).all()


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
