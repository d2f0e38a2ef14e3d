"""What users of such systems report about tokens, masks and log-probabilities: each kind of fault, by its smallest input.

By the numbers of that list (there is no 8):

1. rllm#272, a round trip that is not injective: `test_1_...` (text, and a tool call in a spacing of its own)
2. verl#3720, the template's newline after the end token: `test_2_...`
3. verl#3960, tool calls cleared in the history: `test_3_...`
4. minimind#850, a length used as identity: `test_4_...`
5. ART#726, a template that rewrites the history: `test_5_...`
6. sglang#26555, an engine that retokenises: `test_6_...` (embedded, one turn and several; over HTTP: tests/engine/http)
7. slime#2263, parallel results rendered one by one: `test_7_...` (every family: tests/generate/test_tool_chats.py)
9. trl#6789, top_p and another support: `test_9_...`
10. open-instruct#1473, state that leaks in the engine: `test_10_...`
11. trl#6369, a denominator that counts masked answers: `test_11_...`

Single reports with the right behaviour: test_token_reports.py.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from chat_cases import answer, batch_of, chat_of, messages_of, sampled_mask, toy
from gfcr.build import facts
from gfcr.compose import check as compose
from gfcr.domains.source import FileTasks
from gfcr.engine.contract import Request, ScoreItem, StopSpec
from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
from gfcr.engine.embedded.law import Laws, log_law
from gfcr.errors import DataError
from gfcr.filter.admission import AdmissionSettings, admit
from gfcr.filter.assemble import build_batch
from gfcr.generate.codec import Codec
from gfcr.generate.drift import Kind, check
from gfcr.generate.turns import Conversation
from gfcr.recipe import parse
from gfcr.types import (
    Credit,
    Drop,
    Node,
    Normalise,
    Sampling,
    Segment,
    SegmentKind,
    StopReason,
    ToolCall,
    path_ids,
)
from group_cases import action, group, plain, rollout
from network_cases import small_llama as model
from tool_cases import tool_toy

ASK = messages_of([("user", "12 + 30?")])


def split_pair(made):
    """Two tokens whose text the tokenizer gives as one."""
    codec = Codec(made.tokenizer)
    for whole in made.texts.tolist():
        text = codec.text([whole])
        if len(text) == 2 and text.isalpha() and made.ids([text]) == [whole]:
            return [*made.ids([text[0]]), *made.ids([text[1]])], whole, codec
    raise AssertionError("the tokenizer has no token of two letters")


def test_1_non_injective_round_trip():
    """rllm#272: ids that decode and encode to others. They are kept as sampled, and the checker says so."""
    made = toy("chatml")
    pair, whole, codec = split_pair(made)
    assert made.ids([codec.text(pair)]) == [whole] != pair
    one = Conversation.start(chat_of(made), ASK)
    one = one.said(answer(one, [*pair, made.id("<|im_end|>")])).heard(ASK)
    assert path_ids(one.path[1:2]).tolist() == [*pair, made.id("<|im_end|>")]
    (found,) = check(one).mismatches
    assert (found.kind, found.own.tolist(), found.rendered.tolist()) == (Kind.RETOKENISED, pair, [whole])


def test_1_a_tool_call_in_a_spacing_of_its_own():
    """rllm#272 with tools: the template would write the call otherwise; the tokens and the text before the result are the policy's."""
    made = tool_toy("hermes")
    one = Conversation.start(made.chat(), ASK)
    said = [*made.ids(['<tool_call>{"arguments":{"x":12},"name":"add"}</tool_call>']), made.id("<|im_end|>")]
    one = one.said(answer(one, said), [ToolCall("add", {"x": 12})]).heard(messages_of([("tool", "42")]))
    assert one.path[1].segment.ids.tolist() == said
    assert check(one).exact  # the text as it was written is the history, not the calls read from it
    assert one.messages[1].calls[0].arguments == {"x": 12}
    apart = [*made.ids(["<tool_call>{"]), *made.ids(['"name":"f"}</tool_call>']), made.id("<|im_end|>")]
    two = one.said(answer(one, apart, name="b"), [ToolCall("f", {})]).heard(messages_of([("tool", "1")]))
    assert two.path[3].segment.ids.tolist() == apart
    assert {m.kind for m in check(two).mismatches} <= {Kind.RETOKENISED}


