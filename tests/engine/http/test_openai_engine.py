"""OpenAI-compatible endpoints: with token ids as tokens, without as text for evaluation."""

import json
import re
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from front import Front
from http_cases import DECODE, ENCODE, END_ID, VOCABULARY, ids_of, lab, logprobs_of, plain_gap, request, run, some
from proxy import Proxy

from gfcr.engine import features_of
from gfcr.engine.contract import WeightsRef, losses_of
from gfcr.engine.http.openai import OpenAiEngine
from gfcr.engine.http.settings import HttpSettings
from gfcr.errors import ConfigError
from gfcr.types import Sampling, StopReason


@pytest.fixture(scope="module")
def endpoint():
    """One that nobody publishes to."""
    server = Front()
    yield server
    server.kill()


def asking(url, token_ids=True, **more):
    settings = HttpSettings(urls=(url,), token_ids=token_ids, pause=0.01, seconds=5.0, attempts=12)
    return OpenAiEngine(settings, VOCABULARY, 16, DECODE, ENCODE, **more)


def test_with_token_ids_its_tokens_and_log_probabilities_are_those_sampled(endpoint):
    with closing(asking(endpoint.url)) as running:
        assert running.capabilities().features == features_of("openai")
        requests = some(12)
        parts = run(running, requests)
        assert plain_gap(lab(), requests, parts) < 1e-4
        for chunks in parts.values():
            (chunk,) = chunks
            assert chunk.stop is (StopReason.EOS if chunk.ids[-1] == END_ID else StopReason.MAX_TOKENS)
        with pytest.raises(ConfigError, match="takes no weights"):
            running.load(WeightsRef(1, "memory:"), {})
        with pytest.raises(ConfigError, match="scores nothing"):
            running.score([])
        with pytest.raises(ConfigError, match="which weights"):
            running.fingerprint()
        with pytest.raises(ValueError, match="only temperature"):
            running.submit(replace(request("x", [1, 5]), sampling=Sampling(top_p=0.5)))


def test_without_token_ids_answers_are_text_for_evaluation(endpoint):
    with closing(asking(endpoint.url, token_ids=False)) as running:
        able = running.capabilities().features
        assert able == features_of("openai", token_ids=False) == {"text_only", "stop_strings"}
        parts = run(running, [request(f"t{i}", [5, 6, 7, 20 + i], key=i) for i in range(6)])
        for chunks in parts.values():
            (chunk,) = chunks
            assert np.isnan(chunk.logprobs).all() and len(chunk.logprobs) == len(chunk.ids)
            assert chunk.stop in (StopReason.EOS, StopReason.MAX_TOKENS)
            assert ENCODE(DECODE(chunk.ids)) == chunk.ids.tolist()
        running.submit(replace(request("p", [1, 5]), sampling=Sampling(0.7, top_p=0.5)))  # asked for as such
        for law in (Sampling(top_k=5), Sampling(min_p=0.1), Sampling(banned=(3,)), Sampling(presence_penalty=0.5)):
            with pytest.raises(ValueError, match="only temperature and top-p may shape its law"):
                running.submit(replace(request("q", [1, 5]), sampling=law))


def test_an_answer_that_our_tokenizer_cannot_write_is_a_failure_and_no_guess(endpoint):
    settings = HttpSettings(urls=(endpoint.url,), token_ids=False)
    with closing(OpenAiEngine(settings, VOCABULARY, 16, DECODE, lambda text: ENCODE(text)[1:])) as running:
        (chunk,) = run(running, [request("t", [5, 6, 7])])["t"]
        assert chunk.stop is StopReason.FAILED and chunk.error.startswith("shape: ") and not len(chunk.ids)


def test_a_cancelled_request_gives_nothing_back(endpoint):
    with closing(asking(endpoint.url)) as running:
        running.submit(request("c", [1, 5], 100, eos=()))
        chunk = running.cancel("c")
        assert chunk is not None and chunk.stop is StopReason.CANCELLED and not len(chunk.ids) and running.live() == 0


def test_spoilt_replies_are_asked_for_again(endpoint):
    proxy = Proxy(endpoint.port, share=0.0, seed=2)
    with closing(asking(endpoint.url)) as plain, closing(asking(proxy.url)) as spoilt:
        want = run(plain, some(20))
        proxy.share = 0.3
        parts = run(spoilt, some(20))
        assert {k: ids_of(v) for k, v in parts.items()} == {k: ids_of(v) for k, v in want.items()}
        assert all(np.abs(logprobs_of(parts[k]) - logprobs_of(want[k])).max() < 5e-5 for k in want)
        assert sum(losses_of(spoilt).faults.values()) == sum(proxy.injected.values()) > 0
    proxy.close()


def test_endpoints_of_another_kind_are_refused(endpoint):
    with pytest.raises(ConfigError, match="needs a tokenizer"):
        OpenAiEngine(HttpSettings(urls=(endpoint.url,), token_ids=False), VOCABULARY)
    raw = Front(raw=True)
    with pytest.raises(ConfigError, match="--logprobs-mode processed_logprobs"):
        asking(raw.url)
    raw.kill()


class Fixed(BaseHTTPRequestHandler):
    """An endpoint that gives ids, and of the likeliest tokens what its server has in `tops`."""

    def log_message(self, *said):
        """Nothing on the terminal."""

    def reply(self, data):
        content = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        self.reply({"data": [{"id": "lab", "max_model_len": 128}]})

    def do_POST(self):
        prompt = json.loads(self.rfile.read(int(self.headers["content-length"])))["prompt"]
        logprobs = {"token_logprobs": [-1.0], **self.server.tops}
        choice = {"finish_reason": "length", "token_ids": [5], "prompt_token_ids": prompt, "logprobs": logprobs}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 1}
        self.reply({"choices": [{"index": 0, "text": "0", **choice}], "usage": usage})


@pytest.mark.parametrize(
    ("tops", "said"),
    [
        ({}, "gives no choices.0..logprobs.top_logprobs"),
        ({"top_logprobs": None}, "gives no choices.0..logprobs.top_logprobs"),
        ({"top_logprobs": [{}]}, "gives no choices.0..logprobs.top_logprobs"),
        ({"top_logprobs": [{"0": -1.0, "1": -2.0}]}, r"0 tokens as `token_id:NUMBER` .*\('0', -1.0\)"),
        ({"top_logprobs": [{"token_id:5": -1.0}]}, "1 tokens as `token_id:NUMBER`"),
    ],
)
def test_an_endpoint_without_the_likeliest_tokens_is_told_what_is_missing(tops, said):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Fixed)
    server.tops = tops
    serving = Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        with pytest.raises(ConfigError, match=said) as refused:
            asking(f"http://127.0.0.1:{server.server_port}")
        assert "token_ids = false" in refused.value.remedy and "--logprobs-mode" not in str(refused.value)
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def test_the_page_does_what_it_says(endpoint, capsys):
    text = (Path(__file__).parents[3] / "docs" / "engines.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "http://127.0.0.1:8000" in block
    exec(block.replace("http://127.0.0.1:8000", endpoint.url), {"__name__": "page"})
    assert re.search(r"#\d\d\$? -\d+\.\d+ (eos|max_tokens)\n", capsys.readouterr().out)
