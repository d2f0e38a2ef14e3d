"""Several worker processes and the queue before them.

Invariants: calls are taken up in the order they came, each by the next free process; a call that never started, or that ended a process
which had served others before it, is asked once more of a fresh process, so what it gives does not depend on what went before; every
future ends; the queue is bounded for callers that can wait (`submit` blocks); after `close`, after the pool is forgotten, and after
this process, no worker is left.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import weakref
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from gfcr.filter.pool.worker import Answer, Broken, Limits, Lost, NotTaken, Worker

BACKLOG = 4_096
"""Calls that wait for a process before `submit` blocks."""
BACKLOG_BYTES = 64 * 2**20
"""The same for the size of what waits, pickled."""
JOIN_SECONDS = 10.0
"""Longest `close` waits for a thread of its own to see that its process is dead."""


@dataclass(slots=True, eq=False)
class _Call:
    request: bytes
    future: Future[Answer]


@dataclass(eq=False)
class _Inside:
    """What the pool's threads share; it holds no reference to the pool, so that a forgotten pool ends."""

    payload: bytes
    limits: Limits
    change: threading.Condition = field(default_factory=threading.Condition)
    queue: deque[_Call] = field(default_factory=deque)
    threads: list[threading.Thread] = field(default_factory=list)
    workers: set[Worker] = field(default_factory=set)
    bytes: int = 0
    """Size of what is in `queue`."""
    busy: int = 0
    """Threads that are at a call."""
    closed: bool = False

    def next(self) -> _Call | None:
        """The next call; None when the pool is closed."""
        with self.change:
            while not self.queue and not self.closed:
                self.change.wait()
            if self.closed:
                return None
            self.busy += 1
            call = self.queue.popleft()
            self.bytes -= len(call.request)
            self.change.notify_all()  # there is room for one more
            return call

    def done(self) -> None:
        """A thread is free again; said before its caller hears of the answer, whose next call then needs no further process."""
        with self.change:
            self.busy -= 1

    def start(self) -> Worker:
        """A fresh process. Raises Broken."""
        worker = Worker(self.payload, self.limits)
        with self.change:
            self.workers.add(worker)
            closed = self.closed
        if closed:
            self.drop(worker)
            raise Broken("the pool was closed")
        return worker

    def drop(self, worker: Worker) -> None:
        with self.change:
            self.workers.discard(worker)
        worker.kill()


class Pool:
    """Calls of one object's methods in up to `workers` processes, from any number of threads and coroutines."""

    def __init__(self, payload: bytes, limits: Limits, workers: int = 1, backlog: int = BACKLOG) -> None:
        """`payload`: the object, pickled."""
        self.workers, self._payload, self._limits, self._backlog = workers, payload, limits, backlog
        self._inside = _Inside(payload, limits)
        self._end = weakref.finalize(self, _shut, self._inside)

    def submit(self, method: str, args: tuple[Any, ...], wait: bool = True) -> Future[Answer]:
        """The call's future: an Answer, or Broken. Blocks while BACKLOG calls (or BACKLOG_BYTES) wait, unless not `wait` (a
        coroutine's way: it waits for its own future). A pool that was closed starts again. Raises Broken for arguments that cannot travel."""
        try:
            request = pickle.dumps((method, args))
        except Exception as error:
            raise Broken(f"the call cannot be sent to a process of its own: {type(error).__name__}: {error}") from None
        call = _Call(request, Future())
        while True:
            inside = self._open()
            with inside.change:
                while wait and not inside.closed and self._full(inside):
                    inside.change.wait()
                if inside.closed:
                    continue
                inside.queue.append(call)
                inside.bytes += len(request)
                if len(inside.threads) - inside.busy < len(inside.queue) and len(inside.threads) < self.workers:
                    thread = threading.Thread(target=_work, args=(inside,), name="gfcr-pool", daemon=True)
                    inside.threads.append(thread)
                    thread.start()
                inside.change.notify_all()
                return call.future

    def start(self) -> None:
        """Start one process now and keep it. Raises Broken when that does not work."""
        inside = self._open()
        worker = inside.start()
        with inside.change:
            thread = threading.Thread(target=_work, args=(inside, worker), name="gfcr-pool", daemon=True)
            inside.threads.append(thread)
        thread.start()

    def close(self) -> None:
        """End the processes; calls that wait or run end with Broken. A later call starts new ones."""
        inside = self._inside
        self._end()
        for thread in inside.threads:
            if thread is not threading.current_thread():
                thread.join(JOIN_SECONDS)

    def pids(self) -> list[int]:
        """Of the processes that live."""
        with self._inside.change:
            return [worker.child.process.pid for worker in self._inside.workers if worker.alive]

    def _full(self, inside: _Inside) -> bool:
        return len(inside.queue) >= self._backlog or (bool(inside.queue) and inside.bytes >= BACKLOG_BYTES)

    def _open(self) -> _Inside:
        if self._inside.closed:
            self._inside = _Inside(self._payload, self._limits)
            self._end = weakref.finalize(self, _shut, self._inside)
        return self._inside


def _work(inside: _Inside, worker: Worker | None = None) -> None:
    """One thread: takes calls and has its process answer them."""
    try:
        while (call := inside.next()) is not None:
            if not call.future.set_running_or_notify_cancel():
                inside.done()
                continue
            try:
                for attempt in range(2):
                    if worker is not None and (not worker.alive or worker.spent()):
                        inside.drop(worker)
                        worker = None
                    if worker is None:
                        worker = inside.start()
                    fresh = worker.use.calls == 0
                    try:
                        answer = worker.call(call.request)
                        break
                    except (NotTaken, Lost) as broken:
                        if attempt or (fresh and isinstance(broken, Lost)) or inside.closed:
                            raise
            except Broken as broken:
                inside.done()
                call.future.set_exception(Broken("the pool was closed") if inside.closed else broken)
            except BaseException as error:  # a fault of ours: nobody may wait for ever for it
                inside.done()
                call.future.set_exception(error)
            else:
                inside.done()
                call.future.set_result(answer)
            del call
    finally:
        if worker is not None:
            inside.drop(worker)


def _shut(inside: _Inside) -> None:
    with inside.change:
        inside.closed = True
        waiting, workers = list(inside.queue), list(inside.workers)
        inside.queue.clear()
        inside.change.notify_all()
    for call in waiting:
        if call.future.set_running_or_notify_cancel():
            call.future.set_exception(Broken("the pool was closed"))
    for worker in workers:
        with contextlib.suppress(Exception):
            worker.end()
