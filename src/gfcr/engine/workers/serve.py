"""The worker process: an embedded engine on shared weights that does what its pipe says, one order at a time.

Invariants: every order gets exactly one reply, in order; what a worker does depends on the orders alone, never on when they
come; while an order is at work and tokens go through the model, beats say so.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch

from gfcr.engine.contract import Chunk, Prefilled, Request, Usage
from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings
from gfcr.engine.stops import Decode
from gfcr.engine.workers.shared import loads

BEAT = "beat"
SHARE = 4
"""A step without a token count goes on until one in SHARE of the requests live at its start has ended."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What a worker is made of."""

    module: bytes
    """`SharedWeights.dumps`."""
    settings: EmbeddedSettings
    decode: Decode | None
    version: int
    beat: float
    """Seconds between beats."""


@dataclass(frozen=True, slots=True)
class Order:
    requests: tuple[Request, ...]
    """To be submitted first; the sender has checked them."""
    call: str
    """`step`, `submit`, `cancel`, `score`, `renew` or `fingerprint`."""
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    value: Any = None
    error: Exception | None = None
    usage: Usage = Usage()
    prefilled: list[Prefilled] = field(default_factory=list)
    unsent: dict[str, int] = field(default_factory=dict)
    """Request -> tokens sampled and not yet returned."""


def advance(engine: EmbeddedEngine, tokens: int | None) -> list[Chunk]:
    """`Engine.step` with fewer returns, so that processes wait for each other less often."""
    if tokens is not None:
        return engine.step(tokens)
    enough = -(-engine.live() // SHARE)
    chunks: list[Chunk] = []
    while engine.live() and len(chunks) < enough:
        some = engine.step()
        if not some:
            break
        chunks += some
    return chunks


def serve(handle: int, fd: int, size: int, threads: int) -> None:
    """The child: build the engine, then take orders until the pipe closes."""
    torch.set_num_threads(threads)
    pipe = Connection(handle)
    lock = threading.Lock()

    def send(message: Any) -> None:
        with lock:
            pipe.send(message)

    try:
        parcel: Parcel = pipe.recv()
        engine = EmbeddedEngine(loads(parcel.module, fd, size), parcel.settings, parcel.decode, parcel.version)
        send(Reply(engine.fingerprint(), usage=engine.usage()))
    except (EOFError, OSError):
        return
    except Exception as error:
        send(Reply(error=portable(error)))
        return
    beats = Beats(send, lambda: engine.progress, parcel.beat)
    while True:
        try:
            order: Order = pipe.recv()
        except (EOFError, OSError):
            return
        beats.working.set()
        value, failure = _do(engine, order)
        beats.working.clear()
        send(Reply(value, failure, engine.usage(), engine.prefilled(), engine.unsent()))


def _do(engine: EmbeddedEngine, order: Order) -> tuple[Any, Exception | None]:
    try:
        for request in order.requests:
            engine.submit(request)
        match order.call:
            case "step":
                return advance(engine, *order.args), None
            case "renew":
                engine.renew(*order.args)
                return engine.fingerprint(), None
            case call:
                return getattr(engine, call)(*order.args), None
    except Exception as error:
        return None, portable(error)


def portable(error: Exception) -> Exception:
    """The error itself where it can travel, else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class Beats:
    """Sends a beat now and then while an order is at work and gets on."""

    def __init__(self, send: Callable[[str], None], progress: Callable[[], int], seconds: float) -> None:
        self.working = threading.Event()
        self._send, self._progress, self._seconds = send, progress, seconds
        threading.Thread(target=self._run, daemon=True, name="beats").start()

    def _run(self) -> None:
        while True:
            self.working.wait()
            seen = self._progress()
            time.sleep(self._seconds)
            if self.working.is_set() and self._progress() != seen:
                try:
                    self._send(BEAT)
                except OSError:
                    return  # the other side is gone, and the main thread will see it
