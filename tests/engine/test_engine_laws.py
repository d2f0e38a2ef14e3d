"""Laws that change within a rollout: the draws, the log-probabilities, and that nothing else changes."""

import numpy as np
import pytest
from engine_helpers import VOCABULARY, drain, join, make_engine, node, request, run, same, shared_engine

from gfcr.asks import GenerateAsk
from gfcr.drivers.assemble import Growing
from gfcr.engine.contract import ScoreItem
from gfcr.engine.scripted import ScriptedEngine
from gfcr.filter.assemble import score_item
from gfcr.types import Sampling, SegmentKind, StopReason, path_ids

WARM, COOL, CUT = Sampling(temperature=1.3), Sampling(temperature=0.6), Sampling(top_p=0.7)
PENAL = Sampling(repetition_penalty=1.4, presence_penalty=0.3, frequency_penalty=0.2)
CHANGING = ((5, COOL), (11, CUT), (20, PENAL))


def changing(name, n=30, key=1, ids=(1, 2, 3), later=CHANGING, **more):
    return request(name, ids, n, WARM, key=key, later=later, **more)


def rollout_of(engine, one, tokens=None):
    growing = Growing(GenerateAsk(one.id, "g", "t", one))
    engine.submit(one)
    while engine.live():
        for chunk in engine.step(tokens):
            growing.add(chunk)
    return growing.rollout()


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_every_token_comes_from_the_law_of_its_place(kind):
    engine = shared_engine(kind)
    got = run(engine, [changing("a"), request("b", [4, 5], 40, COOL, key=9), changing("c", key=7, later=((1, PENAL),))])
    alone = run(shared_engine(kind), [request("b", [4, 5], 40, COOL, key=9)])
    same({"b": got["b"]}, alone)  # neighbours change nothing
    ids, tokens = [1, 2, 3], got["a"].ids
    for start, end, law in changing("a").spans(0, 30):  # a stream of each law alone, from the tokens before
        path = (node(ids), node(tokens[:start], SegmentKind.ACTION, "own")) if start else (node(ids),)
        want = run(engine, [request("x", path, end - start, law, key=1)])["x"]
        assert want.ids.tolist() == tokens[start:end].tolist()
        assert np.abs(want.logprobs - got["a"].logprobs[start:end]).max() <= 5e-5
    assert (got["a"].tracks["kept_mass"][:11] == 1).all() and (got["a"].tracks["kept_mass"][11:20] < 1).any()
    assert (got["a"].tracks["kept_mass"][20:] == 1).all() and "kept_mass" not in got["c"].tracks


def test_segments_have_one_law_each_and_score_again_alike():
    engine = shared_engine()
    whole, pieces = rollout_of(engine, changing("a")), rollout_of(engine, changing("a"), tokens=4)
    for rollout in (whole, pieces):
        actions = list(rollout.actions())
        assert [(s.sampling, len(s)) for s in actions] == [(WARM, 5), (COOL, 6), (CUT, 9), (PENAL, 10)]
        assert [set(s.tracks) for s in actions] == [{"entropy"}, {"entropy"}, {"entropy", "kept_mass"}, {"entropy"}]
        assert [n.id for n in rollout.path][1:] == ["a", "a.1", "a.2", "a.3"]
        (score,) = engine.score([score_item(rollout)])
        assert np.abs(score.logprobs[3:] - np.concatenate([s.logprobs for s in actions])).max() <= 5e-5
    assert path_ids(whole.path).tolist() == path_ids(pieces.path).tolist()


def test_cancelled_and_resumed_and_forked_streams_draw_alike():
    engine = make_engine()
    want = run(engine, [changing("a")])["a"]
    engine.submit(changing("a"))
    first = [c for c in engine.step(14) if c.request == "a"]
    first = join([*first, engine.cancel("a")])
    assert first.stop is StopReason.CANCELLED and len(first.ids) == 14
    own = node(first.ids, SegmentKind.ACTION, "own")
    rest = run(engine, [request("b", (node([1, 2, 3]), own), 16, CUT, key=1, later=((6, PENAL),))])["b"]
    assert np.concatenate([first.ids, rest.ids]).tolist() == want.ids.tolist()
    assert np.abs(np.concatenate([first.logprobs, rest.logprobs]) - want.logprobs).max() <= 5e-5
    engine.submit(changing("p", retain=True))
    drain(engine)
    head = node(want.ids[:8], SegmentKind.ACTION, "own")
    fork = request("f", (node([1, 2, 3]), head), 22, COOL, key=1, later=((3, CUT), (12, PENAL)), fork_of="p", fork_at=11)
    got = run(engine, [fork])["f"]
    assert got.ids.tolist() == want.ids[8:].tolist()
    assert engine.usage().cached >= 10


def test_a_slot_that_comes_again_starts_anew():
    engine = make_engine(slots=1)
    got = run(engine, [changing("a", n=24), request("b", [1, 2, 3], 24, WARM, key=1), changing("c", n=24)])
    free = run(make_engine(), [request("b", [1, 2, 3], 24, WARM, key=1)])["b"]
    assert got["b"].ids.tolist() == free.ids.tolist() and "kept_mass" not in got["b"].tracks
    assert got["a"].ids.tolist() == got["c"].ids.tolist() and not engine._state.changing


@pytest.mark.parametrize("later", [((0, COOL),), ((3, COOL), (3, CUT)), ((5, COOL), (4, CUT))])
def test_laws_that_do_not_rise_are_refused(later):
    for engine in (shared_engine(), ScriptedEngine()):
        with pytest.raises(ValueError, match="rising numbers of 1 or more"):
            engine.submit(changing("a", later=later))
    with pytest.raises(ValueError, match=f"vocabulary has {VOCABULARY}"):
        shared_engine().submit(changing("a", later=((3, Sampling(banned=(VOCABULARY,))),)))


def test_the_scripted_engine_cuts_alike():
    engine = ScriptedEngine({"a": (list(range(12)), StopReason.EOS)})
    rollout = rollout_of(engine, changing("a"))
    assert [(s.sampling, len(s)) for s in rollout.actions()] == [(WARM, 5), (COOL, 6), (CUT, 1)]
    item = score_item(rollout)
    assert isinstance(item, ScoreItem) and [s[2] for s in item.spans] == [WARM, COOL, CUT]
