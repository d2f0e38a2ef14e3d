"""A draw depends on key, offset and logits only: not on neighbours, slots, waves, forks, resumes or chunking."""

import numpy as np
import pytest
from engine_helpers import VOCABULARY, drain, make_engine, node, request, run, same, shared_engine, some

from gfcr.run.seeds import stream_key
from gfcr.types import Sampling, SegmentKind, StopReason


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_batch_composition_does_not_change_a_draw(kind):
    engine = shared_engine(kind)
    together = run(engine, some(), tokens=5)
    alone = {}
    for one in some()[::4]:
        alone |= run(engine, [one])
    same(alone, {name: together[name] for name in alone})
    same(together, run(engine, some()[::-1]))


def test_the_same_submissions_are_bit_equal():
    first, second = (run(make_engine(), some(), tokens=7) for _ in range(2))
    for name, chunk in first.items():
        assert chunk.ids.tobytes() == second[name].ids.tobytes()
        assert chunk.logprobs.tobytes() == second[name].logprobs.tobytes()
        assert chunk.tracks["entropy"].tobytes() == second[name].tracks["entropy"].tobytes()


def test_slots_and_block_size_do_not_change_a_draw():
    want = run(shared_engine(), some())
    for settings in ({"slots": 3}, {"slots": 64, "block": 4}, {"block": 64, "batch_tokens": 40, "min_shared": 1}):
        same(run(make_engine(**settings), some()), want)


def test_resuming_with_the_same_key_goes_on_as_if_nothing_happened():
    engine = shared_engine()
    prompt = np.arange(1, 14)
    whole = run(engine, [request("x", prompt, 40, key=9)])["x"]
    engine.submit(request("x", prompt, 40, key=9))
    first = engine.step(11)[0]
    rest = engine.cancel("x")
    assert (rest.stop, len(rest.ids)) == (StopReason.CANCELLED, 0)
    path = (node(prompt), node(first.ids, SegmentKind.ACTION, "a"))
    second = run(engine, [request("x", path, 40 - 11, key=9)])["x"]
    assert np.concatenate([first.ids, second.ids]).tolist() == whole.ids.tolist()
    assert np.abs(np.concatenate([first.logprobs, second.logprobs]) - whole.logprobs).max() < 5e-5


def test_a_fork_with_the_parents_key_repeats_the_parent_and_another_key_leaves_it():
    engine = shared_engine()
    prompt = np.arange(1, 20)
    engine.submit(request("p", prompt, 50, key=9, retain=True))
    head = engine.step(20)[0].ids
    path = (node(prompt), node(head[:15], SegmentKind.ACTION, "a"))
    forks = [request(f"f{k}", path, 35, key=k, fork_of="p", fork_at=34) for k in (9, 10, 11)]
    out = run(engine, forks)
    parent = np.concatenate([head, out["p"].ids])
    assert out["f9"].ids.tolist() == parent[15:50].tolist()
    assert out["f10"].ids.tolist() != out["f11"].ids.tolist() != out["f9"].ids.tolist()
    same({"f10": out["f10"]}, run(engine, [request("f10", path, 35, key=10)]))  # and computing it anew changes nothing
    engine.cancel("p")


def test_penalties_follow_a_resume():
    law = Sampling(presence_penalty=0.8, frequency_penalty=0.4, repetition_penalty=1.2)
    engine = shared_engine()
    whole = run(engine, [request("x", [1, 2, 3], 30, law, key=4)])["x"]
    path = (node([1, 2, 3]), node(whole.ids[:12], SegmentKind.ACTION, "a"))
    rest = run(engine, [request("x", path, 18, law, key=4), request("y", [5], 9, key=1)])["x"]
    assert rest.ids.tolist() == whole.ids[12:].tolist()


def test_greedy_is_a_point_mass_on_the_largest_logit():
    engine = shared_engine()
    out = run(
        engine,
        [
            request("a", [3, 4, 5], 12, Sampling(temperature=0), key=1),
            request("b", [3, 4, 5], 12, Sampling(temperature=0), key=2),
        ],
    )
    assert out["a"].ids.tolist() == out["b"].ids.tolist()
    assert not out["a"].logprobs.any()
    assert not out["a"].tracks["entropy"].any()
    assert drain(engine) == {}


def test_draws_follow_the_law():
    """8,000 first tokens against the law the engine reports for them: chi-square over the tokens drawn."""
    engine = make_engine(slots=4000)
    law = Sampling(temperature=0.9, top_k=6, banned=(2,))
    n = 8_000
    out = run(engine, [request(f"r{i}", [1, 2, 3], 1, law, key=stream_key(1, "law", i)) for i in range(n)])
    counts, p = np.zeros(VOCABULARY), np.zeros(VOCABULARY)
    for chunk in out.values():
        counts[chunk.ids[0]] += 1
        p[chunk.ids[0]] = np.exp(chunk.logprobs[0])
    assert abs(p.sum() - 1) < 1e-5
    assert (p > 0).sum() == 6
    assert p[2] == 0
    kept = p > 0
    assert ((counts - n * p)[kept] ** 2 / (n * p)[kept]).sum() < 20.5  # chi-square, 5 degrees of freedom, p = .001
