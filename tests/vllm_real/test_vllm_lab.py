"""The lab model on a real vLLM server: training, log-probabilities, abort, resume, caches, counters, faults, a killed server."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from http_cases import engine, ids_of, plain_gap, request, run, some
from proxy import SEEN_AS, Proxy
from vllm_cases import Watched
from widen import widened

from gfcr.engine.contract import ScoreItem, WeightsRef
from gfcr.engine.http.untie import untie
from gfcr.engine.models import load_model
from gfcr.errors import ConfigError
from gfcr.types import StopReason, path_ids

PORT = 8311


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return widened(tmp_path_factory.mktemp("lab") / "wide")


@pytest.fixture(scope="module")
def server(vllm, place):
    started = vllm(untie(place, place.parent / "untied"), PORT, "--block-size", "32")
    yield started
    started.kill()


@pytest.fixture(scope="module")
def model(place):
    return load_model(place)


def small(place, url, steps, **http):
    more = "".join(f", {k} = {v}" for k, v in http.items())
    return [
        "engine.name=vllm",
        f'engine.http={{urls = ["{url}"]{more}}}',
        "engine.slots=64",
        f"model.path={place}",
        f"budget.steps={steps}",
        "control.groups=6",
        "evaluate.limit=20",
        "evaluate.every_tokens=1000",
    ]


def test_ten_steps_with_a_reload_each(tmp_path, server, place):
    contexts = [list(path_ids(one.path)) for one in some(24)]
    watched = Watched(tmp_path / "run", "grpo", small(place, server.url, 10), [[int(i) for i in c] for c in contexts], 24)
    counts = watched.go(server)
    print("lab", counts, "worst gaps", watched.worst, "published gap", max(r["published_gap"] for r in watched.rows))
    assert [row["step"] for row in watched.rows] == list(range(11))
    assert sum(row["version"] > before["version"] for before, row in zip(watched.rows, watched.rows[1:])) >= 8
    assert len({row["published_fingerprint"] for row in watched.rows}) >= 9
    assert max(watched.worst.values()) < 1e-3
    assert counts["server generated"] == counts["ledger generated"]
    assert counts["server prompts"] == counts["ours prompts"]
    assert all(row["engine_faults"] == {} for row in watched.rows)


def test_abort_gives_every_sampled_token_and_resume_goes_on(server, model):
    with closing(engine(server.url)) as running:
        running.load(WeightsRef(1, "memory:"), model.state_dict())
        running.losses()
        before = server.counter("generation_tokens_total")
        started = [request(f"c{i}", [1, 5, 6, 7 + i], 100, eos=(), key=i) for i in range(8)]
        for one in started:
            running.submit(one)
        parts = {one.id: [] for one in started}
        for chunk in running.step(10):
            parts[chunk.request].append(chunk)
        for one in started:
            rest = running.cancel(one.id)
            assert rest is not None and rest.stop is StopReason.CANCELLED
            parts[one.id].append(rest)
        assert running.losses().tokens == {}  # the server's counter has no token more
        kept = sum(len(ids_of(chunks)) for chunks in parts.values())
        assert 10 <= kept < 800
        assert server.counter("generation_tokens_total") - before == kept
        assert server.counter("num_requests_running") == 0
        assert plain_gap(model, started, parts) < 1e-3
        longer = [request(f"d{i}", [1, 5, 6, 7 + i, *ids_of(parts[f"c{i}"])], 8, eos=(), key=i) for i in range(8)]
        assert plain_gap(model, longer, run(running, longer)) < 1e-3


def test_a_publication_drops_the_prefix_cache(server, model):
    import torch

    with closing(engine(server.url)) as running:
        running.load(WeightsRef(1, "memory:"), model.state_dict())
        prompt = [1, *range(3, 35), *range(3, 35)]

        def cached(name):
            run(running, [request(name, prompt, 2, eos=())])
            (cost,) = running.prefilled()
            return cost.cached

        assert cached("a") == 0 and cached("b") >= 32  # from what `a` computed
        other = load_model(model.config._name_or_path)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(1.05)
        old = running.fingerprint()
        running.load(WeightsRef(2, "memory:"), other.state_dict())
        assert running.fingerprint() != old
        assert cached("c") == 0 and cached("d") >= 32
        asked = [request(f"e{i}", prompt, 10, eos=(), key=i) for i in range(4)]
        parts = run(running, asked)  # with cached prefixes
        assert plain_gap(other, asked, parts) < 1e-3 < 1e-2 < plain_gap(model, asked, parts)


def test_scores_are_of_the_law_asked_for(server, model):
    with closing(engine(server.url)) as running:
        running.load(WeightsRef(1, "memory:"), model.state_dict())
        asked = some(16)
        parts = run(running, asked)
        for one, score in zip(
            asked,
            running.score(
                [
                    ScoreItem(one.id, np_ids(one, parts), ((len(path_ids(one.path)), len(np_ids(one, parts)), one.sampling),))
                    for one in asked
                ]
            ),
        ):
            own = parts[one.id][-1].logprobs
            assert abs(score.logprobs[-len(own) :] - own).max() < 1e-3


def np_ids(one, parts):
    import numpy as np

    return np.concatenate([path_ids(one.path), np.array(ids_of(parts[one.id]), np.int32)])


def test_a_run_through_the_fault_proxy(tmp_path, server, place):
    proxy = Proxy(server.port, share=0.0, seed=7, twice=0.02)
    contexts = [[1, 5, 6, 7]]
    watched = Watched(tmp_path / "run", "grpo", small(place, proxy.url, 4, seconds=10.0, attempts=15, pause=0.01), contexts, 8)
    proxy.share = 0.2
    counts = watched.go(server)
    injected = sum(proxy.injected.values()) - proxy.injected["twice"]
    faults = {}
    for row in watched.rows:
        for kind, count in row["engine_faults"].items():
            faults[kind] = faults.get(kind, 0) + count
    last = watched.last
    print("proxy", counts, dict(proxy.injected), faults, watched.rows[-1]["discarded_by_reason"])
    assert [row["step"] for row in watched.rows] == list(range(5))
    assert counts["server generated"] == counts["ledger generated"]
    assert sum(faults.values()) + sum(last.faults.values()) == injected > 20
    assert set(faults) <= set(SEEN_AS.values())
    assert max(watched.worst.values()) < 1e-3
    proxy.close()


def test_the_server_killed_in_mid_round_and_started_again(server, model):
    import torch

    other = load_model(model.config._name_or_path)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.05)
    with closing(engine(server.url, outage=400.0, attempts=12)) as running:
        running.load(WeightsRef(5, "memory:"), other.state_dict())
        asked = [request(f"k{i}", [1, 5, 6, 7 + i % 20], 90, eos=(), key=i) for i in range(48)]
        for one in asked:
            running.submit(one)
        parts = {c.request: [c] for c in running.step(5)}
        started = set(parts)
        server.kill()
        again = threading.Thread(target=server.start)
        again.start()
        for _ in range(400):
            if not running.live():
                break
            for chunk in running.step():
                parts.setdefault(chunk.request, []).append(chunk)
        again.join()
        ends = {name: chunks[-1] for name, chunks in parts.items()}
        failed = {name for name, end in ends.items() if end.stop is StopReason.FAILED}
        print("killed", len(failed), "failed of", len(ends), running.losses())
        assert failed <= started and len(ends) == 48  # only those whose first tokens were handed out
        whole = [one for one in asked if one.id not in failed]
        assert plain_gap(other, whole, parts) < 1e-3
        assert {c.version for chunks in parts.values() for c in chunks} == {5}
        assert len(ids_of(run(running, [request("after", [1, 5], 4, eos=())])["after"])) == 4


def test_raw_log_probabilities_are_refused(vllm, server, place):
    server.kill()  # one at a time
    raw = vllm(place, PORT + 1, processed=False)
    try:
        with pytest.raises(ConfigError, match=r"(?s)of temperature 1.*--logprobs-mode processed_logprobs"):
            engine(raw.url)
    finally:
        raw.kill()
