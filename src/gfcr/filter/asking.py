"""Asking a gate or verifier about many answers.

Invariants: verdicts come in the order of the answers; what raises or returns rubbish is UNSCORABLE with its error as evidence, never
reward 0; how many are asked at once changes no verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import Any

from gfcr.filter.slots import Verifier
from gfcr.types import Status, StopReason, Task, Verdict

Item = tuple[Task, str, StopReason]
"""What is judged: task, text, how it ended."""
TOGETHER = 64
"""Answers of a file that are asked about together."""


def ask(judge: Verifier, items: Sequence[Item], workers: int = 1, keys: Sequence[str] = ()) -> list[Verdict]:
    """Its verdicts: `judge_many` where it has one; from `workers` threads where it declares `parallel = True`; else one by one. `keys`: the
    rollouts' ids, for a judge with `judge_keyed`."""
    if (many := getattr(judge, "judge_many", None)) is not None:
        try:
            found: list[Any] = list(many(items))
            if len(found) != len(items):
                raise ValueError(f"gave {len(found)} verdicts for {len(items)} answers")
        except Exception as error:  # its own fault says nothing about the policy
            found = [error] * len(items)
        return [_verdict(judge, v, 0.0) for v in found]
    keyed = getattr(judge, "judge_keyed", None) if keys else None
    asked = [(*item, key) for item, key in zip(items, keys)] if keyed is not None else items
    call = judge.judge if keyed is None else keyed
    if workers > 1 and len(items) > 1 and getattr(judge, "parallel", False):
        with ThreadPoolExecutor(workers) as threads:
            return list(threads.map(lambda item: _run(judge, call, item), asked))
    return [_run(judge, call, item) for item in asked]


def _run(judge: Verifier, call: Any, item: tuple[Any, ...]) -> Verdict:
    started = perf_counter()
    try:
        said: Any = call(*item)
    except Exception as error:
        said = error
    return _verdict(judge, said, perf_counter() - started)


def _verdict(judge: Verifier, said: Any, seconds: float) -> Verdict:
    """What it said as a verdict; an exception or rubbish is UNSCORABLE."""
    if isinstance(said, Verdict):
        return said if said.seconds or not seconds else replace(said, seconds=seconds)
    fault = (
        f"{type(said).__name__}: {said}" if isinstance(said, Exception) else f"returned {type(said).__name__}, not a Verdict"
    )
    return Verdict(judge.name, judge.version, Status.UNSCORABLE, evidence=fault, seconds=seconds)


class InProcess:
    """A verifier that cannot hang and asks others itself (an endpoint, processes of its own), for a file of answers."""

    def __init__(self, judge: Verifier, workers: int = 1) -> None:
        self.judge, self.workers, self.name, self.version = judge, workers, judge.name, judge.version

    def stream(self, items: Iterable[Item | Verdict]) -> Iterator[Verdict]:
        """Verdicts in the order of the items, which are read TOGETHER at a time; a verdict among them goes through as it is."""
        source = iter(items)
        while part := list(itertools.islice(source, TOGETHER)):
            verdicts = iter(ask(self.judge, [item for item in part if not isinstance(item, Verdict)], self.workers))
            yield from [item if isinstance(item, Verdict) else next(verdicts) for item in part]

    def close(self) -> None:
        if (close := getattr(self.judge, "close", None)) is not None:
            close()
