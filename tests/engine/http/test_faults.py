"""Between the engine and a real server stands a proxy that spoils replies: nothing is lost, nothing counted twice, each fault told."""

import time
from contextlib import closing

import pytest
from front import Front
from http_cases import drain, engine, ids_of, lab, plain_gap, request, run, some
from proxy import KINDS, SEEN_AS, Proxy

from gfcr.engine.contract import ScoreItem, WeightsRef
from gfcr.engine.http.faults import ServersLost
from gfcr.types import Sampling, StopReason


@pytest.fixture(scope="module")
def model():
    return lab()


@pytest.fixture
def through(front):
    """Makes a proxy before the server."""
    made = []

    def make(**settings) -> Proxy:
        made.append(Proxy(front.port, **settings))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


def test_a_fifth_of_all_replies_spoilt_and_every_token_is_still_the_right_one(front, model, through):
    with closing(engine(front.url)) as plain:
        plain.load(WeightsRef(1, "memory:"), model.state_dict())
        want = run(plain, some(120))
    proxy = through(share=0.0, seed=1, twice=0.03)
    with closing(engine(proxy.url, seconds=8.0, attempts=12, slots=32)) as spoilt:
        spoilt.load(WeightsRef(1, "memory:"), model.state_dict())
        spoilt.losses()
        before, sampled, aside = spoilt.usage(), front.sampled(), spoilt.aside
        proxy.injected.clear()
        proxy.share = 0.2
        parts = run(spoilt, some(120))
        proxy.share = 0.0
        lost, after = spoilt.losses(), spoilt.usage()
        assert {k: ids_of(v) for k, v in parts.items()} == {k: ids_of(v) for k, v in want.items()}
        assert all(v[-1].stop is want[k][-1].stop for k, v in parts.items())
        assert plain_gap(model, some(120), parts) < 1e-4
        seen: dict[str, int] = {}
        for kind, count in proxy.injected.items():
            if kind != "twice":
                seen[SEEN_AS[kind]] = seen.get(SEEN_AS[kind], 0) + count
        assert set(KINDS) <= set(proxy.injected)
        assert lost.faults == dict(sorted(seen.items()))
        given = sum(len(ids_of(chunks)) for chunks in parts.values())
        assert proxy.injected["twice"] and lost.tokens["unseen"] > 0
        assert given + sum(lost.tokens.values()) == after.decoded - before.decoded
        assert after.decoded - before.decoded + spoilt.aside - aside == front.sampled() - sampled
        assert spoilt.losses().tokens == {}


def test_scores_and_publications_come_through_spoilt_replies(front, model, through):
    proxy = through(share=0.1, seed=3)
    items = [
        ScoreItem(one.id, one.path[0].segment.ids, ((1, 3, Sampling()), (3, 4, Sampling(temperature=0.7)))) for one in some(40)
    ]
    with closing(engine(proxy.url, seconds=3.0, attempts=12)) as spoilt:
        for version in range(3):
            spoilt.load(WeightsRef(version, "memory:"), model.state_dict())
        found = {s.id: s.logprobs for s in spoilt.score(items)}
        assert spoilt.losses().faults
    with closing(engine(front.url)) as plain:
        plain.load(WeightsRef(1, "memory:"), model.state_dict())
        for score in plain.score(items):
            assert abs(found[score.id][1:4] - score.logprobs[1:4]).max() < 5e-5


def test_what_never_comes_through_fails_with_its_kind_and_is_counted(through, model):
    proxy = through(share=0.0)
    with closing(engine(proxy.url, attempts=3)) as spoilt:
        spoilt.load(WeightsRef(1, "memory:"), model.state_dict())
        spoilt.losses()
        proxy.share = 1.0
        spoilt.submit(request("x", [1, 5, 6]))
        (chunk,) = drain(spoilt)["x"]
        proxy.share = 0.0
        assert chunk.stop is StopReason.FAILED and not len(chunk.ids)
        assert chunk.error.partition(":")[0] in set(SEEN_AS.values()) and "after 3 attempts" in chunk.error
        assert sum(spoilt.losses().faults.values()) == 3
        assert ids_of(run(spoilt, [request("y", [1, 5, 6])])["y"])


