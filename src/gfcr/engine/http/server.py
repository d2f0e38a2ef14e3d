"""One server: requests with typed faults, replies as they come, and its own counters.

Invariants: a reply counts only when it is whole (a stream ends with its end mark and nothing follows it); a line is at most a
mebibyte, a reply that is no stream at most `MOST_REPLY` bytes, none is unpacked; however slowly bytes come, every wait ends; what
failed is a Fault of one kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from math import isfinite
from time import monotonic
from typing import TYPE_CHECKING, Any

from gfcr.engine.http.faults import CONNECT, FOREIGN, REFUSED, SHAPE, STATUS, TIMEOUT, TRUNCATED, Fault
from gfcr.engine.http.replies import parsed
from gfcr.errors import MissingExtra

if TYPE_CHECKING:
    import httpx2

MOST_BYTES = 1 << 20
"""Of one line of a stream."""
MOST_REPLY = 1 << 26
"""Of a reply that is no stream."""
CONNECT_SECONDS = 10.0
_METRICS = {
    "generated": "vllm:generation_tokens_total",
    "prompts": "vllm:prompt_tokens_total",
    "hits": "vllm:prefix_cache_hits_total",
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "boot": "vllm:generation_tokens_created",
}


@dataclass(frozen=True, slots=True)
class Counters:
    """A server's own counts since it started (its Prometheus metrics)."""

    generated: int
    prompts: int
    hits: int
    """Context tokens found in the prefix cache."""
    running: int
    waiting: int
    boot: float
    """When it started to count; another value is another life of the server."""

    @property
    def quiet(self) -> bool:
        return not self.running and not self.waiting


def client(url: str, seconds: float, key: str | None) -> httpx2.AsyncClient:
    """Raises MissingExtra without httpx2."""
    try:
        import httpx2
    except ImportError:
        raise MissingExtra("httpx2", "http", "an engine over HTTP") from None
    headers = {"accept-encoding": "identity", "user-agent": "gfcr"} | ({"authorization": f"Bearer {key}"} if key else {})
    return httpx2.AsyncClient(
        base_url=url,
        headers=headers,
        timeout=httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
        follow_redirects=False,
        trust_env=False,
    )


