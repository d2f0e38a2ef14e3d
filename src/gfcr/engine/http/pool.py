"""Which server gets a request, and which servers get none.

Invariants: a server works only after it was admitted (proven to answer with the published weights), again after every outage; requests
wait in order of priority, then of submission; siblings (one path root) go to one server while it is not much busier than the others;
every outage has an end: the server is back and proven within `outage` seconds, or given up.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b

from gfcr.engine.http.faults import CONNECT, NO_SERVER, WEIGHTS, Fault, Tally
from gfcr.engine.http.server import Server

LONGEST_PAUSE = 5.0
LOOK_SECONDS = 0.5
"""How often a waiting request looks whether there is still hope."""


class Pool:
    """Lives on the event loop."""

    def __init__(
        self, servers: Sequence[Server], room: int, outage: float, tally: Tally, admit: Callable[[Server], Awaitable[None]]
    ) -> None:
        """`room`: requests one server works on at once; `admit`: proves a server, or raises Fault."""
        self.servers, self.room, self.outage, self.tally, self.admit = servers, room, outage, tally, admit
        self._waiting: list[tuple[int, int, asyncio.Future[Server], str]] = []
        self._tickets = 0
        self._recovering: dict[str, asyncio.Task[None]] = {}

    async def lease(self, affinity: str, priority: int = 0) -> Server:
        """A server that is up and has room; give it back with `release`. Raises Fault when none is left, or comes back in time."""
        future: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
        self._tickets += 1
        heapq.heappush(self._waiting, (priority, self._tickets, future, affinity))
        self._grant()
        try:
            while not future.done():  # ends: what is up finishes its requests, what is down is given up in time
                await asyncio.wait([future], timeout=LOOK_SECONDS)
                if not future.done() and all(s.given_up for s in self.servers):
                    raise Fault(NO_SERVER, "; ".join(f"{s.url}: {s.why}" for s in self.servers), again=False)
            return future.result()
        except BaseException:
            if future.done() and not future.cancelled():
                self.release(future.result())
            future.cancel()
            raise

    def release(self, server: Server) -> None:
        server.live -= 1
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            ready = [s for s in self.servers if s.up and s.live < self.room]
            if self._waiting[0][2].done():  # nobody waits for it any more
                heapq.heappop(self._waiting)
                continue
            if not ready:
                return
            _, _, future, affinity = heapq.heappop(self._waiting)
            server = choose(ready, affinity, self.room)
            server.live += 1
            future.set_result(server)

    def doubt(self, server: Server, why: str) -> None:
        """It may be gone, or another life of it: no work until it is proven again."""
        server.up, server.why = False, why
        if server.url not in self._recovering and not server.given_up:
            task = asyncio.get_running_loop().create_task(self._recover(server))
            self._recovering[server.url] = task
            task.add_done_callback(lambda _: self._recovering.pop(server.url, None))

    def admitted(self, server: Server) -> None:
        server.up, server.why, server.given_up = True, "", False
        self._grant()

    async def _recover(self, server: Server) -> None:
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + self.outage, 0.0
        while loop.time() < end:
            await asyncio.sleep(pause)
            pause = min(max(0.1, 2 * pause), LONGEST_PAUSE)
            if await self.proven(server):
                return
            if server.given_up:
                return
        server.given_up = True

    async def proven(self, server: Server) -> bool:
        """Whether it is there and was admitted; `given_up` is set where another try cannot help."""
        try:
            await server.ask("GET", "/v1/models")  # once: a server that is not there is not asked the rest
        except Fault as fault:
            server.why = str(fault)
            if fault.kind != CONNECT:  # that was counted when it went
                self.tally.add(fault.kind)
            return False
        try:
            await self.admit(server)
        except Fault as fault:  # counted where it was found
            server.why = str(fault)
            if fault.kind == WEIGHTS:
                self.tally.add(fault.kind)
                server.given_up = True
            return False
        self.admitted(server)
        return True


def choose(ready: Sequence[Server], affinity: str, room: int) -> Server:
    """The server that `affinity` prefers (rendezvous hashing: others keep theirs when one goes), unless it has more to do than the
    least busy one by an eighth of the room."""
    least = min(ready, key=lambda s: s.live)
    liked = max(ready, key=lambda s: blake2b(f"{affinity}\x1f{s.url}".encode(), digest_size=8).digest())
    return liked if liked.live <= least.live + max(1, room // 8) else least
