"""Requests waiting for a slot. Invariant: they leave in order of priority, then submission; a fork waits for the step in
which its running parent's prefix is stored, and holds back nobody else."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from gfcr.engine.embedded.streams import Stream


class Queue:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Stream]] = []
        self._waiting: dict[str, Stream] = {}
        self._wanted: dict[str, int] = {}
        """Parent -> queued forks of it."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def get(self, name: str) -> Stream | None:
        return self._waiting.get(name)

    def wanted(self, name: str) -> bool:
        """Whether a queued fork needs this request's prefix."""
        return name in self._wanted

    def push(self, stream: Stream) -> None:
        self._count += 1
        heappush(self._heap, (stream.request.priority, self._count, stream))
        self._waiting[stream.request.id] = stream
        if stream.request.fork_of is not None:
            self._wanted[stream.request.fork_of] = self._wanted.get(stream.request.fork_of, 0) + 1

    def remove(self, name: str) -> Stream | None:
        """Take a request out; its heap entry is skipped later."""
        stream = self._waiting.pop(name, None)
        if stream is not None and (parent := stream.request.fork_of) is not None:
            self._wanted[parent] -= 1
            if not self._wanted[parent]:
                del self._wanted[parent]
        return stream

    def wave(self, free: int, running: int, room: int | None, ready: Callable[[Stream], bool]) -> list[Stream]:
        """Take the next streams to admit: at most `free`, together at most `room` positions (None = any).

        Empty while too few slots are free to be worth a prefill pass, unless nothing runs.
        """
        slots = free + running
        if free < 1 or (running and free < min(len(self._waiting), max(1, slots // 8))):
            return []
        wave: list[Stream] = []
        later: list[tuple[int, int, Stream]] = []
        while self._heap and len(wave) < free:
            entry = heappop(self._heap)
            stream = entry[2]
            if self._waiting.get(stream.request.id) is not stream:
                continue  # cancelled
            if not ready(stream):
                later.append(entry)
                continue
            if room is not None:
                room -= len(stream.context) + stream.end
                if room < 0:
                    later.append(entry)
                    break
            wave.append(stream)
        for entry in later:
            heappush(self._heap, entry)
        for stream in wave:
            self.remove(stream.request.id)
        return wave
