"""The scripted engine keeps the same contract without a model."""

import numpy as np
import pytest
from engine_helpers import VOCABULARY, difference, drain, node, request, run

from gfcr.engine import features_of
from gfcr.engine.contract import WeightsRef
from gfcr.engine.scripted import ScriptedEngine, ScriptedSettings
from gfcr.run.seeds import stream_key
from gfcr.types import Sampling, SegmentKind, StopReason

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789#"


def decode(ids):
    return "".join(LETTERS[i] for i in ids)


def some(count=40, n=200, **more):
    return [request(f"r{i}", np.arange(1, 2 + i % 9), n, key=stream_key(1, "s", i), eos=(0, 5), **more) for i in range(count)]


def engine(script=None, **settings):
    return ScriptedEngine(script, ScriptedSettings(**settings), decode)


def test_same_key_same_stream_whatever_the_batch():
    together = run(engine(slots=7), some(), tokens=3)
    alone = {}
    for one in some():
        alone |= run(engine(), [one])
    for name, chunk in together.items():
        assert chunk.ids.tolist() == alone[name].ids.tolist()
        assert chunk.logprobs.tolist() == alone[name].logprobs.tolist()
        assert chunk.stop is alone[name].stop
        ends = np.flatnonzero(np.isin(chunk.ids, (0, 5)))
        assert ends.tolist() == ([len(chunk.ids) - 1] if chunk.stop is StopReason.EOS else [])


def test_lengths_are_log_normal_and_limits_hold():
    out = run(engine(mean_length=50), some(3000, n=100))
    lengths = np.array([len(c.ids) for c in out.values()])
    cut = np.array([c.stop is StopReason.MAX_TOKENS for c in out.values()])
    assert lengths.max() == 100
    assert (lengths[cut] == 100).all()
    assert abs(np.median(lengths) - 50 * np.exp(-(0.7**2) / 2)) < 3
    assert {c.stop for c in run(engine(), [request("x", [1], 9)]).values()} == {StopReason.MAX_TOKENS}


def test_scores_are_those_the_streams_came_with():
    one = engine()
    requests = some()
    out = run(one, requests)
    assert difference(one, requests, out) == 0
    one.load(WeightsRef(3, "memory:"))
    assert 0 < difference(one, requests, out) < 0.11


def test_cancel_and_resume_go_on_with_the_same_stream():
    one = engine()
    whole = run(one, [request("x", [1, 2], 60, key=5, eos=(0,))])["x"]
    one.submit(request("x", [1, 2], 60, key=5, eos=(0,)))
    first = one.step(6)[0]
    assert len(first.ids) == 6
    assert len(one.cancel("x").ids) == 0
    rest = run(one, [request("x", (node([1, 2]), node(first.ids, SegmentKind.ACTION)), 54, key=5, eos=(0,))])["x"]
    assert np.concatenate([first.ids, rest.ids]).tolist() == whole.ids.tolist()
    assert rest.stop is whole.stop


def test_forks_and_groups_count_their_prefix_as_cached():
    one = engine()
    one.submit(request("p", [1, 2, 3], 30, key=1, retain=True))
    head = one.step(5)[0].ids
    path = (node([1, 2, 3]), node(head[:4], SegmentKind.ACTION))
    one.submit(request("f", path, 9, key=2, fork_of="p", fork_at=7))
    with pytest.raises(ValueError, match="differs from its parent"):
        one.submit(request("g", [1, 9], 9, key=2, fork_of="p", fork_at=2))
    drain(one)
    one.submit(request("late", path, 9, key=3, fork_of="p", fork_at=7))
    for i in range(4):
        one.submit(request(f"k{i}", [4, 4], 3, key=i))
    drain(one)
    costs = {c.request: (c.computed, c.cached) for c in one.prefilled()}
    assert costs == {"p": (3, 0), "f": (0, 7), "late": (0, 7), "k0": (2, 0), "k1": (0, 2), "k2": (0, 2), "k3": (0, 2)}
    usage = one.usage()
    assert (usage.prefilled, usage.cached) == (5, 20)


