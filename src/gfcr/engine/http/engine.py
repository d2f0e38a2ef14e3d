"""What the engines over HTTP have in common: requests on an event loop behind the engine contract.

Invariants: a request ends exactly once; an attempt that failed gives no token, and another one is made while nothing of it was handed
out and attempts are left (with the same seed, so that failing says nothing about what would have been drawn); every fault is counted
once by its kind; tokens known to be sampled are either in a chunk or in `losses` (in a FAILED chunk's `lost` for the attempt that
ended it).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any, TypeVar

from gfcr.engine.contract import Capabilities, Chunk, Losses, Prefilled, Request, Score, ScoreItem, Usage, WeightsRef
from gfcr.engine.http.faults import ABORTED, CONNECT, COUNTERS, ENDING, STATUS, UNSEEN, VERSION, Fault, ServersLost, Tally
from gfcr.engine.http.link import CLOSING_SECONDS, Link
from gfcr.engine.http.live import Live
from gfcr.engine.http.pool import LONGEST_PAUSE, Pool
from gfcr.engine.http.replies import Part
from gfcr.engine.http.server import Server, client
from gfcr.engine.http.settings import HttpSettings
from gfcr.engine.requests import Contexts, checked_context, limit
from gfcr.engine.stops import Decode
from gfcr.errors import ConfigError
from gfcr.types import StopReason

T = TypeVar("T")
CANCEL_TURNS = 8
"""Times a server is asked, a quarter of a second apart, to end what was cancelled; then the connection is cut."""
IDLE_SECONDS = 30.0
"""Longest one `step` waits for a token."""
QUIET_SECONDS = 5.0
"""Longest wait for a server to be done with what was cut off, before its counters are read."""


class HttpEngine(ABC):
    """See gfcr.engine.contract.Engine and Lossy. Not thread-safe."""

    def __init__(
        self, settings: HttpSettings, vocabulary: int, slots: int = 256, decode: Decode | None = None, version: int = 0
    ) -> None:
        """`vocabulary`: of the model, in tokens. `slots`: requests worked on at once, on all servers together. `decode`: ids to text,
        needed for stop strings. Raises ConfigError for an unset key, MissingExtra without httpx2."""
        key = None
        if settings.key_variable is not None and not (key := os.environ.get(settings.key_variable)):
            raise ConfigError(f"the environment variable {settings.key_variable!r} is not set", "set it to the servers' key")
        self.settings, self.vocabulary, self._decode, self._version = settings, vocabulary, decode, version
        self.max_length, self._closed = 0, False
        self._tally = Tally()
        servers = [Server(url, client(url, settings.seconds, key), settings.seconds) for url in settings.urls]
        self._pool = Pool(servers, max(1, -(-slots // len(servers))), settings.outage, self._tally, self._admit)
        self._contexts = Contexts(vocabulary)
        self._news = threading.Condition()
        self._live: dict[str, Live] = {}
        """Requests whose end was not returned, in submission order."""
        self._tasks: dict[str, Future[None]] = {}
        self._prefilled: list[Prefilled] = []
        self._counts = {"prefilled": 0, "decoded": 0, "scored": 0, "cached": 0, "live_peak": 0}
        self.aside = 0
        """Tokens that scoring and checks had to sample (a server samples at least one); in `usage().scored`."""
        self._names = f"gfcr-{secrets.token_hex(6)}"
        self._numbered = 0
        self._link = Link("gfcr-engine")

    # ---- what a kind of server decides -------------------------------------------------------------------------

    @abstractmethod
    async def _admit(self, server: Server) -> None:
        """Prove that it answers as agreed, with the published weights. Raises Fault."""

    @abstractmethod
    async def _attempt(self, live: Live, server: Server) -> Part:
        """One attempt: tokens through `_arrived`, in the end the last part. Raises Fault."""

    @abstractmethod
    async def _abort(self, live: Live, server: Server) -> None:
        """Have the server end it; what it has so far comes with the attempt. Raises Fault."""

    @abstractmethod
    def _refused(self, request: Request) -> str:
        """Why the request's law cannot be served; empty = it can."""

    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    @abstractmethod
    def score(self, items: Sequence[ScoreItem]) -> list[Score]: ...

    @abstractmethod
    def load(self, ref: WeightsRef, tensors: Mapping[str, Any] | None = None) -> None: ...

    @abstractmethod
    def fingerprint(self) -> str: ...

    # ---- the contract ------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        self._open()
        if request.id in self._live:
            raise ValueError(f"request {request.id!r} is live already; ids must be unique among live requests")
        context = checked_context(request, self.max_length, self._contexts, self._decode)
        if why := self._refused(request):
            raise ValueError(f"request {request.id!r}: {why}")
        if request.fork_of is not None and not 1 <= request.fork_at <= len(context):
            raise ValueError(f"request {request.id!r}: fork_at = {request.fork_at} must lie in [1, {len(context)}]")
        live = Live(request, context, *limit(request, context, self.max_length))
        with self._news:
            self._live[request.id] = live
        self._tasks[request.id] = self._link.spawn(self._serve(live))

    def step(self, tokens: int | None = None) -> list[Chunk]:
        """The servers run ahead: with `tokens`, returns once one request has that many new ones or has ended, up to as many of each."""
        self._open()
        if tokens is not None and tokens < 1:
            raise ValueError(f"step(tokens={tokens}): ask for at least 1, or None to run until a request finishes")

        def ready() -> bool:
            all_ = self._live.values()
            return not all_ or any(x.stop is not None or (tokens is not None and len(x.ids) - x.sent >= tokens) for x in all_)

        with self._news:
            self._news.wait_for(ready, IDLE_SECONDS)
            if tokens is None:
                chunks = [x.chunk() for x in self._live.values() if x.stop is not None]
            else:
                chunks = [x.chunk(tokens) for x in self._live.values() if x.stop is not None or len(x.ids) > x.sent]
            for chunk in chunks:
                if chunk.stop is not None:
                    self._forget(chunk.request)
        return chunks

    def prefilled(self) -> list[Prefilled]:
        with self._news:
            out, self._prefilled = self._prefilled, []
        return out

    def cancel(self, request: str) -> Chunk | None:
        self._open()
        live = self._live.get(request)
        if live is None:
            return None
        self._link.call(self._cancel(live), CANCEL_TURNS * (self.settings.seconds + 1))
        with self._news:
            self._forget(request)
            return live.chunk()

    def live(self) -> int:
        return len(self._live)

    def usage(self) -> Usage:
        """Known from replies, and `decoded` with what the servers' counters showed beyond that. KV positions are the servers' affair:
        0."""
        with self._news:
            return Usage(**self._counts)

    def losses(self) -> Losses:
        self._open()
        if self.settings.exclusive:
            self._link.call(self._reconcile(), self._patience(2))
        return self._tally.take()

    def close(self) -> None:
        """Let the servers go; queued and running requests are lost."""
        if self._closed:
            return
        self._closed = True
        try:
            self._link.call(self._hang_up(), CLOSING_SECONDS)
        finally:
            self._link.close()

    async def _hang_up(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*(s.client.aclose() for s in self._pool.servers), return_exceptions=True)

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("the engine is closed; start a new one")

    def _forget(self, request: str) -> None:
        self._live.pop(request, None)
        self._tasks.pop(request, None)

    # ---- on the event loop -------------------------------------------------------------------------------------

    async def _serve(self, live: Live) -> None:
        """A request to its end."""
        try:
            stop, error, lost = await self._attempts(live)
        except asyncio.CancelledError:
            stop, error, lost = StopReason.CANCELLED, "", 0
        except Exception as error_:  # our own fault must not leave the caller waiting
            stop, error, lost = StopReason.FAILED, f"engine: {type(error_).__name__}: {error_}", len(live.ids) - live.sent
        with self._news:
            if stop is StopReason.FAILED:
                live.ids, live.logprobs = live.ids[: live.sent], live.logprobs[: live.sent]
            live.stop, live.error, live.lost = stop, error, lost
            self._news.notify_all()

    async def _attempts(self, live: Live) -> tuple[StopReason, str, int]:
        """(why it ended, error, tokens lost by the attempt that ended it)."""
        fault = Fault(ABORTED, "it was cancelled before it began")
        for attempt in range(self.settings.attempts):
            if attempt:
                await asyncio.sleep(self._pause(attempt))
            if live.cancelled:
                break
            try:
                server = await self._pool.lease(live.affinity, live.request.priority)
            except Fault as error:
                self._tally.add(error.kind)
                return StopReason.FAILED, str(error), 0
            try:
                live.begin(self._name(), server, self._version)
                with self._news:
                    running = sum(s.live for s in self._pool.servers)
                    self._counts["live_peak"] = max(self._counts["live_peak"], running)
                return self._ended(live, await self._attempt(live, server)), "", 0
            except Fault as error:
                fault = error
                if self._faulted(live, server, error):
                    return StopReason.FAILED, str(error), len(live.ids) - live.sent
            finally:
                live.server = None
                self._settle(live)
                self._pool.release(server)
        if live.cancelled:
            return StopReason.CANCELLED, "", 0
        return StopReason.FAILED, f"{fault}, after {self.settings.attempts} attempts", 0

    def _ended(self, live: Live, part: Part) -> StopReason:
        if live.cancelled and part.finish == "abort":
            return StopReason.CANCELLED
        if part.finish == "abort":
            raise Fault(ABORTED, "the server ended it unasked")
        found = live.ending(part)
        if not isinstance(found, StopReason):
            raise Fault(ENDING, found)
        return found

    def _faulted(self, live: Live, server: Server, fault: Fault) -> bool:
        """Count it; whether it is final, because of its kind or because tokens of the attempt are already handed out."""
        if fault.kind in (CONNECT, STATUS, VERSION):
            self._pool.doubt(server, str(fault))
        with self._news:
            final = not fault.again or live.sent > 0
            if final:
                self._tally.add(fault.kind)
                return True
            self._tally.add(fault.kind, len(live.ids))
            live.ids, live.logprobs = [], []
        return False

    def _arrived(self, live: Live, server: Server, part: Part) -> None:
        """Tokens of the present attempt, checked."""
        with self._news:
            live.add(part)
            server.known += len(part.ids)
            self._counts["decoded"] += len(part.ids)
            self._news.notify_all()

    def _settle(self, live: Live) -> None:
        """The context of an attempt that is over."""
        with self._news:
            if live.prompt:
                computed = live.prompt - live.cached
                self._counts["prefilled"] += computed
                self._counts["cached"] += live.cached
                self._prefilled.append(Prefilled(live.request.id, computed, live.cached))

    async def _cancel(self, live: Live) -> None:
        """End it: through the server, which gives what it has; by cutting the connection where that does not work."""
        live.cancelled = True
        for turn in range(CANCEL_TURNS):
            if live.over():
                return
            if (server := live.server) is None or turn == CANCEL_TURNS - 2:
                self._tasks[live.request.id].cancel()  # it waits for a server or a second attempt, or nobody listens
            else:
                try:  # again and again: the server may not have the request yet
                    await self._abort(live, server)
                except Fault as fault:
                    self._tally.add(fault.kind)
            for _ in range(25):
                if live.over():
                    return
                await asyncio.sleep(0.01)
        with self._news:
            live.stop = live.stop or StopReason.CANCELLED  # it had not begun

    def _name(self) -> str:
        """A name that no other request has."""
        self._numbered += 1
        return f"{self._names}-{self._numbered}"

    def _pause(self, attempt: int) -> float:
        return float(min(self.settings.pause * 2 ** (attempt - 1), LONGEST_PAUSE))

    def _patience(self, calls: int) -> float:
        """Seconds within which so many calls to each server have been answered or given up."""
        one = self.settings.attempts * (self.settings.seconds + LONGEST_PAUSE)
        return calls * len(self._pool.servers) * one + QUIET_SECONDS + self.settings.outage

    async def patient(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask again, a bounded number of times, what may be asked twice. Raises the last Fault."""
        for attempt in range(1, self.settings.attempts + 1):
            try:
                return await ask()
            except Fault as fault:
                self._tally.add(fault.kind)
                if attempt == self.settings.attempts or not fault.again:
                    raise
            await asyncio.sleep(self._pause(attempt))
        raise AssertionError("unreachable")

    async def _leased(self, affinity: str, ask: Callable[[Server], Coroutine[Any, Any, T]]) -> T | None:
        """`ask` of a server that is up; None when attempts run out."""
        for attempt in range(self.settings.attempts):
            if attempt:
                await asyncio.sleep(self._pause(attempt))
            try:
                server = await self._pool.lease(affinity)
            except Fault as fault:
                self._tally.add(fault.kind)
                return None
            try:
                return await ask(server)
            except Fault as fault:
                self._tally.add(fault.kind)
                if fault.kind in (CONNECT, STATUS, VERSION):
                    self._pool.doubt(server, str(fault))
                if not fault.again:
                    return None
            finally:
                self._pool.release(server)
        return None

    async def _reconcile(self) -> None:
        """Find tokens that servers sampled and no reply brought."""
        for server in self._pool.servers:
            if not server.up:
                continue
            end = monotonic() + QUIET_SECONDS
            try:
                counters = await self.patient(server.counters)
                while not counters.quiet and monotonic() < end:
                    await asyncio.sleep(0.02)
                    counters = await self.patient(server.counters)
            except Fault as fault:
                self._pool.doubt(server, str(fault))
                continue
            if counters.boot != server.boot:
                self._pool.doubt(server, "it was started anew")
                continue
            unseen = counters.generated - server.base - server.known
            server.known += unseen
            if unseen < 0:
                self._tally.add(COUNTERS)
            elif unseen:
                with self._news:
                    self._counts["decoded"] += unseen
                self._tally.lose(UNSEEN, unseen)

    async def _start(self) -> None:
        """Admit every server. Raises ConfigError when one is another kind of thing, ServersLost when one does not answer."""
        for server in self._pool.servers:
            try:
                await self._admit(server)
            except Fault as fault:
                raise ServersLost(
                    f"the server at {server.url} cannot be used: {fault}",
                    "start it (docs/engines.md says how), or correct engine.http.urls",
                ) from fault
            self._pool.admitted(server)
