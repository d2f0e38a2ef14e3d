"""The engine contract over HTTP, against a real model in another process that speaks vLLM's routes."""

import json
import threading
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from front import Front
from http_cases import DECODE, END_ID, VOCABULARY, drain, engine, ids_of, lab, logprobs_of, plain_gap, request, run, some

from gfcr.engine import features_of
from gfcr.engine.contract import ScoreItem, WeightsRef, losses_of
from gfcr.engine.http.faults import ServersLost
from gfcr.engine.http.settings import HttpSettings
from gfcr.engine.http.vllm import VllmEngine
from gfcr.errors import ConfigError
from gfcr.types import Sampling, StopReason, path_ids


@pytest.fixture(scope="module")
def model():
    return lab()


@pytest.fixture
def running(front, model):
    made = engine(front.url)
    made.load(WeightsRef(3, "memory:"), model.state_dict())
    yield made
    made.close()


def test_tokens_log_probabilities_and_counts_are_those_of_the_server(front, running, model):
    before, sampled = running.usage(), front.sampled()
    requests = some(32)
    parts = run(running, requests)
    assert plain_gap(model, requests, parts) < 1e-4
    for one in requests:
        chunks = parts[one.id]
        ids, end = ids_of(chunks), chunks[-1].stop
        assert {c.version for c in chunks} == {3} and [c.stop for c in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert end is (StopReason.EOS if ids[-1] == END_ID else StopReason.MAX_TOKENS)
        assert END_ID not in ids[:-1] and (end is StopReason.EOS or len(ids) == one.max_new_tokens)
    total = sum(len(ids_of(chunks)) for chunks in parts.values())
    after = running.usage()
    assert after.decoded - before.decoded == front.sampled() - sampled == total
    costs = {p.request: p.computed + p.cached for p in running.prefilled()}
    assert costs == {one.id: len(path_ids(one.path)) for one in requests}
    assert after.prefilled - before.prefilled + after.cached - before.cached == sum(costs.values())
    lost = losses_of(running)
    assert lost is not None and (lost.faults, lost.tokens) == ({}, {})
    able = running.capabilities()
    assert able.features == features_of("vllm") and (able.max_length, able.vocabulary) == (128, VOCABULARY)
    assert able.details["dtype"] == "float32"


def test_seeds_are_ours_so_the_same_requests_draw_the_same(running):
    first, again = run(running, some(16)), run(running, list(reversed(some(16))))
    assert {k: ids_of(v) for k, v in first.items()} == {k: ids_of(v) for k, v in again.items()}
    other = run(running, [replace(one, key=one.key + 1) for one in some(16)])
    assert {k: ids_of(v) for k, v in first.items()} != {k: ids_of(v) for k, v in other.items()}


@pytest.mark.parametrize("every", [1, 5])
def test_steps_of_some_tokens_give_every_token_once(running, every):
    whole = run(running, some(8))
    parts = run(running, some(8), every)
    for name, chunks in parts.items():
        assert ids_of(chunks) == ids_of(whole[name]) and max(len(c.ids) for c in chunks) <= every
        assert chunks[-1].stop is whole[name][-1].stop
        assert np.abs(logprobs_of(chunks) - logprobs_of(whole[name])).max() < 5e-5
    with pytest.raises(ValueError, match="at least 1"):
        running.step(0)
    assert running.step() == []


def test_a_cancelled_request_gives_its_tokens_and_goes_on_from_them(front, running, model):
    context = [1, 5, 6, 7]
    sampled = front.sampled()
    running.submit(request("c", context, 100, eos=()))
    first = running.step(4)
    rest = running.cancel("c")
    assert rest is not None and rest.stop is StopReason.CANCELLED and running.live() == 0
    chunks = [*first, rest]
    ids = ids_of(chunks)
    assert 4 <= len(ids) < 100
    assert front.sampled() - sampled == len(ids)
    assert running.cancel("c") is None
    longer = request("d", [*context, *ids], 6, eos=())
    parts = run(running, [longer])
    assert plain_gap(model, [request("c", context, 100)], {"c": [*chunks]}) < 1e-4
    assert plain_gap(model, [longer], parts) < 1e-4 and len(ids_of(parts["d"])) == 6
    running.submit(request("e", context, 100, eos=()))
    at_once = running.cancel("e")
    assert at_once is not None and at_once.stop is StopReason.CANCELLED


def test_stop_strings_end_with_the_token_that_completes_them(running):
    requests = [request(f"s{i}", [1, 5, 6, 7], 60, key=i, strings=("23",), eos=()) for i in range(8)]
    parts = run(running, requests)
    stopped = [chunks for chunks in parts.values() if chunks[-1].stop is StopReason.STOP_STRING]
    assert stopped
    for chunks in stopped:
        text = DECODE(ids_of(chunks))
        assert text.endswith("23") and text.count("23") == 1


def test_scores_are_of_the_law_asked_for(running, model):
    requests = some(12)
    parts = run(running, requests)
    items = []
    for one in requests:
        context = path_ids(one.path)
        ids = np.concatenate([context, np.array(ids_of(parts[one.id]), np.int32)])
        items.append(ScoreItem(one.id, ids, ((len(context), len(ids), one.sampling),)))
    before = running.usage().scored
    for item, score in zip(items, running.score(items)):
        own = logprobs_of(parts[item.id])
        assert score.id == item.id and np.isnan(score.logprobs[: -len(own)]).all() and np.isnan(score.entropy).all()
        assert np.abs(score.logprobs[-len(own) :] - own).max() < 5e-5
    assert running.usage().scored > before + sum(len(i.ids) for i in items)
    full = ScoreItem("full", np.resize(items[0].ids, 128), ((1, 128, Sampling()),))
    (score,) = running.score([full])
    assert np.isfinite(score.logprobs[1:]).all()
    for wrong, message in (
        (ScoreItem("x", np.zeros(129, np.int32), ((1, 9, Sampling()),)), "129 tokens"),
        (ScoreItem("x", np.zeros(9, np.int32), ((1, 9, Sampling(top_p=0.5)),)), "kept mass"),
        (ScoreItem("x", np.zeros(9, np.int32), ((0, 9, Sampling()),)), "first token"),
    ):
        with pytest.raises(ValueError, match=message):
            running.score([wrong])


def test_greedy_is_the_point_mass(running):
    parts = run(running, [request(f"g{i}", [1, 5, 6], 12, 0.0, key=i) for i in range(3)])
    assert len({tuple(ids_of(c)) for c in parts.values()}) == 1
    assert all((logprobs_of(chunks) == 0).all() for chunks in parts.values())


def test_a_publication_changes_what_answers_and_is_refused_while_requests_live(running, model):
    old = running.fingerprint()
    requests = some(8)
    running.submit(request("live", [1, 5], 100, eos=()))
    with pytest.raises(RuntimeError, match="1 requests are live"):
        running.load(WeightsRef(4, "memory:"), model.state_dict())
    running.cancel("live")
    other = lab()
    import torch

    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    running.load(WeightsRef(4, "memory:"), other.state_dict())
    assert running.fingerprint() != old
    parts = run(running, requests)
    assert {c.version for chunks in parts.values() for c in chunks} == {4}
    assert plain_gap(other, requests, parts) < 1e-4 < 1e-2 < plain_gap(model, requests, parts)
    with pytest.raises(ConfigError, match="adapter"):
        running.load(WeightsRef(5, "memory:", kind="adapter"), {})
    with pytest.raises(ConfigError, match="no directory"):
        running.load(WeightsRef(5, "nowhere"))


def test_weights_of_somebody_else_are_noticed_and_ours_come_back(front, running, model):
    """Another run publishes behind our back: its tokens are no fault of ours, and never ours."""
    with closing(engine(front.url)) as foreign:
        import torch

        other = lab()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(1.2)
        foreign.load(WeightsRef(9, "memory:"), other.state_dict())
        requests = some(6)
        parts = run(running, requests)
    assert plain_gap(model, requests, parts) < 1e-4
    lost = running.losses()
    assert lost.faults["version"] >= 1 and sum(lost.tokens.values()) > 0


def test_a_fork_needs_only_its_path(running):
    parts = run(running, [replace(request("f", [1, 5, 6, 7], 5), fork_of="gone", fork_at=3)])
    assert len(ids_of(parts["f"])) >= 1
    with pytest.raises(ValueError, match="fork_at"):
        running.submit(replace(request("f", [1, 5], 5), fork_of="gone", fork_at=3))


def test_what_cannot_be_served_is_refused_when_it_is_submitted(running):
    for wrong, message in (
        (request("x", [1, VOCABULARY]), "outside the vocabulary"),
        (request("x", []), "no tokens"),
        (request("x", [1] * 128), "leaves no room"),
        (request("x", [1], 0), "max_new_tokens"),
        (replace(request("x", [1]), sampling=Sampling(top_k=3)), "kept mass"),
        (replace(request("x", [1]), sampling=Sampling(presence_penalty=0.5)), "penalties"),
    ):
        with pytest.raises(ValueError, match=message):
            running.submit(wrong)
    running.submit(request("x", [1, 5]))
    with pytest.raises(ValueError, match="live already"):
        running.submit(request("x", [1, 5]))
    drain(running)


def test_a_server_that_gives_raw_log_probabilities_is_refused_with_the_flag():
    raw = Front(raw=True)
    try:
        with pytest.raises(ConfigError, match=r"(?s)of temperature 1.*--logprobs-mode processed_logprobs"):
            engine(raw.url)
    finally:
        raw.kill()
    started = time.monotonic()
    with pytest.raises(ServersLost, match=r"(?s)connect: .*docs/engines\.md"):
        engine(raw.url, attempts=2)
    assert time.monotonic() - started < 5


def test_servers_of_another_kind_are_refused_before_the_first_token(front, monkeypatch):
    with pytest.raises(ConfigError, match="serves no 'other'"):
        engine(front.url, model="other")
    with pytest.raises(ConfigError, match="takes the token 20"):
        VllmEngine(HttpSettings(urls=(front.url,), attempts=1), 20)
    with pytest.raises(ConfigError, match="does not take the token 49"):
        VllmEngine(HttpSettings(urls=(front.url,), attempts=1), 50)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ConfigError, match="'NO_SUCH_KEY' is not set"):
        engine(front.url, key_variable="NO_SUCH_KEY")
    for urls, message in ((("ftp://x",), "http"), (("http://a:b@x",), "password"), (("http://x", "http://x"), "twice")):
        with pytest.raises(ValueError, match=message):
            HttpSettings(urls=urls)


