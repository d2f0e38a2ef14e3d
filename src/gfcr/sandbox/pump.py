"""Reads what comes out of judged processes, with every limit in hand.

Invariants: every wait has a deadline; a broken limit ends the whole sandbox at once; what comes out is bytes that are counted and cut,
never executed; a process that judged code leaves behind with a pipe in hand makes nobody wait.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

from gfcr.sandbox.life import Life
from gfcr.sandbox.settings import Limits

_LOOK_SECONDS = 0.05
"""How often memory is looked at."""


SPARE = 64
"""Where the output is not the answer (calls, test scripts), what exceeds the limit is dropped, up to this many times the limit."""


class Run:
    """A judged process and what has come out of it so far."""

    def __init__(
        self,
        life: Life,
        control: socket.socket,
        limits: Limits,
        pipes: tuple[int, int],
        channel: socket.socket | None,
        spare: int,
    ) -> None:
        """`pipes`: standard output and error; `channel`: our end of its channel; `spare`: KiB of output over the limit that are dropped
        before it breaks one."""
        out, err = pipes
        self.life, self.control, self.limits, self.channel = life, control, limits, channel
        self.pipes = {out: bytearray(), err: bytearray()}
        self.out, self.err = self.pipes.values()
        self.open = [out, err]
        self.frames: deque[bytes] = deque()
        """Messages that came over the channel."""
        self.cut_off = False
        """Whether the channel was closed from the other side."""
        self.code: int | None = None
        """Exit code, or minus the signal, once it has ended."""
        self.breach: str | None = None
        """The limit it broke, or that its sandbox was lost; the sandbox is dead then."""
        self.began = False
        """Whether judged code has run."""
        self.ours = False
        """Whether the breach is the sandbox's own."""
        self.kilobytes, self.seconds = 0, 0.0
        """Largest resident set of the process, and its processor time."""
        self._spare = spare
        self._dropped = 0
        self._raw, self._told, self._going = bytearray(), bytearray(), bytearray()
        for fd in self.open:
            os.set_blocking(fd, False)
        if channel is not None:
            channel.setblocking(False)

    @property
    def over(self) -> bool:
        return self.code is not None or self.breach is not None

    def fds(self) -> list[int]:
        lines = [self.control.fileno()]
        if self.channel is not None and not self.cut_off:
            lines.append(self.channel.fileno())
        return [*self.open, *lines] if not self.over else []

    def send(self, data: bytes) -> None:
        """Send a frame over the channel, as fast as the other side takes it."""
        self._going += len(data).to_bytes(4, "big") + data

    def wants(self, fd: int) -> int:
        """What to wait for on one of `fds`."""
        mine = self.channel is not None and fd == self.channel.fileno()
        return select.POLLIN | (select.POLLOUT if mine and self._going else 0)

    def write(self) -> None:
        assert self.channel is not None
        try:
            del self._going[: self.channel.send(self._going[: 1 << 16])]
        except BlockingIOError:
            return
        except OSError:
            self._going.clear()
            self.cut_off = True

    def read(self, fd: int) -> None:
        if fd in self.pipes:
            self._read_pipe(fd)
        elif fd == self.control.fileno():
            self._read_control()
        else:
            self._read_channel()

    def break_(self, why: str, ours: bool = False) -> None:
        self.breach, self.ours = self.breach or why, ours
        self.life.end()
        self._drain()

    def look(self) -> None:
        """Break the run if its processes hold more memory than allowed."""
        if self.life.resident() > self.limits.memory_mb << 20:
            self.break_(f"its processes hold more than {self.limits.memory_mb} MiB together")

    def _read_pipe(self, fd: int) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._shut(fd)
            return
        room = (self.limits.output_kb << 10) - len(self.out) - len(self.err)
        self.pipes[fd] += data[: max(0, room)]
        self._dropped += max(0, len(data) - room)
        if self._dropped > self._spare << 10 and not self.over:
            self.break_(f"more than {self.limits.output_kb + self._spare} KiB of output")

    def _read_control(self) -> None:
        try:
            data = self.control.recv(4096)
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            data = b""
        if not data:
            self.break_("the sandbox ended by itself", ours=True)
            return
        self._told += data
        while len(self._told) >= 4 and len(self._told) >= 4 + (n := int.from_bytes(self._told[:4], "big")):
            word, _, rest = self._told[4 : 4 + n].decode(errors="replace").partition(" ")
            del self._told[: 4 + n]
            if word == "began":
                self.began = True
            elif word == "done":
                code, kilobytes, seconds = rest.split()
                self.code, self.kilobytes, self.seconds = int(code), int(kilobytes), float(seconds)
                self._read_channel()
                self._drain()
                if not self.began:
                    self.break_(f"it did not begin: {self.err[-300:].decode(errors='replace')}", ours=True)
            elif word == "error":
                self.break_(rest, ours=True)

    def _read_channel(self) -> None:
        while self.channel is not None and not self.cut_off:
            try:
                data = self.channel.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.cut_off = True
                return
            self._raw += data
            while len(self._raw) >= 4:
                length = int.from_bytes(self._raw[:4], "big")
                if length > self.limits.output_kb << 10:
                    self.cut_off = True
                    self._raw.clear()
                    if not self.over:
                        self.break_("something that is no answer came on the channel")
                    return
                if len(self._raw) < 4 + length:
                    break
                self.frames.append(bytes(self._raw[4 : 4 + length]))
                del self._raw[: 4 + length]

    def _drain(self) -> None:
        """Take what is left in the pipes, whose writers are dead, and close them."""
        for fd in list(self.open):
            while fd in self.open:
                before = len(self.out) + len(self.err)
                self._read_pipe(fd)
                if len(self.out) + len(self.err) == before:
                    self._shut(fd)

    def _shut(self, fd: int) -> None:
        if fd in self.open:
            self.open.remove(fd)
            os.close(fd)

    def close(self) -> None:
        for fd in list(self.open):
            self._shut(fd)

    def __del__(self) -> None:
        self.close()


def pump(runs: Sequence[Run], seconds: float, until: Callable[[], bool]) -> bool:
    """Serve the runs' pipes until `until()` or for `seconds`; whether `until()` holds. Does not end what runs out of time."""
    now = time.monotonic()
    deadline, look = now + seconds, now + _LOOK_SECONDS
    while not until():
        now = time.monotonic()
        if now >= deadline:
            return False
        if now >= look:
            started = now
            for run in runs:
                if not run.over:
                    run.look()
            look = time.monotonic() + max(_LOOK_SECONDS, 10 * (time.monotonic() - started))
            continue
        poller = select.poll()
        owner: dict[int, Run] = {}
        for run in runs:
            for fd in run.fds():
                owner[fd] = run
                poller.register(fd, run.wants(fd))
        if not owner:
            return until()
        for fd, event in poller.poll(1000 * max(0.0, min(deadline, look) - now)):
            if event & select.POLLOUT and not owner[fd].over:
                owner[fd].write()
            if event & ~select.POLLOUT and not owner[fd].over:
                owner[fd].read(fd)
    return True