@dataclass(slots=True, eq=False)
class Server:
    """A server and what is known about it. Its client belongs to the event loop."""

    url: str
    client: httpx2.AsyncClient
    seconds: float = 60.0
    """Longest silence of a reply; one that is no stream has come in twice that."""
    up: bool = False
    """Proven, and may be given work."""
    why: str = "not asked yet"
    """Why it is not up."""
    given_up: bool = False
    """It did not come back in time; only a publication tries again."""
    live: int = 0
    """Requests it works on for us."""
    boot: float | None = None
    base: int = 0
    """Its count of sampled tokens when we first met this life of it."""
    known: int = 0
    """Sampled tokens of this life that we know of."""
    models: dict[str, Any] = field(default_factory=dict)

    def rebase(self, counters: Counters) -> None:
        """It is another life of the server: count from here."""
        self.boot, self.base, self.known = counters.boot, counters.generated, 0

    async def ask(self, method: str, path: str, body: Any = None, query: dict[str, str] | None = None) -> dict[str, Any]:
        """A whole JSON reply. Raises Fault."""
        content = await self.fetch(method, path, body, query)
        return parsed(content) if content.strip() else {}

    async def fetch(self, method: str, path: str, body: Any = None, query: dict[str, str] | None = None) -> bytes:
        import httpx2

        try:
            async with asyncio.timeout(2 * self.seconds), self.client.stream(method, path, json=body, params=query) as reply:
                content = await _whole(reply)
        except TimeoutError:
            raise Fault(TIMEOUT, f"the reply was not there after {2 * self.seconds:g} s, though bytes came") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise _fault(error) from error
        _check_status(reply.status_code, content)
        return content

    async def events(self, path: str, body: Any) -> AsyncIterator[dict[str, Any]]:
        """The objects of an event stream. Raises Fault, also when it ends early or goes on after its end."""
        import httpx2

        ended = False
        try:
            async with self.client.stream("POST", path, json=body) as reply:
                if reply.status_code != 200:
                    async with asyncio.timeout(self.seconds):
                        _check_status(reply.status_code, await _whole(reply))
                _check_plain(reply)
                spoke = monotonic()
                async for line in _lines(reply):
                    if monotonic() - spoke > self.seconds:
                        raise Fault(TIMEOUT, f"no event in {self.seconds:g} s, though bytes came")
                    if not line.startswith(b"data:"):
                        if line.strip() and not line.startswith(b":"):
                            raise Fault(SHAPE, f"a stream holds {line[:60]!r}")
                        continue
                    data = line[5:].strip()
                    if ended:
                        raise Fault(FOREIGN, "a stream goes on after its end")
                    if data == b"[DONE]":
                        ended = True
                        continue
                    found = parsed(data)
                    if "error" in found:
                        raise Fault(STATUS, f"the server broke off: {str(found['error'])[:200]}")
                    yield found
                    spoke = monotonic()
        except TimeoutError:
            raise Fault(TIMEOUT, f"a refusal was not there after {self.seconds:g} s, though bytes came") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise _fault(error) from error
        if not ended:
            raise Fault(TRUNCATED, "a stream ended before its end mark")

    async def counters(self) -> Counters:
        """Raises Fault when there are none."""
        text = (await self.fetch("GET", "/metrics")).decode("utf-8", "replace")
        sums: dict[str, float] = {}
        for line in text.splitlines():
            name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
            for key, wanted in _METRICS.items():
                if name == wanted:
                    try:
                        value = float(rest.rpartition(" ")[2] if "{" in line else rest)
                    except ValueError:
                        raise Fault(SHAPE, f"a metric is {line[:80]!r}") from None
                    if not isfinite(value):
                        raise Fault(SHAPE, f"a metric is {line[:80]!r}")
                    sums[key] = sums.get(key, 0.0) + value
        if missing := [name for key, name in _METRICS.items() if key not in sums]:
            raise Fault(SHAPE, f"/metrics has no {missing[0]}")
        return Counters(**{k: v if k == "boot" else int(v) for k, v in sums.items()})  # type: ignore[arg-type]


async def _lines(reply: httpx2.Response) -> AsyncIterator[bytes]:
    """The lines as they come, and an empty one for bytes that end none, so that the caller can look at the clock."""
    rest = bytearray()
    async for block in reply.aiter_raw():
        rest += block
        if b"\n" not in block:
            yield b""
        else:
            *whole, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in whole:
                yield line
        if len(rest) > MOST_BYTES:
            raise Fault(SHAPE, f"a line of more than {MOST_BYTES} bytes")
    if rest.strip():
        raise Fault(TRUNCATED, "a stream ended within a line")


async def _whole(reply: httpx2.Response) -> bytes:
    """A reply's bytes as they are on the wire. Raises Fault for too many, and for a packed one: it was asked not to be."""
    _check_plain(reply)
    content = bytearray()
    async for block in reply.aiter_raw():
        content += block
        if len(content) > MOST_REPLY:
            raise Fault(SHAPE, f"a reply of more than {MOST_REPLY} bytes")
    return bytes(content)


def _check_plain(reply: httpx2.Response) -> None:
    if (packed := reply.headers.get("content-encoding", "identity")) != "identity":
        raise Fault(SHAPE, f"the reply is packed ({packed[:40]!r}), and plain bytes were asked for")


def _check_status(status: int, content: bytes) -> None:
    if status == 200:
        return
    said = content[:300].decode("utf-8", "replace")
    again = status in (408, 425, 429) or status >= 500
    raise Fault(STATUS if again else REFUSED, f"status {status}: {said}", again)


def _fault(error: Exception) -> Fault:
    import httpx2

    what = f"{type(error).__name__}: {error}"[:200]
    if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout)):
        return Fault(CONNECT, what)
    return Fault(TIMEOUT if isinstance(error, httpx2.TimeoutException) else TRUNCATED, what)
