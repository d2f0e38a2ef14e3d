"""Stop strings over token borders: a character in several tokens, windows that move, tokenizers that decode bytes."""

import numpy as np
import pytest

from chat_cases import toy
from gfcr.engine.contract import Request, StopSpec
from gfcr.engine.scripted import ScriptedEngine, ScriptedSettings
from gfcr.engine.stops import Watch, cut_at
from gfcr.generate.codec import Codec
from gfcr.types import Node, Sampling, Segment, SegmentKind, StopReason


def first_hit(ids, strings, decode):
    """Tokens at which the watch first sees one of the strings; None when it never does."""
    watch = Watch(strings, decode)
    return next((n for n in range(1, len(ids) + 1) if watch.hit(np.asarray(ids[:n], np.int32))), None)


def should_hit(ids, strings, decode):
    for n in range(1, len(ids) + 1):
        text = decode(ids[:n])
        if any(s in text for s in strings):
            return n
    return None


@pytest.mark.parametrize("kind", ["bytes", "fallback"])
@pytest.mark.parametrize("before", [0, 1, 42, 43, 150])
def test_a_stop_string_of_many_byte_tokens_is_found_where_it_is_complete(kind, before):
    """Five characters of four tokens each: more tokens than the string has characters, after a window that moved."""
    made = toy("chatml", kind)
    decode = Codec(made.tokenizer).answer
    stop = "🛑" * 5
    ids = [*made.ids(["🙂" * 60])[: 4 * (before // 4)], *made.ids(["x" * (before % 4)]), *made.ids([stop + "tail"])]
    assert should_hit(ids, (stop,), decode) == first_hit(ids, (stop,), decode) is not None


def test_a_stop_string_that_begins_inside_a_token_and_one_over_three():
    made = toy("chatml")
    decode = Codec(made.tokenizer).answer
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(60):
        ids = rng.choice(made.texts, 80).tolist()
        text = decode(ids)
        at = int(rng.integers(20, max(21, len(text) - 6)))
        strings = (text[at : at + int(rng.integers(1, 6))] or "x", "never there")
        if any("\ufffd" in s for s in strings):
            continue
        found += 1
        assert first_hit(ids, strings, decode) == should_hit(ids, strings, decode)
    assert found > 15


def test_the_window_stays_bounded_on_bytes_that_are_no_text():
    seen = []

    def decode(ids):
        seen.append(len(ids))
        return "\ufffd" * len(ids)

    first_hit([0] * 2000, ("abc",), decode)
    assert max(seen) < 17 * 11 + 2


@pytest.mark.parametrize(("keep", "text"), [(True, "a<b>"), (False, "a")])
def test_the_text_is_cut_at_the_first_stop_string(keep, text):
    assert cut_at("a<b>c<b>", ("c", "<b>"), keep) == text
    assert cut_at("nothing", ("c", "<b>"), keep) == "nothing"


def test_tokens_stay_as_sampled_when_the_last_one_holds_more_than_the_stop():
    made = toy("chatml")
    codec = Codec(made.tokenizer)
    word = next(i for i in made.texts.tolist() if len(codec.answer([i])) > 3 and codec.answer([i]).isalpha())
    stop = codec.answer([word])[1:3]
    free = [*made.ids(["1 "]), word, *made.ids([" 2 3"])]
    engine = ScriptedEngine(settings=ScriptedSettings(vocabulary=len(made.tokenizer)), decode=codec.answer)
    node = Node("p", None, Segment(SegmentKind.PROMPT, np.asarray(made.ids(["q"]), np.int32)))
    engine.submit(Request("x", (node,), Sampling(), 40, 1, StopSpec((), (stop,))))
    sampled = np.concatenate([c.ids for c in iter(lambda: engine.step(1)[0] if engine.live() else None, None)])
    text = codec.answer(sampled)
    assert (stop in text) == (len(sampled) < 40)
    cut = free[: first_hit(free, (stop,), codec.answer)]
    assert cut[-1] == word
    assert cut_at(codec.answer(cut), (stop,), True) == "1 " + codec.answer([word])[:3]
    assert StopReason.STOP_STRING.finished


@pytest.mark.parametrize("at", range(1, 12))
def test_a_string_that_a_resumed_answer_completes_is_found_and_one_it_had_is_not_again(at):
    made = toy("chatml", "bytes")
    decode = Codec(made.tokenizer).answer
    ids = np.asarray(made.ids(["ab🛑cd🛑ef"]), np.int32)
    strings = ("🛑",)
    ends = [n for n in range(1, len(ids) + 1) if decode(ids[:n]).count("🛑") > decode(ids[: n - 1]).count("🛑")]
    watch = Watch(strings, decode, ids[:at])
    found = next((n for n in range(at + 1, len(ids) + 1) if watch.hit(ids[at:n])), None)
    assert found == next((n for n in ends if n > at), None) and len(ends) == 2