def test_tokens_that_were_handed_out_are_not_drawn_again(model):
    """A stream breaks after its first tokens were given to the caller: it ends FAILED instead of beginning anew."""
    slow = Front(slow=0.02)
    try:
        with closing(engine(slow.url, attempts=4, outage=1.0)) as running:
            running.load(WeightsRef(1, "memory:"), model.state_dict())
            running.submit(request("x", [1, 5, 6], 100, eos=()))
            first = running.step(3)
            slow.kill()
            parts = [*first, *drain(running)["x"]]
            assert parts[-1].stop is StopReason.FAILED and parts[-1].error.startswith("truncated: ")
            assert len(ids_of(parts)) == 3 and parts[-1].lost >= 0
            assert plain_gap(model, [request("x", [1, 5, 6])], {"x": parts}) < 1e-4
    finally:
        slow.kill()


def test_a_server_killed_in_mid_round_is_proven_before_it_works_again(model):
    """kill -9 while it samples; started again it has its first weights: it gets ours, is proven, and the round goes on."""
    import torch

    other = lab()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    server = Front(slow=0.01)
    try:
        with closing(engine(server.url, attempts=6, outage=60.0)) as running:
            running.load(WeightsRef(2, "memory:"), other.state_dict())
            requests = some(24)
            for one in requests:
                running.submit(one)
            parts = {c.request: [c] for c in running.step()}
            server.kill()
            time.sleep(0.3)
            assert running.capabilities().details["servers"][server.url] != "up"
            server.start()
            parts |= drain(running)
            assert len(parts) == 24 and all(c[-1].stop in (StopReason.EOS, StopReason.MAX_TOKENS) for c in parts.values())
            assert plain_gap(other, requests, parts) < 1e-4 < plain_gap(model, requests, parts)
            lost = running.losses()
            assert lost.faults["truncated"] >= 1 and lost.faults["connect"] >= 1
            assert running.capabilities().details["servers"] == {server.url: "up"}
    finally:
        server.kill()


def test_two_servers_share_the_work_and_one_goes_on_alone(front, model):
    second = Front(slow=0.01)
    try:
        with closing(engine(front.url, second.url, slots=16)) as pool:
            pool.load(WeightsRef(1, "memory:"), model.state_dict())
            here, there = front.sampled(), second.sampled()
            want = run(pool, some(32))
            assert front.sampled() > here and second.sampled() > there
            for one in some(32):
                pool.submit(one)
            parts = {c.request: [c] for c in pool.step()}
            second.kill()
            parts |= drain(pool)
            assert {k: ids_of(v) for k, v in parts.items()} == {k: ids_of(v) for k, v in want.items()}
            assert pool.capabilities().details["servers"][front.url] == "up"
            pool.load(WeightsRef(2, "memory:"), model.state_dict())  # one is enough
            assert {c.version for chunks in run(pool, some(8)).values() for c in chunks} == {2}
    finally:
        second.kill()


def test_when_no_server_comes_back_the_end_is_told_in_time(model):
    server = Front()
    with closing(engine(server.url, outage=0.5, attempts=3)) as running:
        running.load(WeightsRef(1, "memory:"), model.state_dict())
        server.kill()
        started = time.monotonic()
        parts = run(running, some(8))
        assert {c[-1].stop for c in parts.values()} == {StopReason.FAILED} and time.monotonic() - started < 10
        assert {c[-1].error.partition(":")[0] for c in parts.values()} <= {"no_server", "connect"}
        assert running.score([ScoreItem("x", some(1)[0].path[0].segment.ids, ((1, 2, Sampling()),))]) == []
        with pytest.raises(ServersLost, match=r"(?s)took version 2.*remedy: look at the servers"):
            running.load(WeightsRef(2, "memory:"), model.state_dict())
        with pytest.raises(ServersLost, match="answers the probe"):
            running.fingerprint()
