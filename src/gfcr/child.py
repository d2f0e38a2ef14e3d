"""A child process of our own with a pipe to it: work that may hang or die runs there.

Invariants: a child (with whatever it started) dies with `kill`, with this object and with this process, however that ends;
Ctrl-C reaches this process only; nothing of the parent's threads, `__main__` or open files is copied, and no helper process
stays behind.

A plain subprocess, not multiprocessing: its forkserver and resource tracker would outlive a killed run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Pipe


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
        self._finalizer = weakref.finalize(self, _kill, self.process)

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

    def kill(self) -> None:
        self._finalizer()
        self.pipe.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def die_with_parent() -> None:
    """Linux ends this process when its parent ends, however it ends."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
