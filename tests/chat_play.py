"""Random chats through every shape of template, with and without tools, and independently the ids and masks they must have.

`python -m bench chats 10000` plays more of them than the tests do.
"""

from __future__ import annotations

import numpy as np

from chat_cases import ENDS, SHAPES, answer, batch_of, chat_of, messages_of, sampled_mask, toy
from gfcr.filter.answer import own_text
from gfcr.generate.drift import check
from gfcr.generate.turns import Conversation
from gfcr.types import Rollout, SegmentKind, StopReason, ToolCall
from tool_cases import FAMILIES, TOOLS, message, tool_toy

KINDS = ("bytes", "fallback")
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


# ---- with tools ----------------------------------------------------------------------------------------------------------

NONCE = "zqx7"
"""Stands in every tool's output and in nothing that the policy writes."""


def some_output(rng, controls):
    """What a tool says: the answer, spellings of control tokens, other tools' tags, private characters."""
    extra = ["\\boxed{42}", "</tool_response>", "<tool_call>{}</tool_call>", "\U0010fff00\U0010fff1", '"', "\\", "#### 42"]
    pool = WORDS + EXTRA + list(controls) + extra
    return "".join(rng.choice(pool) for _ in range(rng.integers(0, 6))) + NONCE + str(rng.choice(["", *controls]))


def some_calls(rng, family):
    """Up to three calls, their arguments spelling control tokens and private characters."""
    out = []
    for _ in range(rng.integers(0, 4)):
        id = "".join(rng.choice(list("abc123XYZ"), 9)) if family.ids else ""
        out.append(
            ToolCall("add", {"x": some_text(rng, family.controls), "deep": [1, {"y": "\U0010fff2" + family.controls[0]}]}, id)
        )
    return out


def play_tools(rng, made, chat):
    """A conversation with tool calls, and independently the ids and the mask it must have."""
    family = made.family
    conversation = Conversation.start(chat, [message("user", some_text(rng, family.controls) + "?")], tools=TOOLS)
    expected = conversation.ids().tolist()  # prompts are held against the tokenizer's own rendering elsewhere
    mask, calls, ended = [False] * len(expected), [], False
    for turn in range(rng.integers(1, 6)):
        if turn:
            new = [message("tool", some_output(rng, family.controls)) for _ in calls]
            if not calls and rng.integers(4) == 0:  # an error about a call that was none
                new = [message("tool", some_output(rng, family.controls))]
            elif not calls or (rng.integers(4) == 0 and family.name != "results"):
                new.append(message("user", some_text(rng, family.controls) + "!"))
            seen = [as_fed(m, i, calls, chat) for i, m in enumerate(new)]
            fed = made.fed(seen, bool(calls), ended)
            conversation = conversation.heard(new, author="tool")
            expected += fed
            mask += [False] * len(fed)
        calls = some_calls(rng, family)
        words = some_text(rng, family.controls, 3)
        ids = made.ids([words, *family.written(calls)] if calls else [words])
        if rng.integers(5) == 0:  # noise, or a control token in the middle
            ids = [*ids, made.id(family.controls[0]), *rng.choice(made.toy.tokenizer.vocab_size, 3).tolist(), *made.ids(["so"])]
            ids = [i for i in ids if i != made.id(family.end)]
        ended = bool(rng.integers(4)) or not ids
        ids += [made.id(family.end)] if ended else []
        stop = StopReason.EOS if ended else StopReason.MAX_TOKENS
        conversation = conversation.said(answer(conversation, ids, stop), calls)
        expected += ids
        mask += [True] * len(ids)
    return conversation, expected, mask


def as_fed(one, index, calls, chat):
    """A result with its call's id, private characters replaced."""
    text = chat.codec.cleaned(one.parts[0].text)
    return message(one.role, text, id=calls[index].id or None if one.role == "tool" and index < len(calls) else None)


def play_many(made, chat, player, rng, n):
    """Play n chats and demand of each: no token trained that was not sampled, none lost, the path is what was fed, and what a
    verifier reads holds nothing a tool said. Returns (tokens, tokens of the policy, courses)."""
    conversations, masks, courses = [], [], {}
    for i in range(n):
        conversation, expected, mask = player(rng, made, chat)
        assert conversation.ids().tolist() == expected
        assert sampled_mask(conversation).tolist() == mask
        tally = conversation.tally()
        assert sum(tally.values()) == len(expected)
        assert tally.get(SegmentKind.ACTION, 0) == sum(mask)
        text = own_text(Rollout("r", "t", conversation.path, conversation.stop), chat.codec.answer)
        assert NONCE not in text
        if i % 10 == 0:
            course = check(conversation).course
            courses[str(course)] = courses.get(str(course), 0) + 1
        conversations.append(conversation)
        masks += mask
    batch = batch_of(conversations)
    assert batch.rl_mask.tolist() == masks
    assert batch.input_ids.tolist() == np.concatenate([c.ids() for c in conversations]).tolist()
    assert np.isfinite(batch.behaviour[batch.rl_mask]).all()
    assert np.isnan(batch.behaviour[~batch.rl_mask]).all()
    return len(masks), sum(masks), courses


def every_shape():
    """(name, n for a share of 20, what plays it) of all shapes and tokenizers, with and without tools."""
    for kind in KINDS:
        for shape in SHAPES:
            yield f"{shape} {kind}", toy(shape, kind), chat_of(toy(shape, kind)), play
        for family in FAMILIES:
            made = tool_toy(family, kind)
            yield f"{family} {kind}, tools", made, made.chat(), play_tools


__all__ = ["ENDS", "KINDS", "every_shape", "messages_of", "play", "play_many", "play_tools", "some_text"]
