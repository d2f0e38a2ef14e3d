"""A proxy that spoils a share of the replies between an engine and a real server: the fault tests' stand between them.

`drop` (nothing comes), `delay` (for longer than the engine waits), `truncate` (half of it), `double` (an event twice), `twice` (the request
reaches the server twice), and replies that are detectably wrong: `json`, `length`, `nan`, `positive`, `vocabulary`, `version`, `foreign`.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter

KINDS = ("drop", "delay", "truncate", "double", "json", "length", "nan", "positive", "vocabulary", "version", "foreign")
DELAY_SECONDS = 120.0
SEEN_AS = {
    "drop": "truncated",
    "delay": "timeout",
    "truncate": "truncated",
    "double": "count",
    "json": "bad_json",
    "length": "shape",
    "nan": "bad_json",
    "positive": "logprob",
    "vocabulary": "vocabulary",
    "version": "version",
    "foreign": "foreign",
}
"""The kind of fault an engine must see."""
STREAMED = ("double", "length", "nan", "positive", "vocabulary", "version", "foreign")
"""What only a stream of tokens can suffer; other replies get bad JSON."""


class Proxy:
    """Runs on a thread of its own. `injected` counts what it did."""

    def __init__(self, port: int, share: float = 0.2, delays: int = 1, seed: int = 0, twice: float = 0.0) -> None:
        """`delays`: most replies that are held back, because each costs the engine's whole patience."""
        self.upstream, self.share, self.delays, self.twice = port, share, delays, twice
        self.random = random.Random(seed)
        self.turn = 0
        """Kind that comes next."""
        self.injected: Counter[str] = Counter()
        self.loop = asyncio.new_event_loop()
        self.port = 0
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait(10)

    def _run(self, ready: threading.Event) -> None:
        async def start() -> None:
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=512)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()

        self.loop.run_until_complete(start())
        self.loop.run_forever()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length")), 0)
            request = head + await reader.readexactly(length)
            path = head.split(b" ")[1].partition(b"?")[0]
            tokens = path == b"/inference/v1/generate" and b'"stream":true' in request.replace(b" ", b"")
            if tokens and self.random.random() < self.twice:
                self.injected["twice"] += 1
                await self.fetch(request)
            reply = await self.fetch(request)
            if (
                path not in (b"/metrics", b"/health")
                and reply.startswith(b"HTTP/1.1 200")
                and self.random.random() < self.share
            ):
                kind = "json"
                if tokens or KINDS[self.turn] not in STREAMED:  # in turn: every kind comes, whatever the timing
                    kind, self.turn = KINDS[self.turn], (self.turn + 1) % len(KINDS)
                if kind == "delay" and self.injected[kind] >= self.delays:
                    kind = "drop"
                self.injected[kind] += 1
                if kind == "drop":
                    return
                if kind == "delay":  # as long as anybody waits
                    await asyncio.wait_for(reader.read(), DELAY_SECONDS)
                    return
                reply = self.spoil(reply, kind)
            writer.write(reply)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()

    async def fetch(self, request: bytes) -> bytes:
        """The server's whole reply. A connection that is refused is passed on as one that breaks."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        writer.write(b"\r\n".join([*lines, b"connection: close"]) + b"\r\n\r\n" + body)
        try:
            return await reader.read()
        finally:
            writer.close()

    def spoil(self, reply: bytes, kind: str) -> bytes:
        head, _, body = reply.partition(b"\r\n\r\n")
        if kind == "truncate":
            return reply[: len(head) + 4 + len(body) // 2]
        if kind == "json":
            at = body.index(b"{") + 1
            return head + b"\r\n\r\n" + body[:at] + b"!" + body[at + 1 :]
        chunked = b"transfer-encoding: chunked" in head.lower()
        if chunked:  # a real server's stream: whole again, ended by closing
            head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.lower().startswith(b"transfer-encoding"))
            body = joined(body)
        events = [line for line in body.split(b"\n") if line.startswith(b"data: {")]
        texts = [i for i, event in enumerate(events) if json.loads(event[6:])["choices"]]
        with_tokens = [i for i in texts if json.loads(events[i][6:])["choices"][0]["token_ids"]]
        at = texts[-1] if kind == "version" else self.random.choice(with_tokens)
        events[at : at + 1] = [events[at], events[at]] if kind == "double" else [self.changed(events[at], kind)]
        return head + b"\r\n\r\n" + b"".join(event + b"\n\n" for event in events) + b"data: [DONE]\n\n"

    def changed(self, event: bytes, kind: str) -> bytes:
        data = json.loads(event[6:])
        choice = data["choices"][0]
        if kind == "length":
            choice["logprobs"]["content"].pop()
        elif kind == "nan":
            choice["logprobs"]["content"][0]["logprob"] = float("nan")
        elif kind == "positive":
            choice["logprobs"]["content"][0]["logprob"] = 0.5
        elif kind == "vocabulary":
            choice["token_ids"][0] = 1_000_000
        elif kind == "version":
            choice["weight_versions"] = [{**span, "version": "of-somebody-else"} for span in choice["weight_versions"]]
        elif kind == "foreign":
            data["request_id"] = "generate-tokens-another"
        return b"data: " + json.dumps(data).encode()


def joined(body: bytes) -> bytes:
    """A chunked body in one piece."""
    parts = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            break
        parts.append(rest[:n])
        body = rest[n + 2 :]
    return b"".join(parts)
