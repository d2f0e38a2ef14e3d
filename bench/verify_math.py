"""Answers judged per CPU second: `math` against math-verify 0.9, each in two persistent killable processes.

    python -m bench verify_math [--rows FILE] [--seconds 5] [--quick]      needs: pip install math-verify==0.9.0

Both judge the given rows of tests/cases in the same run: every row once, the same deadline (killed after it, a new process for the
rest), caches off, two callers. math-verify gets its best-effort call: the reference between dollars where it has no mark of its own,
the answer with its boxes first, bare answers with and without dollars. Figures: rows per CPU second of judging
(what a process uses for a row; a killed row counts with the deadline; starts are left out), rows per second of wall time, accuracy
without debatable rows; `without_killed` leaves the killed rows and their time out. `--quick`: every fourth row. Read it on an idle machine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.record import emit
from gfcr.filter.killable import KillableVerifier
from gfcr.filter.verifiers.math import verifier
from gfcr.filter.verifiers.math.rows import case
from gfcr.types import Status, StopReason, Task, Verdict

ROWS = Path(__file__).parents[1] / "tests" / "cases" / "math_given.jsonl"
WORKERS = 2


class Ours(verifier.Math):
    """Ours without what it remembers between rows. A verdict's `answer` is the CPU seconds it took."""

    bounded = False

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        start = time.process_time()
        verifier._read.cache_clear()
        verifier._references.cache_clear()
        verdict = super().judge(task, text, stop)
        return replace(verdict, answer=f"{time.process_time() - start:.6f}")


class MathVerify:
    """math-verify's best-effort call; its own signal time-outs off, since the process is killed."""

    name, version, bounded = "math-verify", "0.9", False

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        start = time.process_time()
        right = _math_verify(task.reference, text)
        return Verdict(self.name, self.version, Status.SCORED, float(right), right, answer=f"{time.process_time() - start:.6f}")


def _math_verify(reference: Any, text: str) -> bool:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, StringExtractionConfig, parse, verify

    golds = reference if isinstance(reference, list) else [reference]
    for gold in golds:
        if not gold or not text:
            continue
        letter = len(gold.strip()) == 1 and gold.strip().isalpha()
        config = (
            [StringExtractionConfig()] if letter else [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
        )
        marked = gold if any(m in gold for m in ("$", "\\(", "\\[", "boxed")) or letter else f"${gold}$"
        wanted = parse(marked, extraction_config=config, parsing_timeout=None)
        for said in (text, f"${text}$") if len(text) < 300 and "$" not in text and not letter else (text,):
            found = parse(said, extraction_config=config, parsing_timeout=None)
            if verify(wanted, found, timeout_seconds=None):
                return True
    return False


def measure(make: Callable[[], Any], rows: list[dict[str, Any]], seconds: float) -> dict[str, float]:
    judge = KillableVerifier(make(), seconds, WORKERS)
    warm = [case({"gold": "$\\sqrt{x^2+1}$", "prediction": rf"\boxed{{\sqrt{{1+x^2+{n}}}}}"}) for n in range(4 * WORKERS)]

    def one(pair: tuple[Task, str]) -> tuple[Verdict, float]:
        start = time.perf_counter()
        return judge.judge(*pair, StopReason.EOS), time.perf_counter() - start

    cases = [case(row) for row in rows]
    with ThreadPoolExecutor(WORKERS) as callers:
        list(callers.map(one, warm))
        start = time.perf_counter()
        verdicts = list(callers.map(one, cases))
        wall = time.perf_counter() - start
    judge.close()
    killed = [v for v, _ in verdicts if v.status is Status.UNSCORABLE and "killed" in v.evidence]
    cpu = sum(float(v.answer) for v, _ in verdicts if v.answer) + seconds * len(killed)
    counted = [(v, row) for (v, _), row in zip(verdicts, rows) if not row.get("debatable")]
    return {
        "rows_per_cpu_second": round(len(rows) / cpu, 1),
        "rows_per_second": round(len(rows) / wall, 1),
        "without_killed": round((len(rows) - len(killed)) / (cpu - seconds * len(killed)), 1),
        "cpu_seconds": round(cpu, 3),
        "accuracy": round(sum(bool(v.correct) is bool(row["expected"]) for v, row in counted) / len(counted), 4),
        "false_positives": sum(bool(v.correct) and not row["expected"] for v, row in counted),
        "killed": len(killed),
        "slowest_seconds": round(max(s for _, s in verdicts), 3),
    }


def main() -> None:
    options = sys.argv[1:]
    path = Path(options[options.index("--rows") + 1]) if "--rows" in options else ROWS
    seconds = float(options[options.index("--seconds") + 1]) if "--seconds" in options else 5.0
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = rows[::4] if "--quick" in options else rows
    from bench import verify_math as own  # not __main__: the children import it

    ours = measure(lambda: own.Ours(own.Ours.Settings()), rows, seconds)
    theirs = measure(own.MathVerify, rows, seconds)
    for name, found in (("math", ours), ("math-verify", theirs)):
        print(f"{name:12}", *(f"{key} {value}" for key, value in found.items()), sep="  ")
    ratio = {key: round(ours[key] / theirs[key], 1) for key in ("rows_per_cpu_second", "without_killed", "rows_per_second")}
    print(
        f"ratio: {ratio['rows_per_cpu_second']} times the rows per CPU second, {ratio['rows_per_second']} times per second of wall time"
    )
    emit("verify_math", {"rows": len(rows), "seconds": seconds, "math": ours, "math_verify": theirs, "ratio": ratio})


if __name__ == "__main__":
    main()
