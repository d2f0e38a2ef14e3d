"""Verifiers that may hang or die, each in worker processes that can be killed (gfcr.filter.pool).

Invariants: one deadline per call, and its clock starts when a process starts the work, never while the call waits for one; a call that
hangs, kills its process, raises or returns rubbish is UNSCORABLE with the evidence, and the next call gets a fresh process; verdicts of
many calls come in the order of the calls, whichever ended first; processes (with whatever they started) die with `close`, with the
wrapper, and with this process (gfcr.child).
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Literal

from gfcr.errors import ConfigError
from gfcr.filter.asking import Item
from gfcr.filter.pool.cache import VerdictCache
from gfcr.filter.pool.pool import Pool
from gfcr.filter.pool.worker import Answer, Broken, Late, Limits
from gfcr.filter.slots import StepScorer, Verifier
from gfcr.types import Status, StopReason, Task, Verdict

__all__ = ["Broken", "Item", "Killable", "KillableSteps", "KillableVerifier", "Limits", "contained"]
WINDOW = 16
"""Calls per process that `stream` keeps on their way."""


class Killable:
    """Calls of one object's methods, each in a worker process; up to `workers` at once, from threads and coroutines alike."""

    bounded = True

    def __init__(self, inner: Any, seconds: float, workers: int = 1, limits: Limits | None = None) -> None:
        """`limits`: what a process may take; `seconds` of one call stands apart."""
        self.name, self.seconds, self.workers = str(inner.name), seconds, workers
        try:
            payload = pickle.dumps(inner)
        except Exception as error:
            raise ConfigError(
                f"{self.name!r} cannot be sent to a process of its own: {error}",
                "keep only data on it and define its class in a module, or declare `bounded = True` when it can never hang",
            ) from error
        self.limits = replace(limits or Limits(), seconds=seconds)
        self.pool = Pool(payload, self.limits, workers)

    def call(self, method: str, *args: Any) -> Any:
        """The method's answer. Raises Broken: it hung and was killed, its process died, it raised."""
        return self.pool.submit(method, args).result().value

    def start(self) -> None:
        """Start the first process now, so that what cannot work there is said before the first call. Raises ConfigError."""
        try:
            self.pool.start()
        except Broken as error:
            raise ConfigError(
                f"{self.name} does not work in a process of its own: {error}",
                'what it needs must be importable there; a script that starts a run does so under `if __name__ == "__main__":`',
            ) from None

    def close(self) -> None:
        """End the processes; a later call starts new ones."""
        self.pool.close()


