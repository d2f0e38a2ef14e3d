"""Runs an answer against one set of tests.

Invariants: expected values stay on this side and are compared on this side; every case has its wall limit, all together another;
what the judged process does wrong is its failure, what the sandbox does wrong is a SandboxError. The judged process may write what
it likes on every line it has: each carries what it returned or printed, and nothing else.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from gfcr.filter.verifiers.code.compare import same, same_output, shown
from gfcr.filter.verifiers.code.extract import Answer
from gfcr.filter.verifiers.code.line import Line, fate, tree
from gfcr.filter.verifiers.code.reference import Case, Tests
from gfcr.filter.verifiers.code.report import Failure, Fault, Report, short
from gfcr.filter.verifiers.code.scripts import run_script
from gfcr.sandbox.box import Box, Job
from gfcr.sandbox.pump import Run, pump
from gfcr.sandbox.settings import Limits, Sandbox

Starter = Callable[[Sandbox, Limits], Box]
Results = Iterator[tuple["Failure | None", Any]]


class Runner:
    """Runs one answer; ends its sandboxes with `close`."""

    def __init__(self, answer: Answer, sandbox: Sandbox, limits: Limits, every: bool, start: Starter = Box) -> None:
        """`every`: run all cases; False stops at the first failure."""
        self.answer, self.sandbox, self.limits, self.every, self._start = answer, sandbox, limits, every, start
        self._boxes: list[Box] = []
        self._lines: list[socket.socket] = []
        self._whole = True
        self._until = time.monotonic() + limits.total_seconds

    def close(self) -> None:
        for box in self._boxes:
            box.close()
        for line in self._lines:
            line.close()
        self._boxes.clear()
        self._lines.clear()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, tests: Tests, strict: bool = True, together: bool = False) -> Report:
        """Raises SandboxError."""
        if tests.type in ("asserts", "unittest"):
            box, apart = self._box(), None
            if not together:
                apart = self._start(self.sandbox, self.limits)
                self._boxes.append(apart)
            seconds = self._seconds()
            return run_script(tests, self.answer, self._entry(tests), (box, apart), seconds, self.every, strict)
        failure: Failure | None = None
        done: list[bool] = []
        for case, (fault, value) in zip(tests.cases, self._results(tests)):
            found = self._judged(tests, case, len(done), fault, value)
            done.append(found is None)
            failure = failure or found
            if found is not None and not self.every:
                self._whole = self._whole and (len(done) == len(tests.cases) or found.fault is Fault.SYNTAX)
                break
        hidden = [case.hidden for case in tests.cases]
        done += [False] * (len(hidden) - len(done))
        return Report(
            total=len(done),
            passed=sum(done),
            public=(sum(d for d, h in zip(done, hidden) if not h), hidden.count(False)),
            hidden=(sum(d for d, h in zip(done, hidden) if h), hidden.count(True)),
            failure=failure,
            whole=self._whole,
        )

    def results(self, tests: Tests) -> list[tuple[Failure | None, Any]]:
        """What the answer makes of every case: its failure, or the value or output. Expected values are not looked at."""
        return list(self._results(tests))

    def _results(self, tests: Tests) -> Results:
        """Ends early where an answer fails as a whole, and when the time for all cases is over."""
        return self._calls(tests) if tests.type == "call" else self._programs(tests)

    def _judged(self, tests: Tests, case: Case, i: int, fault: Failure | None, value: Any) -> Failure | None:
        if tests.type == "call":
            asked = f"{tests.fn}({_arguments(case)})"
            if fault is None:
                try:
                    if same(tree(case.expected), value, tests.tolerance):
                        return None
                except (ValueError, TypeError, KeyError, IndexError, ArithmeticError, RecursionError):
                    return Failure(Fault.RUNTIME, "something that is no answer came on the channel", i, asked, case.hidden)
                data = f"{asked} gave {shown(value)}, wanted {shown(tree(case.expected))}"
                return Failure(Fault.WRONG, "a wrong value", i, data, case.hidden)
        else:
            asked = f"input {shown(case.input)}"
            if fault is None:
                if same_output(case.expected, value, tests.tolerance):
                    return None
                data = f"{asked} gave {shown(value)}, wanted {shown(case.expected)}"
                return Failure(Fault.WRONG, "a wrong output", i, data, case.hidden)
        if fault.fault is Fault.WRONG:
            asked = f"{asked}: {fault.what}"
        return Failure(fault.fault, fault.what, i, asked, case.hidden, fault.where)

    # Calls

    def _calls(self, tests: Tests) -> Results:
        entry = self._entry(tests)
        line: Line | None = None
        for case in tests.cases:
            seconds = self._seconds()
            if not seconds:
                yield self._late(), None
                return
            if line is None:
                line = Line(self._box(), self._job(entry, "wire", "link", "judged"))
                self._lines.append(line.ours)
                load = line.ask(["?", "load"], seconds)
                if isinstance(load, Failure):
                    yield load, None
                    return
            args = [tree(arg) for arg in case.args]
            named = {key: tree(value) for key, value in case.named.items()}
            answer = line.ask(["?", "call", tests.fn, args, named], seconds)
            if isinstance(answer, Failure):
                yield answer, None
                if line.run.code is not None or line.run.breach or line.run.cut_off or answer.fault is Fault.TIME:
                    self.close()
                    line = None
            else:
                yield None, answer[0]

    # Programs

    def _programs(self, tests: Tests) -> Results:
        entry = self._entry(tests)
        job = self._job(entry, "program")
        for case in tests.cases:
            seconds = self._seconds()
            if not seconds:
                yield self._late(), ""
                return
            run = self._box().start(job, case.input.encode("utf-8", "surrogateescape"))
            in_time = pump([run], seconds, lambda run=run: run.over)  # type: ignore[misc]
            failure = fate(run, in_time, seconds)
            if failure is None and run.code:
                failure = self._failed_program(run)
            if run.code is None:
                self.close()
            yield failure, run.out.decode("utf-8", "surrogateescape")

    def _failed_program(self, run: Run) -> Failure:
        text = run.err.decode("utf-8", "replace")
        last = next((line for line in reversed(text.strip().split("\n")) if line and not line.startswith(" ")), "")
        where = None
        for line in text.split("\n"):
            name, _, number = line.strip().removeprefix('File "').partition('", line ')
            name = name.rpartition("/answer/")[2]
            digits = number.partition(",")[0]
            if name in self.answer.files and digits.isdigit() and len(digits) < 9:
                where = (name, int(digits))
        how = f"exit code {run.code}" if run.code is None or run.code > 0 else f"signal {-run.code}"
        syntax = last.startswith(("SyntaxError", "IndentationError", "TabError")) and run.code == 1
        return Failure(Fault.SYNTAX if syntax else Fault.RUNTIME, short(f"{how}: {last}" if last else how, 200), where=where)

    # What they share

    def _box(self) -> Box:
        """The sandbox in use, or a fresh one."""
        if not self._boxes:
            self._boxes.append(self._start(self.sandbox, self.limits))
        return self._boxes[0]

    def _job(self, entry: str, *modules: str, **options: Any) -> Job:
        return Job(self.answer.files, entry, modules, options)

    def _seconds(self) -> float:
        return max(0.0, min(self.limits.seconds, self._until - time.monotonic()))

    def _late(self) -> Failure:
        return Failure(Fault.TIME, f"all cases together took more than {self.limits.total_seconds:g} s")

    def _entry(self, tests: Tests) -> str:
        files = self.answer.files
        python = [name for name in files if name.endswith(".py")]
        known = [name for name in (tests.entry, "main.py", "solution.py") if name in files]
        return (known or python or [tests.entry or "solution.py"])[0] or "solution.py"


def _arguments(case: Case) -> str:
    return short(
        ", ".join([*map(shown, map(tree, case.args)), *(f"{key}={shown(tree(value))}" for key, value in case.named.items())]),
        120,
    )