def test_the_command_asks_a_server_what_a_run_asks(front):
    from typer.testing import CliRunner

    from gfcr.cli.main import app

    result = CliRunner().invoke(app, ["engine", "lab", "--url", front.url, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (found["vocabulary"], found["max_length"], found["dtype"]) == (37, 128, "float32")
    assert set(found["features"]) == features_of("vllm")
    for url, said in (("ftp://x", "no http:// or https:// address"), ("http://127.0.0.1:9", "cannot be used")):
        wrong = CliRunner().invoke(app, ["engine", "lab", "--url", url])
        assert wrong.exit_code != 0 and said in " ".join(wrong.output.split())


def test_closing_ends_the_thread_and_the_folder_of_weights(front, model):
    made = engine(front.url)
    made.load(WeightsRef(1, "memory:"), model.state_dict())
    made.load(WeightsRef(2, "memory:"), model.state_dict())
    folder = made._checkpoints.place
    assert [p.name.split(".")[0] for p in folder.iterdir()] == ["2"]
    made.submit(request("x", [1, 5], 100, eos=()))
    made.close()
    assert not folder.exists()
    assert made._link._thread not in threading.enumerate()
    with pytest.raises(RuntimeError, match="closed"):
        made.submit(request("y", [1, 5]))
    made.close()
