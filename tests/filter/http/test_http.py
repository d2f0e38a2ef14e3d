"""The HTTP verifier against real servers on this machine, good and hostile: what an endpoint does wrong is never a reward."""

from __future__ import annotations

import gzip
import json
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from gfcr.errors import ConfigError
from gfcr.filter.verifiers.http import LONGEST_EVIDENCE, Http
from gfcr.types import Status, StopReason, Task, Verdict

TASK = Task("t", "2+3?", "5", meta={"level": 2})
Behaviour = Callable[["Server", socket.socket, dict[str, Any], int], None]


class Server:
    """A TCP server whose behaviour is a function of (server, connection, request, how many came before)."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour, self.seen, self.ended = behaviour, list[dict[str, Any]](), threading.Event()
        self.now = self.most = 0
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/judge"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with closing(connection), connection.makefile("rb") as lines:
            while True:
                try:
                    head = [lines.readline().decode()]
                    while head[-1] not in ("\r\n", ""):
                        head.append(lines.readline().decode())
                    if len(head) < 2:
                        return
                    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:-1])}
                    request = {
                        "line": head[0],
                        "headers": headers,
                        "json": json.loads(lines.read(int(headers["content-length"]))),
                    }
                    with self._lock:
                        nth = len(self.seen)
                        self.seen.append(request)
                        self.now += 1
                        self.most = max(self.most, self.now)
                    try:
                        self.behaviour(self, connection, request, nth)
                    finally:
                        with self._lock:
                            self.now -= 1
                except (OSError, ValueError):
                    return

    def close(self) -> None:
        self.ended.set()
        self._socket.close()


def raw(body: bytes, status: str = "200 OK", length: int | None = None, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body) if length is None else length}"]
    lines += [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def says(value: Any, status: str = "200 OK", **headers: str) -> Behaviour:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return lambda server, connection, request, nth: connection.sendall(raw(body, status, **headers))


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[Server, Http]]]:
    made: list[Any] = []

    def start(behaviour: Behaviour, **settings: Any) -> tuple[Server, Http]:
        server = Server(behaviour)
        judge = Http(Http.Settings(**{"url": server.url, "seconds": 0.6, "retries": 0, **settings}))
        made.extend([server, judge])
        return server, judge

    yield start
    for one in made:
        one.close()


def test_what_is_sent_and_what_comes_back(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER", "Bearer s3cret-token")
    server, judge = serve(
        says({"score": 0.5, "correct": False, "evidence": "half", "answer": "5"}),
        headers={"x-run": "7"},
        secret_headers={"authorization": "GRADER"},
        version="v9",
        seconds=10,
    )
    verdict = judge.judge(TASK, "it is 5", StopReason.EOS)
    assert (verdict.status, verdict.score, verdict.correct) == (Status.SCORED, 0.5, False)
    assert (verdict.verifier, verdict.version, verdict.evidence, verdict.answer) == ("http", "v9", "half", "5")
    assert 0 < verdict.seconds < 10
    (request,) = server.seen
    assert request["line"] == "POST /judge HTTP/1.1\r\n"
    assert request["headers"]["authorization"] == "Bearer s3cret-token" and request["headers"]["x-run"] == "7"
    sent = request["json"]
    assert (sent["text"], sent["reference"], sent["meta"], sent["stop"]) == ("it is 5", "5", {"level": 2}, "eos")
    assert (sent["task"]["id"], sent["task"]["prompt"]) == (TASK.id, "2+3?")
    judge.judge(TASK, "it is 5", StopReason.EOS)
    judge.judge(TASK, "it is 6", StopReason.EOS)
    ids = [request["json"]["id"] for request in server.seen]
    assert ids[0] == ids[1] != ids[2]
    assert "s3cret" not in repr(judge.settings) and b"s3cret" not in pickle.dumps(judge)


@pytest.mark.parametrize(
    ("reply", "score", "correct"),
    [
        (True, 1.0, True),
        (0.25, 0.25, False),
        (1, 1.0, True),
        ({"score": 2, "acc": 0}, 2.0, False),
        ({"score": 0.2, "correct": True}, 0.2, True),
        ({"score": False}, 0.0, False),
    ],
)
def test_what_becomes_a_score(serve: Any, reply: Any, score: float, correct: bool) -> None:
    verdict = serve(says(reply), seconds=10)[1].judge(TASK, "x", StopReason.EOS)
    assert (verdict.status, verdict.score, verdict.correct) == (Status.SCORED, score, correct)


def drip(head: bytes) -> Behaviour:
    """Bytes one by one, each well within any time-out of its own."""

    def behave(server: Server, connection: socket.socket, request: Any, nth: int) -> None:
        for byte in head * 1000:
            connection.sendall(bytes([byte]))
            if server.ended.wait(0.02):
                return

    return behave


def endless(server: Server, connection: socket.socket, request: Any, nth: int) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while not server.ended.is_set():
        connection.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")


def hang(server: Server, connection: socket.socket, request: Any, nth: int) -> None:
    server.ended.wait(30)


def close(server: Server, connection: socket.socket, request: Any, nth: int) -> None:
    connection.shutdown(socket.SHUT_RDWR)


HOSTILE: dict[str, tuple[Behaviour, str]] = {
    "hangs": (hang, "no verdict within 0.6 s"),
    "head byte by byte": (
        drip(b"HTTP/1.1 200 OK\r\nx-long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        "no verdict within 0.6 s",
    ),
    "body byte by byte": (
        lambda s, c, r, n: (c.sendall(raw(b"", length=10_000)), drip(b"     ")(s, c, r, n))[0],
        "no verdict within 0.6 s",
    ),
    "closes": (close, "no reply"),
    "no HTTP": (lambda s, c, r, n: c.sendall(b"\x00\xff nonsense\r\n\r\n"), "no reply"),
    "shorter than it says": (lambda s, c, r, n: (c.sendall(raw(b"1", length=50)), c.shutdown(socket.SHUT_RDWR))[0], "no reply"),
    "endless": (endless, "more than 4096 bytes"),
    "too long": (says(b" " * 5000 + b"1"), "more than 4096 bytes"),
    "a bomb": (says(gzip.compress(b" " * 10_000_000)[:4000], content_encoding="gzip"), "compressed"),
    "redirect": (says(True, "307 Temporary Redirect", location="/right"), "redirects are not followed"),
    "not found": (says(True, "404 Not Found"), "status 404"),
    "broken": (says(True, "500 Oops"), "status 500 (1 attempt)"),
    "no content": (says(b"", "204 No Content"), "status 204"),
    "empty": (says(b""), "no JSON"),
    "no JSON": (says(b"{'score': 1}"), "no JSON"),
    "no UTF-8": (says(b'{"score": 1, "evidence": "\xff"}'), "no JSON"),
    "deep": (says(b"[" * 4000), "no JSON"),
    "NaN": (says(b'{"score": NaN}'), "NaN is no JSON number"),
    "infinity": (says(b"-Infinity"), "Infinity is no JSON number"),
    "overflow": (says(b"1e999"), "returned inf"),
    "huge integer": (says(b"1" + b"0" * 400), "too large"),
    "no score": (says({"correct": True}), "without 'score'"),
    "text": (says({"score": "1.0"}), "not a number"),
    "list": (says([1.0]), "not a number"),
    "strange correctness": (says({"score": 1, "correct": "yes"}), "for correctness"),
    "abstains": (says(None), "it abstains"),
    "abstains with a reason": (says({"score": None, "evidence": "I cannot tell"}), "I cannot tell"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_an_endpoint_does_wrong_is_unscorable(serve: Any, name: str) -> None:
    behaviour, why = HOSTILE[name]
    server, judge = serve(behaviour, max_bytes=4096)
    started = time.monotonic()
    verdict = judge.judge(TASK, "x", StopReason.EOS)
    assert verdict.status is Status.UNSCORABLE and verdict.score is None and verdict.correct is None
    assert why in verdict.evidence, verdict.evidence
    assert time.monotonic() - started < 5
    assert len(server.seen) == 1  # nothing was followed, nothing repeated


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    judge = Http(Http.Settings(url=f"http://127.0.0.1:{port}/", retries=1, seconds=5))
    verdict = judge.judge(TASK, "x", StopReason.EOS)
    judge.close()
    assert verdict.status is Status.UNSCORABLE and "ConnectError" in verdict.evidence and "2 attempts" in verdict.evidence


def test_attempts_are_bounded_and_what_passes_is_tried_again(serve: Any) -> None:
    def flaky(server: Server, connection: socket.socket, request: Any, nth: int) -> None:
        connection.sendall(raw(b"", "503 Later") if nth < 2 else raw(b"true"))

    server, judge = serve(flaky, retries=2, seconds=10)
    assert judge.judge(TASK, "x", StopReason.EOS).correct is True
    assert len(server.seen) == 3 and len({request["json"]["id"] for request in server.seen}) == 1
    server, judge = serve(says(b"", "503 Later"), retries=2, seconds=10)
    assert judge.judge(TASK, "x", StopReason.EOS).evidence == "status 503 (3 attempts)"
    server, judge = serve(says(b"", "503 Later"), retries=10, seconds=0.5)
    assert judge.judge(TASK, "x", StopReason.EOS).evidence == "no verdict within 0.5 s"


def test_many_at_once_within_the_limit_and_in_order(serve: Any) -> None:
    def slow(server: Server, connection: socket.socket, request: Any, nth: int) -> None:
        server.ended.wait(0.05)
        connection.sendall(raw(json.dumps(float(request["json"]["text"])).encode()))

    server, judge = serve(slow, concurrency=4, seconds=5)
    threads: list[list[Verdict]] = []
    first, second = ([(TASK, str(i), StopReason.EOS) for i in r] for r in (range(12), range(12, 24)))
    worker = threading.Thread(target=lambda: threads.append(judge.judge_many(second)))
    worker.start()
    scores = [v.score for v in judge.judge_many(first)]
    worker.join()
    assert scores == list(range(12)) and [v.score for v in threads[0]] == list(range(12, 24))
    assert 2 <= server.most <= 4


def test_evidence_shows_no_secret_and_is_bounded(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER", "Bearer s3cret-token")
    replies = [
        {"score": 1, "evidence": "you sent s3cret-token " * 200},
        b"<html>Bearer s3cret-token",
        {"score": "s3cret-token" * 9},
    ]
    for reply in replies:
        _, judge = serve(says(reply), secret_headers={"authorization": "GRADER"}, seconds=10)
        verdict = judge.judge(TASK, "x", StopReason.EOS)
        assert "s3cret" not in repr(verdict) and "***" in verdict.evidence and len(verdict.evidence) <= LONGEST_EVIDENCE


def test_what_cannot_be_sent_and_what_we_ended_is_unscorable(serve: Any) -> None:
    server, judge = serve(says(True))
    for task, stop in (
        (Task("t", "p", float("nan")), StopReason.EOS),
        (Task("t", "p", {1, 2}), StopReason.EOS),
        (TASK, StopReason.PARKED),
    ):
        assert judge.judge(task, "x", stop).status is Status.UNSCORABLE
    assert server.seen == []


def test_it_goes_on_after_closing_and_after_travelling(serve: Any) -> None:
    _, judge = serve(says(True), seconds=10)
    before = threading.active_count()
    again = pickle.loads(pickle.dumps(judge))
    for one in (judge, again, judge):
        assert one.judge(TASK, "x", StopReason.EOS).correct is True
        one.close()
    deadline = time.monotonic() + 5
    while any(t.name == "gfcr-http" for t in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(t.name == "gfcr-http" for t in threading.enumerate()), before


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"url": "ftp://host/x"}, "http:// or https://"),
        ({"url": "localhost:8000"}, "http:// or https://"),
        ({"url": "http://user:pass@host/"}, "secret_headers"),
        ({"url": "http://host/", "secret_headers": {"a": "GFCR_NO_SUCH_VARIABLE"}}, "GFCR_NO_SUCH_VARIABLE"),
    ],
)
def test_bad_settings_are_refused_before_the_first_token(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Http(Http.Settings(**settings))