class KillableVerifier(Killable):
    """A verifier or gate that cannot hang the run. `judge` for one answer, `judge_many` for a wave, `stream` for a file, `judge_async`
    for coroutines."""

    def __init__(
        self,
        inner: Verifier,
        seconds: float,
        workers: int = 1,
        limits: Limits | None = None,
        cache: int = 0,
        late: Literal["unscorable", "wrong"] = "unscorable",
    ) -> None:
        """`cache`: verdicts kept; `late`: what a call is that was killed at its deadline."""
        super().__init__(inner, seconds, workers, limits)
        self.version, self.late = inner.version, late
        self.cost = getattr(inner, "cost", None)
        self.cache = VerdictCache(inner, cache)

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        return self.judge_many([(task, text, stop)])[0]

    def judge_many(self, items: Sequence[Item]) -> list[Verdict]:
        """A verdict for each item, in order. Equal answers are judged once; where that gave no verdict, each by itself."""
        keys = [self.cache.key(*item) for item in items]
        first: dict[bytes, int] = {}
        found: list[Verdict | None] = [None] * len(items)
        for repeated in (False, True):  # first one of each kind, then what the cache still does not know
            ask = []
            for i, key in enumerate(keys):
                if found[i] is not None or (not repeated and key is not None and first.setdefault(key, i) != i):
                    continue
                if (known := self.cache.get(key)) is not None:
                    found[i] = known
                else:
                    ask.append(i)
            futures = [self._submit(items[i]) for i in ask]
            for i, future in zip(ask, futures):
                verdict = found[i] = self._verdict(future)
                self.cache.put(keys[i], verdict)
        return [verdict for verdict in found if verdict is not None]

    def stream(self, items: Iterable[Item | Verdict], window: int | None = None) -> Iterator[Verdict]:
        """Verdicts in the order of the items, which are read only `window` ahead (WINDOW per process by default); a verdict among them
        goes through as it is."""
        ahead: deque[Future[Answer] | Broken | Verdict] = deque()
        source = iter(items)
        for item in itertools.islice(source, window or WINDOW * self.workers):
            ahead.append(self._submit(item))
        while ahead:
            yield self._verdict(ahead.popleft())
            for item in itertools.islice(source, 1):
                ahead.append(self._submit(item))

    async def judge_async(self, task: Task, text: str, stop: StopReason) -> Verdict:
        """For any number of coroutines at once; one that is cancelled before its turn is never judged."""
        key = self.cache.key(task, text, stop)
        if (known := self.cache.get(key)) is not None:
            return known
        try:
            answer = await asyncio.wrap_future(self.pool.submit("judge", (task, text, stop), wait=False))
        except Broken as broken:
            return self._broken(broken)
        verdict = self._checked(answer)
        self.cache.put(key, verdict)
        return verdict

    def _submit(self, item: Item | Verdict) -> Future[Answer] | Broken | Verdict:
        try:
            return item if isinstance(item, Verdict) else self.pool.submit("judge", item)
        except Broken as broken:
            return broken

    def _verdict(self, future: Future[Answer] | Broken | Verdict) -> Verdict:
        if isinstance(future, Verdict):
            return future
        try:
            return self._broken(future) if isinstance(future, Broken) else self._checked(future.result())
        except Broken as broken:
            return self._broken(broken)

    def _checked(self, answer: Answer) -> Verdict:
        verdict = answer.value
        if not isinstance(verdict, Verdict):
            evidence = f"returned {type(verdict).__name__}, not a Verdict"
            return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=evidence, seconds=answer.seconds)
        return verdict if verdict.seconds else replace(verdict, seconds=answer.seconds)

    def _broken(self, broken: Broken) -> Verdict:
        if isinstance(broken, Late) and self.late == "wrong":
            evidence = f"{broken} (counted as wrong by the recipe)"
            return Verdict(self.name, self.version, Status.SCORED, 0.0, False, evidence, broken.seconds)
        return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=str(broken), seconds=broken.seconds)


class KillableSteps(Killable):
    """A step scorer that cannot hang the run; a call without an answer raises Broken."""

    def __init__(self, inner: StepScorer, seconds: float, workers: int = 1, limits: Limits | None = None) -> None:
        super().__init__(inner, seconds, workers, limits)

    def score(self, task: Task, text: str, stop: StopReason) -> Sequence[tuple[int, int, float | None]]:
        return list(self.call("score", task, text, stop))

    def score_many(self, items: Sequence[Item]) -> list[Sequence[tuple[int, int, float | None]] | Exception]:
        """The scores of each item in order, or what went wrong."""
        futures = [self.pool.submit("score", item) for item in items]
        out: list[Sequence[tuple[int, int, float | None]] | Exception] = []
        for future in futures:
            try:
                out.append(list(future.result().value))
            except Exception as error:
                out.append(error)
        return out


def contained(
    judge: Any,
    seconds: float,
    workers: int = 1,
    limits: Limits | None = None,
    cache: int = 0,
    late: Literal["unscorable", "wrong"] = "unscorable",
) -> Any:
    """`judge` itself when its class declares that it cannot hang (`bounded = True`), else the same in worker processes."""
    if getattr(judge, "bounded", False):
        return judge
    if hasattr(judge, "score"):
        return KillableSteps(judge, seconds, workers, limits)
    return KillableVerifier(judge, seconds, workers, limits, cache, late)
