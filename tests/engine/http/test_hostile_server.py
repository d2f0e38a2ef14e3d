"""One server that means harm, asked directly: whatever it sends, each wait ends and what failed is a Fault of one kind."""

import asyncio
import gzip
import time

import pytest

from gfcr.engine.http import server as module
from gfcr.engine.http.faults import Fault
from gfcr.engine.http.server import Server, client

SECONDS = 1.0
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
EVENT = b'data: {"a": 1}\n\n'


async def drip(writer, head, byte, pause=0.01, most=20000):
    """Bytes one by one, each well before the client's patience is over."""
    writer.write(head)
    for _ in range(most):
        writer.write(byte)
        await writer.drain()
        await asyncio.sleep(pause)


async def sends(writer, *parts):
    for part in parts:
        writer.write(part)
        await writer.drain()


BOMB = gzip.compress(b" " * 5_000_000)


def packed(body):
    return HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def refusal(status, more=b""):
    return b"HTTP/1.1 %d No\r\ncontent-length: 5\r\nretry-after: 86400\r\n%s\r\nsorry" % (status, more)


STREAM = HEAD + b"connection: close\r\n\r\n"
BEHAVIOURS = {
    "drips": (lambda w: drip(w, STREAM, b" "), "timeout", "timeout"),
    "pings": (lambda w: drip(w, STREAM + EVENT, b": ping\n"), "timeout", "timeout"),
    "drips_within_an_event": (lambda w: drip(w, STREAM + b"data: {", b" "), "timeout", "timeout"),
    "drips_after_the_end": (lambda w: drip(w, STREAM + EVENT + b"data: [DONE]\n\n", b"\n"), "timeout", "timeout"),
    "drips_a_refusal": (lambda w: drip(w, b"HTTP/1.1 503 No\r\n\r\n", b"x"), "timeout", "timeout"),
    "floods": (lambda w: sends(w, STREAM, *[b"x" * 65536] * 64), "shape", "shape"),
    "bomb": (lambda w: sends(w, packed(BOMB)), "shape", "shape"),
    "packed": (lambda w: sends(w, packed(gzip.compress(b"{}"))), "shape", "shape"),
    "reset": (lambda w: sends(w, HEAD + b"content-length: 500\r\n\r\n" + EVENT), "truncated", "truncated"),
    "nothing": (lambda w: sends(w), "truncated", "truncated"),
    "no_http": (lambda w: sends(w, b"\x00\xff\r\n\r\n"), "truncated", "truncated"),
    "half_a_pair": (lambda w: sends(w, STREAM, b'data: {"error": "\\ud800"}\n\n'), "bad_json", "status"),
    "redirect": (lambda w: sends(w, refusal(302, b"location: http://127.0.0.1:1/\r\n")), "refused", "refused"),
    "unauthorised": (lambda w: sends(w, refusal(401)), "refused", "refused"),
    "forbidden": (lambda w: sends(w, refusal(403)), "refused", "refused"),
    "too_many": (lambda w: sends(w, refusal(429)), "status", "status"),
    "broken": (lambda w: sends(w, refusal(500)), "status", "status"),
    "busy_for_a_day": (lambda w: sends(w, refusal(503)), "status", "status"),
}


async def asked(behaviour, how):
    """What `how` of a server that behaves so raises, and after how many seconds."""

    async def serve(reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            await behaviour(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    started = time.monotonic()
    async with client(url, SECONDS, None) as connection:
        with pytest.raises(Fault) as caught:
            await how(Server(url, connection, SECONDS))
    took = time.monotonic() - started
    listening.close()
    return caught.value, took


async def whole(server):
    await server.ask("POST", "/x", {})


async def stream(server):
    async for _ in server.events("/x", {}):
        pass


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_every_wait_ends_and_every_fault_has_its_kind(name, monkeypatch):
    monkeypatch.setattr(module, "MOST_REPLY", 1 << 20)
    behaviour, of_whole, of_stream = BEHAVIOURS[name]
    for how, kind in ((whole, of_whole), (stream, of_stream)):
        fault, took = asyncio.run(asked(behaviour, how))
        assert fault.kind == kind and took < 30
        str(fault).encode()  # it goes into a database
