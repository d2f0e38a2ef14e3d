"""From characters of the judged text to tokens: the lab's characters, and byte-level BPE that cuts characters in two."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfcr.domains.programs.tokenizer import END_ID, encode_answer
from gfcr.filter.answer import own_text
from gfcr.filter.cascade import Cascade
from gfcr.filter.places import TurnText, token_spans
from gfcr.types import Segment, SegmentKind, Span, Status, StopReason, Verdict
from group_cases import LAW, plain, rollout, task
from lifecycle_cases import decoder

CORPUS = [
    "def f(x):\n    return x + 1\n",
    "naïve café déjà vu",
    "答え は 四十二 です 👩‍🚀🚀",
    "the cat sat on the mat  and the dog",
] * 4


@pytest.fixture(scope="module")
def bpe():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, special_tokens=["<end>"]))
    return made


def decode_with(tokenizer):
    return lambda ids: tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)


def byte_table():
    """Byte of each character of byte-level vocabularies (GPT-2's table, as every byte-level tokenizer has it)."""
    plain_ = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain_]
    return {chr(b): b for b in plain_} | {chr(256 + i): b for i, b in enumerate(rest)}


def by_bytes(tokenizer, ids, text, start, end):
    """The token range by counting bytes, worked out without any decoding."""
    table = byte_table()
    owner = [t for t, i in enumerate(ids) for _ in ([] if i == 0 else [table[c] for c in tokenizer.id_to_token(int(i))])]
    a, b = (len(text[:n].encode()) for n in (start, end))
    inside = owner[a:b]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def test_the_tokenizer_cuts_characters(bpe):
    assert len(bpe.encode("🦜").ids) > 1  # so that the tests below are about something


@settings(deadline=None, max_examples=150)
@given(text=st.text(alphabet="abc xé答👩🚀🦜\n\u200d", min_size=1, max_size=24), data=st.data())
def test_byte_level_tokens_of_a_place_are_those_that_hold_its_bytes(bpe, text, data):
    ids = np.asarray(bpe.encode(text).ids, np.int32)
    found = TurnText(ids, decode_with(bpe))
    assert found.text == text
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    assert found.tokens(start, end) == by_bytes(bpe, ids, text, start, end)


def test_empty_places_and_places_beyond_the_text_have_no_tokens(bpe):
    found = TurnText(np.asarray(bpe.encode("the cat").ids), decode_with(bpe))
    assert found.tokens(3, 3) == found.tokens(40, 50) == (0, 0)
    assert found.tokens(4, 99)[1] == len(found.ids)
    assert TurnText(np.empty(0, np.int32), decode_with(bpe)).tokens(0, 1) == (0, 0)


def test_bytes_that_are_no_text_do_not_shift_what_follows(bpe):
    ids = np.asarray([*bpe.encode("the é").ids, bpe.token_to_id("ĩ"), *bpe.encode("cat").ids], np.int32)  # a lone byte
    found = TurnText(ids, decode_with(bpe))
    at = found.text.index("cat")
    assert decode_with(bpe)(ids[slice(*found.tokens(at, at + 3))]) == "cat"


def test_few_decodings_are_enough():
    calls = []

    def counting(ids):
        calls.append(len(ids))
        return decoder(ids)

    long = np.asarray(encode_answer("a+00" * 1000), np.int32)
    assert TurnText(long, counting).tokens(1234, 1240) == (1234, 1240)
    assert len(calls) <= 2 * 13


def acted(ids):
    return Segment(SegmentKind.ACTION, ids, np.full(len(ids), -0.1), sampling=LAW, version=0)


def test_places_over_turns_follow_the_text_that_was_judged():
    """Two turns, the first in two segments, the text cut at its stop string; the break between turns belongs to nobody."""
    first, more, last = (np.asarray(encode_answer(t), np.int32) for t in ("a+00", "b-", "c*11#55"))
    path = (plain(SegmentKind.PROMPT, 3), acted(first), acted(more), plain(SegmentKind.OBSERVATION, 2), acted([*last, END_ID]))
    made = rollout("r", *path, stop=StopReason.STOP_STRING)
    text = own_text(made, decoder, ("#",))
    assert text == "a+00b-\nc*11#"
    spans = [(0, 4), (2, 6), (5, 8), (6, 7), (7, 12), (0, len(text))]
    assert token_spans(made, decoder, spans) == [
        [(3, 7)],
        [(5, 9)],
        [(8, 9), (11, 12)],
        [],
        [(11, 16)],
        [(3, 9), (11, 16)],
    ]


class Pointing:
    bounded = True
    version = "1"

    def __init__(self, name, verdict):
        self.name, self.verdict = name, verdict

    def judge(self, task, text, stop):
        return self.verdict


def test_a_refusal_points_too_and_neither_the_final_answer_nor_places_outside_the_text_are_evidence():
    gate = Pointing(
        "gate",
        Verdict("gate", "1", Status.INVALID, spans=(Span(0, 2, "line", 0.0), Span(90, 95, "line"), Span(0, 3, "answer"))),
    )
    made = rollout("r", plain(SegmentKind.PROMPT, 3), acted(np.asarray(encode_answer("a+0"), np.int32)))
    signals = Cascade(decoder, [gate], []).judge(task(), made)
    assert [(s.start, s.end, s.kind, s.value, s.source) for s in signals.steps] == [(3, 5, "evidence", 0.0, "gate:line")]
