"""A child process of our own with a pipe to it: work that may hang or die runs there.

Invariants: a child (with whatever it started in its own session) dies with `kill`, with this object and with this process,
however that ends, and not with the thread that started it; a fork of this process ends none of its children; Ctrl-C reaches
this process only; nothing of the parent's threads, `__main__` or open files is copied, and no helper process stays behind.

A plain subprocess, not multiprocessing: its forkserver and resource tracker would outlive a killed run. What a killed process
cannot do itself, one guard process does for it (gfcr.guard).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Pipe
from pathlib import Path


class Child:
    """One process that runs `serve(pipe's handle, *numbers)` of a module."""

    def __init__(self, module: str, numbers: Sequence[int] = (), share: Sequence[int] = ()) -> None:
        """`module` is imported in the child under our `sys.path`; `share`: file descriptors it inherits under their numbers."""
        self.pipe, theirs = Pipe()
        boot = f"import sys; from {module} import serve; serve(*map(int, sys.argv[1:]))"
        self.process = subprocess.Popen(
            [sys.executable, "-c", boot, str(theirs.fileno()), *map(str, numbers)],
            pass_fds=[theirs.fileno(), *share],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._finalizer = weakref.finalize(self, _kill, self.process, os.getpid())
        _GUARD.add(self.process.pid)  # before it is given work: what has none ends when its pipe closes

    def bound_sending(self, seconds: float) -> None:
        """From now on `pipe.send` to a child that reads nothing raises BlockingIOError after this long; it never hangs."""
        with socket.socket(fileno=os.dup(self.pipe.fileno())) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))

    def fate(self) -> str:
        """How the process ended, in words; ends it if it has not."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5.0)  # a busy machine takes a while to end one
        code = self.process.poll()
        self.kill()
        return (
            "closed its pipe"
            if code is None
            else f"ended with exit code {code}"
            if code >= 0
            else f"was killed by signal {-code}"
        )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        """Kill the process and leave the pipe to whoever reads it: it sees the end."""
        self._finalizer()

    def kill(self) -> None:
        self._finalizer()
        self.pipe.close()


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    """End the process and everything in its session."""
    if os.getpid() != owner:
        return  # a fork's copy
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _GUARD.forget(process.pid)  # while the number is still this process's
    process.wait()


class _Guard:
    """This process's guard (gfcr.guard): started with the first child, and again should it be lost."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)
        atexit.register(self._stop)

    def reset(self) -> None:
        """There is no guard: at first, and in a fork, whose children are its own."""
        self._lock = threading.RLock()  # a child may be collected while one is added
        self._groups: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        """From now on the group is killed when this process ends, however it ends."""
        with self._lock:
            self._groups.add(group)
            if not self._say(group):
                self._start()

    def forget(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            self._say(-group)

    def _start(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py")), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._say(*self._groups)

    def _say(self, *numbers: int) -> bool:
        """Whether there is a guard and it was told."""
        if self._process is None or self._process.stdin is None or self._process.poll() is not None:
            return False
        try:
            os.write(self._process.stdin.fileno(), "".join(f"{number}\n" for number in numbers).encode())
        except OSError:  # it is gone, or has stopped reading
            return False
        return True

    def _stop(self) -> None:
        """This process ends: so does its guard, and with it whatever is still there."""
        with self._lock, contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
                self._process.wait(5.0)


_GUARD = _Guard()
