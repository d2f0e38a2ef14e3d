"""What a sandboxed run costs over a bare interpreter start; prints JSON.

    python -m bench sandbox [rounds]      default 40; needs no torch

The arms take turns, so that a busy machine is as busy for each. CPU is of all processes of an arm, ours included; the medians of both
clocks are given, and the least. `bare`: `python -S -s -P -B -c pass`, the interpreter as the sandbox starts it. `program`: a sandbox
started, one program run in it, all of it ended. `call`: one answer judged, three calls. `script`: one answer judged by two asserts, in
two sandboxes. `warm`: as `program`, with the sandbox taken from a stock; its CPU is spent beforehand, so only its wait is given.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench.record import emit
from gfcr.filter.verifiers.code.verifier import Code
from gfcr.sandbox import command
from gfcr.sandbox.box import Box, Job, works
from gfcr.sandbox.pump import pump
from gfcr.sandbox.settings import Limits, Sandbox
from gfcr.sandbox.stock import Stock
from gfcr.types import StopReason, Task

PROGRAM = Job({"main.py": "print(input()[::-1])\n"}, "main.py", ("program",))
ADD = "def add(a, b):\n    return a + b\n"
CALLS = Task("code", "add", {"type": "call", "fn": "add", "cases": [{"args": [i, 2], "expected": i + 2} for i in range(3)]})
SCRIPT = Task("code", "add", {"type": "asserts", "code": "assert add(1, 2) == 3\nassert add(2, 2) == 4\n"})
BAR_MS = 20.0


def bare() -> None:
    subprocess.run([*command.INTERPRETER, "-c", "pass"], env=command.environment("/tmp"), stdin=subprocess.DEVNULL, check=True)


def program(start: Callable[[], Box] = lambda: Box(Sandbox(), Limits())) -> None:
    with start() as box:
        run = box.start(PROGRAM, b"abc\n")
        assert pump([run], 20.0, lambda: run.over) and run.code == 0 and bytes(run.out) == b"cba\n"


def judged(judge: Code, task: Task) -> None:
    assert judge.judge(task, ADD, StopReason.EOS).correct


def measured(arm: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU milliseconds."""
    before, started = _cpu(), time.perf_counter()
    arm()
    return 1e3 * (time.perf_counter() - started), 1e3 * (_cpu() - before)


def _cpu() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    nested = works(Sandbox())
    judge = Code(Code.Settings(), None)
    arms: dict[str, Callable[[], None]] = {
        "bare": bare,
        "program": program,
        "call": lambda: judged(judge, CALLS),
        "script": lambda: judged(judge, SCRIPT),
    }
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            figures[name].append(measured(arm))
    warm = []
    stock = Stock(Sandbox(warm=2), Limits())
    try:
        for _ in range(rounds):
            time.sleep(0.2)  # as between waves: the stock fills up
            warm.append(measured(lambda: program(stock.take))[0])
    finally:
        stock.close()
    result: dict[str, Any] = {
        "rounds": rounds,
        "user": "a user namespace" if nested else "root" if os.geteuid() == 0 else "setuid bubblewrap",
        "arms": {
            name: {
                "wall_ms": round(median(w for w, _ in found), 1),
                "wall_min_ms": round(min(w for w, _ in found), 1),
                "cpu_ms": round(median(c for _, c in found), 1),
                "cpu_min_ms": round(min(c for _, c in found), 1),
            }
            for name, found in figures.items()
        },
        "warm": {"wall_ms": round(median(warm), 1), "wall_min_ms": round(min(warm), 1)},
    }
    over = result["arms"]["program"]["cpu_ms"] - result["arms"]["bare"]["cpu_ms"]
    result |= {"over_bare_cpu_ms": round(over, 1), "bar_ms": BAR_MS, "passed": over <= BAR_MS}
    emit("sandbox", result)


if __name__ == "__main__":
    main()