def test_decoded_counts_every_sampled_token_once():
    one = engine(slots=5)
    requests = some(30)
    for r in requests:
        one.submit(r)
    tokens = sum(len(c.ids) for c in one.step(9))
    tokens += sum(len(c.ids) for name in ("r0", "r1") if (c := one.cancel(name)))
    tokens += sum(len(c.ids) for c in drain(one).values())
    assert one.usage().decoded == tokens
    assert one.live() == 0


def test_scripted_answers_by_id_by_prompt_and_member_and_by_function():
    script = {"r1": ((7, 8, 0), StopReason.EOS), ("bc", 0): ((3, 0), StopReason.EOS), ("bc", 1): ((4, 4, 4, 4), StopReason.EOS)}
    out = run(
        engine(script),
        [request("r1", [9], 9), request("a", [1, 2], 9), request("b", [1, 2], 3), request("c", [1, 2], 4, eos=(0,))],
    )
    assert (out["r1"].ids.tolist(), out["r1"].stop) == ([7, 8, 0], StopReason.EOS)
    assert out["a"].ids.tolist() == [3, 0]
    assert (out["b"].ids.tolist(), out["b"].stop) == ([4, 4, 4], StopReason.MAX_TOKENS)
    assert len(out["c"].ids) <= 4
    out = run(engine(lambda r: ((r.key,), StopReason.EOS)), [request("x", [1], 9, key=11)])
    assert out["x"].ids.tolist() == [11]
    with pytest.raises(ValueError, match="vocabulary of 37"):
        run(engine({"x": ((99,), StopReason.EOS)}), [request("x", [1], 9)])


def test_stop_strings_cut_the_stream():
    free = run(engine(), [request("x", [1], 40, key=3)])["x"]
    text = decode(free.ids)
    out = run(engine(), [request("x", [1], 40, key=3, strings=(text[20:22],))])["x"]
    assert out.stop is StopReason.STOP_STRING
    assert decode(out.ids) == text[: text.index(text[20:22]) + 2]


def test_the_clock_is_the_cost_model():
    one = engine(slots=2, seconds_per_step=1.0, seconds_per_token=0.1, seconds_per_prefill=0.01)
    script = {"a": ([1] * 3, StopReason.EOS), "b": ([1] * 5, StopReason.EOS), "c": ([1] * 2, StopReason.EOS)}
    one._script = script
    for name in script:
        one.submit(request(name, [1] * 4, 9))
    seen = []
    while one.live():
        seen += [(c.request, round(one.now(), 6)) for c in one.step()]
    # a and b start at .04 (one prompt, shared) with a token each; two steps of 1.2 end a and let c in, which prefills again
    assert seen == [("a", 2.48), ("c", 3.68), ("b", 4.78)]
    one.advance(10)
    assert one.now() > 14


def test_priorities_overtake_streams_that_are_drawn_already():
    one = engine(slots=1)
    for i in range(5):
        one.submit(request(f"r{i}", [1], 3, key=i, priority=1))
    one.step(1)
    one.submit(request("urgent", [1], 3, key=9))
    assert list(drain(one)) == ["r0", "urgent", "r1", "r2", "r3", "r4"]


def test_load_is_refused_while_live_and_the_fingerprint_names_the_version():
    one = engine()
    before = one.fingerprint()
    one.submit(request("x", [1], 3))
    with pytest.raises(RuntimeError, match="1 requests are live"):
        one.load(WeightsRef(1, "memory:"))
    drain(one)
    one.load(WeightsRef(1, "memory:"))
    assert one.fingerprint() != before
    assert run(one, [request("x", [1], 3)])["x"].version == 1
    assert one.capabilities().features == features_of("scripted")
    assert one.capabilities().vocabulary == VOCABULARY
    law = Sampling(top_k=3)
    assert run(one, [request("y", [1], 3, law)])["y"].tracks["kept_mass"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("bad", "message"), [({"ids": []}, "no tokens"), ({"n": 0}, "at least 1"), ({"ids": [40]}, "vocabulary")]
)
def test_bad_requests_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        engine().submit(request(**{"name": "x", "ids": [1], "n": 3} | bad))