def test_2_template_glue_token_missing():
    """verl#3720: two assistant turns; the newline after the end token stands in the trained sequence, outside the loss."""
    made = toy("chatml")
    one = Conversation.start(chat_of(made), ASK)
    one = one.said(answer(one, [*made.ids(["42"]), made.id("<|im_end|>")])).heard(messages_of([("user", "why?")]))
    one = one.said(answer(one, [*made.ids(["sum"]), made.id("<|im_end|>")]))
    texts = [("user", "12 + 30?"), ("assistant", "42"), ("user", "why?"), ("assistant", "sum")]
    dicts = [{"role": role, "content": text} for role, text in texts]
    full = made.tokenizer.apply_chat_template(dicts, tokenize=True, return_dict=False)
    assert [*one.ids().tolist(), *check(one).pending.tolist()] == full
    batch = batch_of([one])
    assert batch.input_ids.tolist() == one.ids().tolist()
    assert batch.rl_mask.tolist() == sampled_mask(one).tolist()
    newline = len(path_ids(one.path[:2]))
    assert batch.input_ids[newline] == made.ids(["\n"])[0]
    assert not batch.rl_mask[newline]


def test_2_a_checker_reports_a_lost_glue_token():
    """verl#3720, the right behaviour: whoever feeds the next header without the newline is told."""
    made = toy("chatml")
    one = Conversation.start(chat_of(made), ASK)
    one = one.said(answer(one, [*made.ids(["42"]), made.id("<|im_end|>")])).heard(ASK)
    fed = one.path[-1]
    lost = replace(fed, segment=replace(fed.segment, ids=fed.segment.ids[1:]))
    (found,) = check(replace(one, path=(*one.path[:-1], lost))).mismatches
    assert (found.kind, found.rendered.tolist()) == (Kind.GLUE, made.ids(["\n"]))


def test_3_lossy_message_normalisation(tmp_path):
    """verl#3960: a tool call in the history is kept, rendered the same each time and after a turn more; a field that would be left
    out is refused, not cleared."""
    file = tmp_path / "t.jsonl"

    def load(assistant):
        row = {"prompt": [{"role": "user", "content": "x"}, assistant, {"role": "tool", "content": "3"}], "answer": "1"}
        file.write_text(json.dumps(row) + "\n")
        return FileTasks(file, "t").load()[0]

    called = {"name": "add", "arguments": {"x": 1}}
    task = load({"role": "assistant", "content": "look", "tool_calls": [called]})
    made = tool_toy("hermes")
    chat = made.chat()
    once = chat.prompt(task.prompt)
    text = chat.codec.text(once)
    assert 'look\n<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call><|im_end|>' in text
    one = Conversation.start(chat, task.prompt)
    one = one.said(answer(one, [*made.ids(["4"]), made.id("<|im_end|>")])).heard(ASK)
    assert chat.prompt(task.prompt) == once == one.ids().tolist()[: len(once)]
    assert check(one).exact
    with pytest.raises(DataError, match="'function_call'"):
        load({"role": "assistant", "content": "look", "function_call": called})
    assert load({"role": "assistant", "content": "x", "tool_calls": None}).prompt[1].calls == ()


def test_4_length_used_as_identity():
    """minimind#850: a completion with an extra control token shifts nothing: what was fed begins where it begins."""
    made = toy("chatml")
    one = Conversation.start(chat_of(made), ASK)
    said = [*made.ids(["4"]), made.id("<|im_start|>"), *made.ids(["2"]), made.id("<|im_end|>")]
    two = one.said(answer(one, said)).heard(messages_of([("user", "why?")]))
    assert two.path[1].segment.ids.tolist() == said
    assert two.path[2].segment.ids.tolist() == made.after(
        [("user", "12 + 30?"), ("assistant", "")], [("user", "why?")], ended=True
    )
    assert Kind.CONTROL_WRITTEN in [m.kind for m in check(two).mismatches]


