"""Sandboxes started in advance. Each is used for one answer and thrown away: only the start is taken out of the waiting time.

Invariants: one keeper thread per kind of sandbox starts them, since a sandbox ends with the thread that started it; none is left
when this process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
from collections.abc import Callable

from gfcr.sandbox.box import Box
from gfcr.sandbox.settings import Limits, Sandbox


class Stock:
    """Keeps `sandbox.warm` sandboxes ready."""

    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        """`limits`: of their scratch space; the others come with `take`."""
        self.sandbox, self.limits = sandbox, limits
        self._ready: queue.Queue[Box | Exception] = queue.Queue(sandbox.warm)
        self._over = False
        self._keeper = threading.Thread(target=self._keep, name="gfcr sandboxes", daemon=True)
        self._keeper.start()

    def take(self, limits: Limits | None = None) -> Box:
        """A started sandbox, the caller's to close, for jobs under these limits. Raises SandboxError."""
        found = self._ready.get()
        if isinstance(found, Exception):
            raise found
        found.limits = limits or self.limits
        return found

    def close(self) -> None:
        """End those that are ready."""
        self._over = True
        while self._keeper.is_alive():
            with contextlib.suppress(queue.Empty):
                while True:
                    found = self._ready.get_nowait()
                    if isinstance(found, Box):
                        found.close()
            self._keeper.join(0.01)
        with contextlib.suppress(queue.Empty):
            while True:
                found = self._ready.get_nowait()
                if isinstance(found, Box):
                    found.close()

    def _keep(self) -> None:
        while not self._over:
            try:
                self._ready.put(Box(self.sandbox, self.limits))
            except Exception as error:
                self._ready.put(error)


_STOCKS: dict[tuple[int, Sandbox, int], Stock] = {}
_LOCK = threading.Lock()


def stock(sandbox: Sandbox) -> Callable[[Sandbox, Limits], Box]:
    """What starts a sandbox: from the stock where one is kept, else a new one."""
    return _taken if sandbox.warm else Box


def _taken(sandbox: Sandbox, limits: Limits) -> Box:
    key = (os.getpid(), sandbox, limits.scratch_mb)  # a fork has none of its parent's
    with _LOCK:
        if key not in _STOCKS:
            _STOCKS[key] = Stock(sandbox, limits)
        found = _STOCKS[key]
    return found.take(limits)


def close_all() -> None:
    """End all stocks of this process."""
    with _LOCK:
        for key in [key for key in _STOCKS if key[0] == os.getpid()]:
            _STOCKS.pop(key).close()


atexit.register(close_all)
