"""The engine in two processes: the same draws, across forks, resumes, cancels and weights; and what happens when one dies."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_helpers import (
    difference,
    drain,
    join,
    make_engine,
    make_model,
    node,
    request,
    run,
    same,
    score_items,
    shared_engine,
    some,
)

from gfcr.engine import features_of
from gfcr.engine.contract import Chunk, ScoreItem, WeightsRef
from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
from gfcr.engine.workers import WorkerEngine
from gfcr.engine.workers import engine as workers
from gfcr.engine.workers.engine import WorkerLost, home
from gfcr.engine.workers.serve import advance
from gfcr.engine.workers.shared import SharedWeights, loads
from gfcr.errors import ConfigError, DataError
from gfcr.types import Sampling, SegmentKind, StopReason

HERE = next(k for k in range(100) if home(k, 2) == 0)
THERE = next(k for k in range(100) if home(k, 2) == 1)


@pytest.fixture(scope="module")
def two() -> Iterator[WorkerEngine]:
    """Two processes (a start costs seconds of imports); every test leaves it idle, with the weights of seed 0."""
    engine = WorkerEngine(make_model(), EmbeddedSettings(slots=16), decode=str)
    yield engine
    engine.close()


def equal_bits(a: Chunk, b: Chunk) -> None:
    assert (a.ids.tobytes(), a.logprobs.tobytes(), a.stop) == (b.ids.tobytes(), b.logprobs.tobytes(), b.stop)
    assert {k: v.tobytes() for k, v in a.tracks.items()} == {k: v.tobytes() for k, v in b.tracks.items()}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


# ---- the same engine --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [5, None])
def test_two_processes_draw_what_one_draws(two, tokens):
    requests = some()
    assert {home(r.key, 2) for r in requests} == {0, 1}
    out = run(two, requests, tokens)
    same(out, run(shared_engine(), requests, tokens))
    assert difference(two, requests, out) <= 5e-5


@pytest.mark.parametrize("tokens", [7, None])
def test_the_border_changes_no_bit_and_neither_does_a_second_time(two, tokens):
    """Each process gives, to the bit, what an engine in this process gives for its part of the requests."""
    requests = some(24, seed=1)
    first, second = run(two, requests, tokens), run(two, requests, tokens)
    for place in (0, 1):
        part = [r for r in requests if home(r.key, 2) == place]
        engine, alone = make_engine(), {}
        for one in part:
            engine.submit(one)
        while engine.live():
            for chunk in advance(engine, tokens):
                alone.setdefault(chunk.request, []).append(chunk)
        for one in part:
            equal_bits(first[one.id], join(alone[one.id]))
            equal_bits(first[one.id], second[one.id])


def test_the_partition_depends_on_the_key_alone_and_is_even():
    places = [home(k, 3) for k in range(3000)]
    assert min(places.count(i) for i in range(3)) > 900
    requests = some(6)
    assert [home(r.key, 2) for r in requests] == [home(r.key, 2) for r in requests[::-1]][::-1]


@pytest.mark.parametrize("key", [HERE, THERE])
def test_forks_stay_with_their_parent_whatever_their_key(two, key):
    prompt = np.arange(1, 20)
    single = shared_engine()
    got = {}
    for engine in (two, single):
        before = engine.usage()
        engine.submit(request("p", prompt, 50, key=key, retain=True))
        head = engine.step(20)[0].ids
        path = (node(prompt), node(head[:15], SegmentKind.ACTION, "a"))
        forks = [request(f"f{k}", path, 35, key=k, fork_of="p", fork_at=34) for k in (HERE, THERE, 77)]
        out = run(engine, forks)
        late = run(engine, [request("late", path, 9, key=5, fork_of="p", fork_at=34)])  # the parent has ended
        after = engine.usage()
        got[engine] = out | late, after.cached - before.cached, after.prefilled - before.prefilled
        assert engine.cancel("p") is None
        with pytest.raises(ValueError, match="neither live nor retained"):
            engine.submit(request("never", path, 9, key=5, fork_of="p", fork_at=34))
        assert engine.live() == 0
    same(got[two][0], got[single][0])
    assert got[two][1:] == got[single][1:]
    assert got[two][1] == 4 * 34


@pytest.mark.parametrize("key", [HERE, THERE])
def test_cancel_gives_tokens_back_and_the_rest_follows_under_the_same_key(two, key):
    prompt = np.arange(1, 14)
    whole = run(two, [request("x", prompt, 40, key=key)])["x"]
    two.submit(request("x", prompt, 40, key=key))
    with pytest.raises(ValueError, match="unique"):
        two.submit(request("x", prompt, 40, key=key))
    first = two.step(11)[0]
    assert "x" in [p.request for p in two.prefilled()]
    assert two.live() == 1
    rest = two.cancel("x")
    assert (rest.stop, len(rest.ids), two.live(), two.cancel("x")) == (StopReason.CANCELLED, 0, 0, None)
    two.submit(request("queued", prompt, 40, key=key))
    assert two.cancel("queued").stop is StopReason.CANCELLED
    assert two.step() == []
    path = (node(prompt), node(first.ids, SegmentKind.ACTION, "a"))
    second = run(two, [request("x", path, 29, key=key)])["x"]
    assert np.concatenate([first.ids, second.ids]).tolist() == whole.ids.tolist()


@pytest.mark.parametrize("key", [HERE, THERE])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"ids": [], "n": 3}, "no tokens"),
        ({"ids": [1, 37], "n": 3}, "vocabulary"),
        ({"ids": [1], "n": 0}, "at least 1"),
        ({"ids": [1], "n": 3, "fork_of": "nobody", "fork_at": 1}, "neither live nor retained"),
        ({"ids": [1, 2], "n": 3, "fork_of": "live", "fork_at": 2}, "differs from its parent"),
        ({"ids": [1], "n": 3, "sampling": Sampling(banned=(37,))}, "banned"),
    ],
)
def test_a_bad_request_is_refused_at_once_and_nothing_is_lost(two, key, bad, message):
    two.submit(request("live", [1, 3, 5], 20, key=key))
    two.step(2)
    with pytest.raises(ValueError, match=message):
        two.submit(request(**{"name": "bad", "key": key, **bad}))
    assert two.live() == 1
    assert len(drain(two)["live"].ids) == 18


def test_scores_come_in_order_and_an_error_leaves_the_engine_sound(two):
    requests = some(12, seed=2)
    items = score_items(requests, run(two, requests))
    assert {home(i.id, 2) for i in items} == {0, 1}
    before = [e.usage().scored for e in (two, shared_engine())]
    got, want = two.score(items), shared_engine().score(items)
    assert [s.id for s in got] == [i.id for i in items]
    for a, b in zip(got, want):
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=5e-5)
        np.testing.assert_allclose(a.entropy, b.entropy, atol=5e-5)
    assert two.usage().scored - before[0] == shared_engine().usage().scored - before[1] > 0
    bad = [ScoreItem(i.id, i.ids, ((0, 1, Sampling()),)) for i in items]
    with pytest.raises(ValueError, match="token 0 has no context"):
        two.score(bad)
    assert np.array_equal(two.score(items)[3].logprobs, got[3].logprobs, equal_nan=True)
    assert two.score([]) == []


def test_usage_and_prefill_costs_add_up(two):
    requests = some(15, seed=4)
    before, shared_before, _ = two.usage(), shared_engine().usage(), (two.prefilled(), shared_engine().prefilled())
    out = run(two, requests)
    run(shared_engine(), requests)
    after, shared_after = two.usage(), shared_engine().usage()
    assert after.decoded - before.decoded == sum(len(c.ids) for c in out.values())
    assert after.prefilled - before.prefilled == shared_after.prefilled - shared_before.prefilled
    costs = {p.request: p.computed + p.cached for p in two.prefilled()}
    assert costs == {p.request: p.computed + p.cached for p in shared_engine().prefilled()}
    assert after.kv_peak >= after.live_peak > 0
    able = two.capabilities()
    assert (able.details["workers"], able.details["slots"], able.features) == (2, 32, features_of("embedded"))


# ---- weights ----------------------------------------------------------------------------------------------------


def test_a_module_put_together_elsewhere_reads_the_same_bytes():
    model = make_model()
    want = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    shared = SharedWeights(model)
    twin = loads(shared.dumps(model), shared.fd, shared.size)
    for name, tensor in twin.state_dict().items():
        assert torch.equal(tensor, want[name]), name
    assert twin.lm_head.weight is twin.model.embed_tokens.weight
    with torch.no_grad():
        model.model.norm.weight.add_(1)
    assert torch.equal(twin.model.norm.weight, want["model.norm.weight"] + 1)
    assert EmbeddedEngine(twin).fingerprint() == EmbeddedEngine(model).fingerprint()


def test_a_publication_reaches_every_process_before_anything_is_answered(two):
    other = make_model(seed=1)
    fresh = EmbeddedEngine(make_model(seed=1), EmbeddedSettings(slots=16))
    old = two.fingerprint()
    assert old == shared_engine().fingerprint()
    two.submit(request("kept", np.arange(20), 3, key=THERE, retain=True))
    with pytest.raises(RuntimeError, match="1 requests are live"):
        two.load(WeightsRef(1, "memory:"), other.state_dict())
    drain(two)
    for broken, message in (({"nothing": torch.zeros(1)}, "no tensor"), ({}, "missing")):
        with pytest.raises(DataError, match=message):
            two.load(WeightsRef(1, "memory:"), broken)
    with pytest.raises(ConfigError, match="adapter"):
        two.load(WeightsRef(1, "memory:", kind="adapter"), {})
    assert two.fingerprint() == old
    two.load(WeightsRef(1, "memory:"), other.state_dict())
    with torch.no_grad():
        other.model.embed_tokens.weight.mul_(2)  # copied, never aliased
    assert two.fingerprint() == fresh.fingerprint() != old
    with pytest.raises(ValueError, match="neither live nor retained"):
        two.submit(request("f", np.arange(20), 5, key=2, fork_of="kept", fork_at=20))
    requests = some(10, seed=5)
    out = run(two, requests)
    same(out, run(fresh, requests))
    assert {c.version for c in out.values()} == {1}
    two.load(WeightsRef(0, "memory:"), make_model().state_dict())
    assert two.fingerprint() == old


def test_an_interrupted_publication_answers_nothing_until_it_is_made_whole(two, monkeypatch):
    def interrupted(ref, tensors):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(two._local, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            two.load(WeightsRef(0, "memory:"), make_model().state_dict())
    for call in (lambda: two.submit(request("x", [1], 2)), two.step, two.fingerprint, lambda: two.score([])):
        with pytest.raises(RuntimeError, match="was interrupted; load weights again"):
            call()
    two.load(WeightsRef(0, "memory:"), make_model().state_dict())
    assert len(run(two, [request("x", [1], 2)])["x"].ids) == 2


# ---- losses -----------------------------------------------------------------------------------------------------


def test_the_memory_has_no_name_so_it_cannot_be_left_behind(two):
    maps = Path(f"/proc/{two._remotes[0].pid}/maps").read_text()
    assert "memfd:gfcr-weights" in maps and "/dev/shm" not in maps


def test_a_killed_worker_fails_its_requests_with_the_reason_and_is_replaced(two):
    requests = [request(f"r{i}", np.arange(1, 9 + i), 10 if i < 6 else 40, key=i, retain=i % 2 == 0) for i in range(16)]
    want = run(shared_engine(), requests)
    there = {r.id for r in requests if home(r.key, 2) == 1}
    before, losses = two.usage(), len(two.failures)
    for one in requests:
        two.submit(one)
    parts = {c.request: [c] for c in two.step(8)}
    for chunk in two.step():  # what goes on has sampled more and returned nothing of it
        parts[chunk.request].append(chunk)
    done = {name for name, chunks in parts.items() if chunks[-1].stop}
    pid = two._remotes[0].pid
    os.kill(pid, signal.SIGKILL)
    while two.live():
        for chunk in two.step():
            parts[chunk.request].append(chunk)
    ends = {name: chunks[-1] for name, chunks in parts.items()}
    failed = there - done
    assert {name for name, chunk in ends.items() if chunk.stop is StopReason.FAILED} == failed
    assert 0 < len(failed) < len(there)
    assert {ends[name].error for name in failed} == {"worker_lost: worker 1 was killed by signal 9"}
    assert all(ends[name].error == "" for name in set(ends) - failed)
    for name, chunks in parts.items():
        ids = np.concatenate([c.ids for c in chunks])
        assert ids.tolist() == want[name].ids[: len(ids)].tolist()
        assert len(ids) == (8 if name in failed else len(want[name].ids))
    assert {ends[name].lost for name in failed} == {2}
    assert two.usage().decoded - before.decoded == sum(len(c.ids) + c.lost for cs in parts.values() for c in cs)
    assert two.failures[losses:] == ["worker 1 was killed by signal 9"]
    with pytest.raises(ValueError, match="neither live nor retained"):  # what it kept is gone too
        kept = next(r for r in requests if r.id in there and r.retain)
        two.submit(request("f", np.arange(1, 9), 3, fork_of=kept.id, fork_at=4))
    same(run(two, requests), want)  # its successor has the weights
    assert two._remotes[0].pid != pid and gone(pid)
    for one in requests:
        two.cancel(one.id)


@pytest.mark.parametrize("cancelled", [False, True])
def test_what_was_done_beside_a_worker_that_raised_is_not_lost(two, cancelled):
    """An order that its engine refuses (the same request twice, which no caller can send) stands for any error in a step."""
    requests = [request(f"here{i}", [1, 2, 3], 12 + i, key=HERE) for i in range(3)]
    requests += [request("there", [1, 2, 3], 20, key=THERE)]
    want = run(shared_engine(), requests)
    for one in requests:
        two.submit(one)
    parts = {c.request: [c] for c in two.step(5)}
    two.submit(request("late", [4, 5], 3, key=THERE))
    two._remotes[0].pending *= 2
    with pytest.raises(ValueError, match="'late' is live already"):
        two.step(8)  # ends here0 and gives tokens of the others
    assert two.live() == 5
    ends = [two.cancel(one.id) for one in (*requests, request("late", [4, 5], 3))] if cancelled else []
    for chunk in ends:
        parts.setdefault(chunk.request, []).append(chunk)
    for _ in range(100):
        if not two.live():
            break
        for chunk in two.step():
            parts.setdefault(chunk.request, []).append(chunk)
    out = {name: join(chunks) for name, chunks in parts.items()}
    for i in range(3):
        ids, whole = out[f"here{i}"].ids.tolist(), want[f"here{i}"].ids.tolist()
        assert ids == whole[: 13 if cancelled else None] and len(ids) == (min(12 + i, 13) if cancelled else 12 + i)
    assert out["here0"].stop is StopReason.MAX_TOKENS
    assert [out[name].stop for name in ("there", "late")] == [StopReason.FAILED] * 2
    assert parts["there"][-1].error.startswith("worker_lost: worker 1 raised ValueError")
    assert two.live() == 0 and two.step() == []
    same(run(two, requests), want)


def test_publishing_and_scoring_need_no_caller_who_knows_of_a_dead_worker(two):
    items = [ScoreItem(f"s{i}", np.arange(9, dtype=np.int32), ((1, 9, Sampling()),)) for i in range(6)]
    want = two.score(items)
    os.kill(two._remotes[0].pid, signal.SIGKILL)
    two.load(WeightsRef(0, "memory:"), make_model().state_dict())
    assert two.fingerprint() == shared_engine().fingerprint()
    for a, b in zip(two.score(items), want):
        assert a.logprobs[1:].tobytes() == b.logprobs[1:].tobytes()


def test_a_worker_that_hangs_is_killed_and_the_restarts_are_bounded(two, monkeypatch):
    """The last test of `two`: the engine is given up at its end."""
    pid = two._remotes[0].pid
    monkeypatch.setattr(workers, "MAX_RESTARTS", 0)
    two.submit(request("there", [1, 2], 20, key=THERE))
    two.submit(request("here", [1, 2], 20, key=HERE))
    two.step(1)
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(two._remotes[0], "_seconds", 1.0)
    ends: dict[str, Chunk] = {}
    while two.live():
        ends |= {c.request: c for c in two.step()}
    assert ends["there"].error == "worker_lost: worker 1 made no progress for 1 s and was killed"
    assert ends["here"].stop is StopReason.MAX_TOKENS
    assert gone(pid)
    two.submit(request("again", [1, 2], 20, key=THERE))
    with pytest.raises(WorkerLost, match=r"(?s)made no progress for 1 s.*remedy: look at the memory"):
        two.step()
    two.close()
    with pytest.raises(RuntimeError, match="closed"):
        two.submit(request("x", [1], 2))
    two.close()


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match="two or more"):
        WorkerEngine(make_model(), workers=1)
    with pytest.raises(ConfigError, match=r"engine\.device = 'cuda'"):
        WorkerEngine(make_model(), EmbeddedSettings(device="cuda"))
    with pytest.raises(ConfigError, match="cannot be sent to a worker"):
        WorkerEngine(make_model(), decode=lambda ids: "")