def test_5_template_rewrites_history():
    """ART#726: a template that drops past thinking does not drop it from the tokens; the prefix is preserved and it is said."""
    template = (
        "{% for m in messages %}{% set text = m.content.split('</think>')[-1] if not loop.last else m.content %}"
        "{{ '<|im_start|>' + m.role + '\n' + text + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    made = toy("chatml", template=template)
    one = Conversation.start(chat_of(made), ASK)
    one = one.said(answer(one, [*made.ids(["<think>hm</think>42"]), made.id("<|im_end|>")]))
    prefix = one.ids().tolist()
    two = one.heard(messages_of([("user", "why?")]))
    two = two.said(answer(two, [*made.ids(["<think>so</think>sum"]), made.id("<|im_end|>")]))
    assert two.ids().tolist()[: len(prefix)] == prefix
    assert [m.kind for m in check(two).mismatches] == [Kind.HISTORY_REWRITTEN]


def test_6_engine_not_token_in_token_out():
    """sglang#26555: the engine reads the two tokens it is given, not the one their text encodes to."""
    made = toy("chatml")
    pair, whole, codec = split_pair(made)
    network = model(len(made.tokenizer))
    engine = EmbeddedEngine(network, EmbeddedSettings(slots=4), decode=codec.answer)
    node = Node("p", None, Segment(SegmentKind.PROMPT, np.asarray(pair, np.int32)))
    engine.submit(Request("x", (node,), Sampling(), 1, 7, StopSpec((), ("never",))))
    (chunk,) = engine.step()

    def law(ids):
        with torch.no_grad():
            return torch.log_softmax(network(torch.tensor([ids])).logits[0, -1].float(), -1)[chunk.ids[0]].item()

    assert chunk.logprobs[0] == pytest.approx(law(pair), abs=5e-5)
    assert abs(law(pair) - law([whole])) > 1e-3
    assert engine.usage().prefilled == 2


def test_6_several_turns_are_scored_in_the_context_they_were_sampled_in():
    """sglang#26555 over turns: what the engine gave for each answer is what it gives for the whole path, results of tools in it."""
    made = tool_toy("hermes")
    engine = EmbeddedEngine(model(len(made.toy.tokenizer), 512), EmbeddedSettings(slots=4), decode=made.chat().codec.answer)
    one = Conversation.start(made.chat(), ASK)
    for turn in range(3):
        engine.submit(Request(str(turn), one.path, Sampling(), 5, turn, StopSpec()))
        chunks = []
        while engine.live():
            chunks += engine.step()
        ids, logprobs = (np.concatenate([getattr(c, name) for c in chunks]) for name in ("ids", "logprobs"))
        sampled = Segment(SegmentKind.ACTION, ids, logprobs, sampling=Sampling(), author="policy", version=0)
        node = Node(f"a{turn}", one.path[-1].id, sampled)
        one = one.grown((*one.path, node), StopReason.MAX_TOKENS, [ToolCall("add", {"x": turn})])
        one = one.heard(messages_of([("tool", f"{turn} <|im_end|>"), ("tool", "é")]))
    ends = np.cumsum([len(n.segment) for n in one.path])
    spans = tuple(
        (int(e - len(n.segment)), int(e), Sampling()) for n, e in zip(one.path, ends) if n.segment.logprobs is not None
    )
    (scored,) = engine.score([ScoreItem("s", one.ids(), spans)])
    assert len(spans) == 3
    for (begin, end, _), node in zip(spans, [n for n in one.path if n.segment.logprobs is not None]):
        np.testing.assert_allclose(scored.logprobs[begin:end], node.segment.logprobs, atol=5e-5)


def test_7_per_message_rendering_of_a_joint_structure():
    """slime#2263: two parallel results in one turn of the template, not in two."""
    template = (
        "{% for m in messages %}{% if m.role == 'tool' %}{% if messages[loop.index0 - 1].role != 'tool' %}"
        "{{ '<|im_start|>user' }}{% endif %}{{ '\n' + m.content }}"
        "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
        "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    made = toy("chatml", template=template)
    one = Conversation.start(chat_of(made), ASK)
    one = one.said(answer(one, [*made.ids(["look"]), made.id("<|im_end|>")])).heard(messages_of([("tool", "4"), ("tool", "5")]))
    assert one.ids().tolist().count(made.id("<|im_start|>")) == 4  # question, answer, both results, next header
    assert check(one).exact
    with pytest.raises(ValueError, match="after an answer"):  # a second result cannot come by itself
        one.heard(messages_of([("tool", "6")]))


def test_9_different_support():
    """trl#6789: top_p = .5 over p = [.5, .3, .2]: the log-probability is that of the renormalised law, the kept mass comes with
    it, and a recipe that truncates on an engine without either is refused."""
    laws = Laws(3, torch.device("cpu"))
    rows = laws.rows(np.array([laws.number(Sampling(top_p=0.5))]))
    law, mass = log_law(torch.tensor([[0.5, 0.3, 0.2]]).log(), rows)
    assert mass is not None
    assert law[0].tolist() == pytest.approx([0.0, -np.inf, -np.inf], abs=1e-6)
    assert mass.tolist() == pytest.approx([0.5])
    assert (law[0, 0] + mass.log()[0]).item() == pytest.approx(np.log(0.5), abs=1e-6)
    recipe = parse({"engine": {"name": "scripted"}, "generate": {"sampling": {"top_p": 0.5}}})
    raw = replace(facts(recipe), engine_features=frozenset())
    assert "truncated_without_processed" in [finding.rule for finding in compose(raw)]


def test_10_state_leak_in_engine():
    """open-instruct#1473: one prompt, the same weights, 500 calls among others: one answer, one set of log-probabilities."""
    engine = EmbeddedEngine(model(40), EmbeddedSettings(slots=32))
    rng = np.random.default_rng(0)
    node = Node("p", None, Segment(SegmentKind.PROMPT, np.arange(3, 9, dtype=np.int32)))
    seen, first = 0, None
    for call in range(20):
        for i in range(25):
            engine.submit(Request(f"{call}.{i}", (node,), Sampling(temperature=1.0), 4, 11, StopSpec()))
        other = Node(f"o{call}", None, Segment(SegmentKind.PROMPT, rng.integers(0, 40, 5 + call).astype(np.int32)))
        engine.submit(Request(f"other{call}", (other,), Sampling(), 6, call, StopSpec()))
        while engine.live():
            for chunk in engine.step():
                if chunk.request.startswith("other"):
                    continue
                seen += 1
                first = first or chunk
                assert chunk.ids.tolist() == first.ids.tolist()
                np.testing.assert_allclose(chunk.logprobs, first.logprobs, atol=5e-5)
    assert seen == 500
    scored = engine.score([ScoreItem("s", np.concatenate([path_ids((node,)), first.ids]), ((6, 10, Sampling()),))])
    np.testing.assert_allclose(scored[0].logprobs[6:], first.logprobs, atol=5e-5)


def truncated_and_finished(overlong):
    made = group([0.0, 1.0])
    for one, (name, stop) in zip(made.members.values(), (("a", StopReason.MAX_TOKENS), ("b", StopReason.EOS))):
        one.rollout = rollout(name, plain(SegmentKind.PROMPT, 2), action(4), stop=stop)
    admit(made, AdmissionSettings(overlong=overlong, drop_zero_variance=False))
    for one in made.members.values():
        one.credit = Credit(1.0) if one.in_loss else None
    return made


def test_11_numerator_and_denominator_use_different_masks():
    """trl#6369: one truncated and masked answer, one finished one, per-token loss 1: 4/4, not 4/8; nothing left: 0, no error."""
    made = truncated_and_finished("mask")
    assert [m.drop for m in made.members.values()] == [Drop.OVERLONG, None]
    batch = build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0)
    assert float((batch.token_weights() * np.ones(len(batch.input_ids))).sum()) == pytest.approx(1.0)
    assert np.count_nonzero(batch.token_weights()) == 4
    empty = replace(batch, rl_mask=np.zeros_like(batch.rl_mask))
    assert empty.token_weights().tolist() == [0.0] * len(batch.input_ids)
    both = build_batch([truncated_and_finished("keep")], Normalise.TOKEN_MEAN, None, 0, 0)
    assert float(both.token_weights().sum()) == pytest.approx(1.0)
    assert np.count_nonzero(both.token_weights()) == 8
