"""Generated programs through the code verifier, each judged twice; prints JSON and fails where one hangs it, crashes it, leaks or is judged
in two ways.

    python -m bench code_fuzz [--programs 2000] [--seed 0] [--workers 4]      needs no torch

The programs are deterministic; a good part of them never ends, dies, forks, floods, raises, returns oddities or is no Python at all.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.code_cases import children
from bench.record import emit
from gfcr.filter.verifiers.code.verifier import Code
from gfcr.sandbox.settings import Limits
from gfcr.types import Status, StopReason, Task, Verdict

LIMITS = Limits(seconds=1.5, total_seconds=4.0, memory_mb=192, procs=16, output_kb=64)
SLACK = 20.0
"""Seconds over the total limit that a judgement may take on a busy machine, start and end included."""
_RETURNS = (
    *(
        "a",
        "a + b",
        "[a, b]",
        "(a, b)",
        "{a: b}",
        "{a, b}",
        "str(a)",
        "None",
        "a == b",
        "a / b",
        "a // (b - b)",
        "float('nan')",
        "1e400",
    ),
    *(
        "b'x'",
        "lambda: a",
        "f",
        "type(a)",
        "iter([a])",
        "(x for x in [a])",
        "...",
        "NotImplemented",
        "object()",
        "10 ** 5000",
        "'\\ud800'",
    ),
    *(
        "range(a)",
        "[[]] * 9",
        "'x' * 200000",
        "complex(a, b)",
        "Exception(a)",
        "frozenset([a])",
        "memoryview(b'x')",
        "property(f)",
    ),
)
_BODIES = (
    *(
        "pass",
        "while True: pass",
        "while True: x = [0] * 100000",
        "return f(a, b)",
        "import os; os._exit(0)",
        "import os; os.abort()",
    ),
    *("raise SystemExit(0)", "raise KeyboardInterrupt", "raise MemoryError", "raise GeneratorExit", "assert False, a", "1 / 0"),
    *(
        "x = bytearray(1 << 30)",
        "import os; os.fork()",
        "import os\n    while True: os.fork()",
        "print('x' * 200000)",
        "import sys; sys.stdout = None",
    ),
    *(
        "import threading; [threading.Thread(target=f, args=(a, b)).start() for _ in range(99)]",
        "import sys; sys.setrecursionlimit(10**9); f(a, b)",
    ),
    *(
        "import os; os.close(3)",
        "import os; os.write(3, b'\\0\\0\\0\\5[\"=\"]')",
        "import os; os.write(3, b'x' * 9999)",
        "import ctypes; ctypes.string_at(0)",
    ),
    *(
        "import os; os.kill(os.getpid(), 19)",
        "import os; os.kill(-1, 9)",
        "import signal; signal.alarm(1)",
        "global f; f = None",
        "del globals()['f']",
    ),
    *(
        "import subprocess; subprocess.Popen(['sleep', '99'])",
        "import gc; gc.get_objects().clear()",
        "import builtins; builtins.len = None",
    ),
    *("import os; os.chdir('/'); os.rmdir('/tmp/answer')", "import json; json.dumps = f", "x = []; x.append(x); return x"),
)
_EXPECTED = (3, [1, 2], None, "1", True, {"1": 2}, 0.5)


def program(rng: random.Random) -> tuple[Task, str]:
    """A task and a text to judge."""
    body = "\n".join(f"    {rng.choice(_BODIES)}" for _ in range(rng.randrange(3)) if rng.random() < 0.5)
    right = rng.random() < 0.2
    source = f"def f(a, b):\n{'' if right else body}\n    return {'a + b' if right else rng.choice(_RETURNS)}\n"
    if rng.random() < 0.15:
        source += f"{rng.choice(_BODIES).replace('return ', 'x = ').replace('global f; ', '')}\n".replace("\n    ", "\n")
    if rng.random() < 0.15:
        source = _damaged(source, rng)
    if rng.random() < 0.2:
        source = f"Text.\n```python\n{source}\n```\n"
    kind = rng.choice(("call", "call", "stdio", "asserts", "unittest"))
    wanted = 3 if right else rng.choice(_EXPECTED)
    if kind == "call":
        tests: dict[str, Any] = {
            "type": kind,
            "fn": "f",
            "cases": [{"args": [1, 2], "expected": wanted}, {"args": [0, 0], "expected": 0}],
        }
    elif kind == "stdio":
        source += "print(f(1, 2))\n"
        tests = {"type": kind, "cases": [{"input": "1 2\n", "output": f"{wanted}\n"}]}
    elif kind == "asserts":
        tests = {"type": kind, "code": f"assert f(1, 2) == {wanted!r}\nassert f(0, 0) == 0\n"}
    else:
        tests = {
            "type": kind,
            "code": f"import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(1, 2), {wanted!r})\n",
        }
    return Task("code", "Write f(a, b).", tests), source


def _damaged(source: str, rng: random.Random) -> str:
    letters = list(source)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(letters))
        letters[at : at + rng.randrange(3)] = rng.choice(("", "(", "]", "\0", "\ud800", "\n", "é", '"""', "```", "    ", ":"))
    return "".join(letters)


def judged(judge: Code, item: tuple[Task, str]) -> tuple[Verdict, float]:
    started = time.monotonic()
    return judge.judge(*item, StopReason.EOS), time.monotonic() - started


def run(programs: int, seed: int, workers: int) -> dict[str, Any]:
    """Figures, with what was wrong under `wrong`."""
    rng = random.Random(seed)
    items = [program(rng) for _ in range(programs)]
    judge = Code(Code.Settings(limits=LIMITS, score="share"), None)
    judged(judge, items[0])
    before, files = children(), len(os.listdir("/proc/self/fd"))
    memory = [_resident()]
    wrong: list[str] = []
    kinds: Counter[str] = Counter()
    slowest = 0.0
    with ThreadPoolExecutor(workers) as threads:
        for start in range(0, programs, 100):
            part = items[start : start + 100]
            pairs = list(threads.map(lambda item: (judged(judge, item), judged(judge, item)), part))
            for n, ((first, seconds), (second, again)) in enumerate(pairs, start):
                slowest = max(slowest, seconds, again)
                kinds["right" if first.correct else "wrong" if first.status is Status.SCORED else "unscorable"] += 1
                if (first.status, first.correct, first.score) != (second.status, second.correct, second.score):
                    wrong.append(f"program {n}: {first.evidence!r} and {second.evidence!r}")
                if first.status is not Status.SCORED:
                    wrong.append(f"program {n}: unscorable: {first.evidence}")
                if max(seconds, again) > LIMITS.total_seconds + SLACK:
                    wrong.append(f"program {n} took {max(seconds, again):.1f} s")
            memory.append(_resident())
            print(f"{start + len(part)} programs, {memory[-1]} MiB, {len(wrong)} wrong", file=sys.stderr)
    if left := children() - before:
        wrong.append(f"{len(left)} processes are left")
    if (now := len(os.listdir("/proc/self/fd"))) > files:
        wrong.append(f"{now - files} more open files than before")
    return {
        "programs": programs,
        "verdicts": dict(kinds),
        "slowest_s": round(slowest, 2),
        "memory_mib": [memory[0], max(memory), memory[-1]],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "wrong": wrong,
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench code_fuzz")
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    result = run(args.programs, args.seed, args.workers)
    emit("code_fuzz", result)
    if result["wrong"]:
        raise SystemExit("\n".join(result["wrong"][:20]))


if __name__ == "__main__":
    main()
