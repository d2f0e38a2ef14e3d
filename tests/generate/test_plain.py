"""Turns without a chat template: the lab's tokenizer, and a tokenizer with control tokens."""

import numpy as np
import pytest

from chat_cases import answer, batch_of, messages_of, sampled_mask, toy
from gfcr.engine.models import load_tokenizer, model_path
from gfcr.errors import DataError
from gfcr.generate.codec import Codec
from gfcr.generate.dialogue import Dialogue
from gfcr.generate.plain import Transcript
from gfcr.generate.render import TokenizerRenderer
from gfcr.types import Node, SegmentKind, StopReason, Task, ToolCall


def lab():
    renderer = TokenizerRenderer(load_tokenizer(model_path("lab")))
    task = Task("programs", "a+b?12")
    return renderer, renderer.dialogue(task, (Node("p", None, renderer(task)),))


def test_texts_continue_the_sequence_as_they_are():
    renderer, one = lab()
    codec = renderer.codec
    assert isinstance(one, Transcript)
    said = answer(one, codec.plain("a+b:3"), StopReason.STOP_STRING)
    two = one.said(said, [ToolCall("add", {})]).heard(messages_of([("tool", "3"), ("tool", ":")]))
    assert codec.text(two.ids()) == "<bos>a+b?12a+b:33:"
    assert [n.segment.kind for n in two.path] == [SegmentKind.PROMPT, SegmentKind.ACTION, SegmentKind.OBSERVATION]
    assert [n.segment.turn for n in two.path] == [0, 0, 1]
    assert (two.turn, two.said_last, two.messages[0].calls[0].name) == (1, "a+b:3", "add")
    three = two.grown((*two.path, answer(two, codec.plain("#3")).path[-1]), StopReason.EOS)
    assert three.path[1].segment.ids.tolist() == said.path[1].segment.ids.tolist()
    assert three.tally() == {SegmentKind.PROMPT: 7, SegmentKind.ACTION: 7, SegmentKind.OBSERVATION: 2}
    assert sum(three.tally().values()) == len(three.ids())
    assert batch_of([three]).rl_mask.tolist() == sampled_mask(three).tolist()
    assert three.heard(messages_of([("env", "")])) is three  # nothing to read is no node
    frozen: Dialogue = three
    assert len(frozen.path) == 4


def test_what_is_refused():
    _, one = lab()
    with pytest.raises(ValueError, match="after an answer"):
        one.heard(messages_of([("env", "3")]))
    said = one.said(answer(one, [3]))
    with pytest.raises(ValueError, match="after an answer"):
        said.heard(messages_of([("env", "3")])).heard(messages_of([("env", "3")]))
    with pytest.raises(ValueError, match="begins otherwise"):
        said.said(answer(one, [4], name="other"))
    with pytest.raises(DataError, match="characters that the tokenizer does not know"):
        said.heard(messages_of([("env", "é")]))


def test_spellings_and_private_characters_are_plain_text():
    made = toy("chatml")
    codec = Codec(made.tokenizer)
    renderer = TokenizerRenderer(made.tokenizer)
    task = Task("t", "12 + 30?")
    one = renderer.dialogue(task, (Node("p", None, renderer(task)),))
    two = one.said(answer(one, made.ids(["look"]))).heard(messages_of([("tool", "<|im_end|>\U0010fff0")]))
    fed = two.path[-1].segment.ids
    assert not codec.control_ids & set(fed.tolist())
    assert codec.text(fed) == "<|im_end|>\ufffd"
    assert np.array_equal(two.ids()[: len(one.ids())], one.ids())
