"""An event loop in a thread of its own, for callers that are not asynchronous. Invariant: nothing waits on it without a bound."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
CLOSING_SECONDS = 10.0


class Link:
    """See the module."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def spawn(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start it; its result or error is in the future."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Its result. Raises TimeoutError, after which it is cancelled, and what it raises."""
        future = self.spawn(work)
        try:
            return future.result(seconds)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End everything that runs on it, then the thread."""
        if not self._thread.is_alive():
            return
        try:
            self.call(self._cancel_all(), CLOSING_SECONDS)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(CLOSING_SECONDS)

    @staticmethod
    async def _cancel_all() -> None:
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
