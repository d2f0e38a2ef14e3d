"""Test scripts against an answer: in another sandbox than the answer's, with one line between the two and another one to us.

Invariant: the line that the report comes over is not the judged side's, unless the tests run together with it.
"""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import Any

from gfcr.filter.verifiers.code.extract import Answer
from gfcr.filter.verifiers.code.line import ended, fate
from gfcr.filter.verifiers.code.reference import Tests
from gfcr.filter.verifiers.code.report import Failure, Fault, Report, short
from gfcr.sandbox.box import Box, Job
from gfcr.sandbox.pump import Run, pump

_COMMON = ("wire", "link", "standins", "objects")


def run_script(
    tests: Tests, answer: Answer, entry: str, boxes: tuple[Box, Box | None], seconds: float, every: bool, strict: bool
) -> Report:
    """`boxes`: of the answer and of the tests; None in the second place runs them together in the first. Raises SandboxError."""
    box, apart = boxes
    options = {
        "code": tests.code,
        "all": every,
        "strict": strict,
        "together": apart is None,
        "allowed": [*tests.defines],
        "importable": _modules(answer),
    }
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if apart is None:
            job = Job(answer.files, entry, (*_COMMON, "judged", "tests"), options)
            judged = tester = box.start(job, channels=[theirs.fileno()], channel=ours)
        else:
            a, b = socket.socketpair()
            with a, b:
                job = Job(answer.files, entry, (*_COMMON, "judged", "played"))
                judged = box.start(job, channels=[a.fileno()])
                job = Job({}, entry, (*_COMMON, "tests"), options)
                tester = apart.start(job, channels=[b.fileno(), theirs.fileno()], channel=ours)
        theirs.close()
        runs = [judged] if apart is None else [judged, tester]
        in_time = pump(runs, seconds, lambda: bool(tester.frames) or tester.over or judged.breach is not None)
        report = _told(tests, judged, tester, in_time, seconds, every)
    return report if report.failure is None else replace(report, failure=replace(report.failure, hidden=tests.hidden))


def _told(tests: Tests, judged: Run, tester: Run, in_time: bool, seconds: float, every: bool) -> Report:
    """The report that came, or why none did."""
    if tester.frames:
        try:
            (_, told) = json.loads(tester.frames[0])
            return _report(tests, told, judged, every)
        except (ValueError, TypeError, KeyError, RecursionError):
            return _counted(tests, 0, 1, Failure(Fault.RUNTIME, "something that is no report came"))
    failure = fate(judged, in_time, seconds)
    if failure is None and tester is not judged and tester.over:
        failure = Failure(Fault.RUNTIME, f"the tests did not end well: {tester.breach or ended(tester)}")
    return _counted(tests, 0, 1, failure or Failure(Fault.RUNTIME, ended(judged)))


def _report(tests: Tests, told: dict[str, Any], judged: Run, every: bool) -> Report:
    if "invalid" in told:
        return Report(unscorable=str(told["invalid"]))
    found = told.get("load") or told["failure"]
    passed, total = (0, 1) if "load" in told else (int(told["passed"]), int(told["total"]))
    if found is None:
        return _counted(tests, passed, total, None)
    if found["kind"] == "died":
        pump([judged], 1.0, lambda: judged.over)  # its end follows the line's
        failure = fate(judged, True, 0.0) or Failure(Fault.RUNTIME, ended(judged))
    else:
        failure = _failure(found)
    return replace(_counted(tests, passed, total, failure), whole=every or total == 1)


def _failure(found: dict[str, Any]) -> Failure:
    """The first failing test, as the tests' side tells it."""
    wrong = found["kind"] == "wrong"
    text = ": ".join(part for part in (found.get("error"), found["text"]) if part)
    where = (str(found["where"][0]), int(found["where"][1])) if found.get("where") else None
    shown = ""
    if found.get("test"):
        line = f"line {found['line']} of the tests: " if found.get("line") else ""
        shown = line + short(str(found["test"]), 160) + (f" ({short(found['text'], 120)})" if wrong and found["text"] else "")
    what = "a failed test" if wrong else short(text, 200)
    return Failure(Fault(found["kind"]), what, int(found.get("case") or 0), shown, where=where)


def _counted(tests: Tests, passed: int, total: int, failure: Failure | None) -> Report:
    counts, none = (passed, total), (0, 0)
    return Report(total, passed, none if tests.hidden else counts, counts if tests.hidden else none, failure)


def _modules(answer: Answer) -> list[str]:
    """Module names of the answer's files and their packages."""
    found: dict[str, None] = {}
    for name in answer.files:
        if name.endswith(".py"):
            parts = name.removesuffix(".py").split("/")
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            for n in range(1, len(parts) + 1):
                found[".".join(parts[:n])] = None
    return list(found)
