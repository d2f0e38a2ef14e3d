"""Runs an answer against one set of tests.

Invariants: expected values stay on this side and are compared on this side; every case has its wall limit, all together another;
what the judged process does wrong is its failure, what the sandbox does wrong is a SandboxError. The judged process may write what
it likes on every line it has: each carries what it returned or printed, and nothing else.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from gfcr.filter.verifiers.code.compare import same, same_output
from gfcr.filter.verifiers.code.extract import Answer
from gfcr.filter.verifiers.code.reference import Case, Tests
from gfcr.filter.verifiers.code.report import Failure, Fault, Report, short, shown
from gfcr.sandbox.box import Box, Job, SandboxError
from gfcr.sandbox.inside.judged import FLOOD
from gfcr.sandbox.inside.wire import plain, value_of
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
            return self._scripts(tests, strict, together)
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
                if same(case.expected, value, tests.tolerance):
                    return None
                data = f"{asked} gave {shown(value)}, wanted {shown(case.expected)}"
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
        line: _Line | None = None
        for case in tests.cases:
            seconds = self._seconds()
            if not seconds:
                yield self._late(), None
                return
            if line is None:
                line = _Line(self._box(), self._job(entry, "wire", "link", "judged"))
                self._lines.append(line.ours)
                load = line.ask(["?", "load"], seconds)
                if isinstance(load, Failure):
                    yield load, None
                    return
            args = [plain(arg, _no_data) for arg in case.args]
            named = {key: plain(value, _no_data) for key, value in case.named.items()}
            answer = line.ask(["?", "call", tests.fn, args, named], seconds)
            if isinstance(answer, Failure):
                yield answer, None
                if line.run.code is not None or line.run.breach or line.run.cut_off or answer.fault is Fault.TIME:
                    self.close()
                    line = None
            else:
                try:
                    value = value_of(answer[0])
                except (ValueError, TypeError, KeyError, IndexError, RecursionError, ArithmeticError):
                    yield Failure(Fault.RUNTIME, "something that is no answer came on the channel"), None
                    self.close()
                    line = None
                    continue
                yield None, value

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
            failure = self._fate(run, in_time, seconds)
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

    # Test scripts

    def _scripts(self, tests: Tests, strict: bool, together: bool) -> Report:
        entry = self._entry(tests)
        options = {
            "code": tests.code,
            "all": self.every,
            "strict": strict,
            "together": together,
            "allowed": [*tests.defines],
            "importable": _modules(self.answer),
            "longest": self.limits.output_kb << 10,
        }
        common = ("wire", "link", "standins", "objects")
        ours, theirs = socket.socketpair()
        with ours:
            if together:
                with theirs:
                    job = Job(self.answer.files, entry, (*common, "judged", "tests"), options)
                    judged = tester = self._box().start(job, channels=[theirs.fileno()], channel=ours)
            else:
                a, b = socket.socketpair()
                with theirs, a, b:
                    judged = self._box().start(self._job(entry, *common, "judged", "played"), channels=[a.fileno()])
                    other = self._start(self.sandbox, self.limits)
                    self._boxes.append(other)
                    job = Job({}, entry, (*common, "tests"), options)
                    tester = other.start(job, channels=[b.fileno(), theirs.fileno()], channel=ours)
            seconds = self._seconds()
            runs = [judged] if together else [judged, tester]

            def done() -> bool:
                return bool(tester.frames) or tester.over or judged.breach is not None

            in_time = pump(runs, seconds, done)
            return self._told(tests, judged, tester, in_time, seconds)

    def _told(self, tests: Tests, judged: Run, tester: Run, in_time: bool, seconds: float) -> Report:
        one = Report(1, 0, (0, int(not tests.hidden)), (0, int(tests.hidden)))
        if not tester.frames:
            failure = self._fate(judged, in_time, seconds)
            if failure is None and tester is not judged and tester.over and judged.breach is None:
                ended = tester.breach or f"they ended with code {tester.code}"
                failure = Failure(Fault.RUNTIME, f"the tests did not end well: {ended}")
            failure = failure or Failure(Fault.RUNTIME, _ended(judged))
            return one.plus(Report(failure=_of(failure, tests)))
        try:
            (_, told) = json.loads(tester.frames[0])
            return self._report(tests, told, judged)
        except (ValueError, TypeError, KeyError):
            return one.plus(Report(failure=_of(Failure(Fault.RUNTIME, "something that is no report came"), tests)))

    def _report(self, tests: Tests, told: dict[str, Any], judged: Run) -> Report:
        if "invalid" in told:
            return Report(unscorable=str(told["invalid"]))
        found = told.get("load") or told["failure"]
        total, passed = (1, 0) if "load" in told else (int(told["total"]), int(told["passed"]))
        failure = None
        if found is not None:
            text = (
                f"{found['error']}: {found['text']}"
                if found.get("error") and found["text"]
                else found.get("error") or found["text"]
            )
            if found["kind"] == "died":
                pump([judged], 1.0, lambda: judged.over)
                limit = self._fate(judged, True, 0.0)
                failure = limit or Failure(Fault.RUNTIME, _ended(judged))
            else:
                where = (str(found["where"][0]), int(found["where"][1])) if found.get("where") else None
                test = str(found.get("test") or "")
                line = f"line {found['line']} of the tests: " if found.get("line") else ""
                wrong = found["kind"] == "wrong"
                data = f"{line}{short(test, 160)}" + (f" ({short(found['text'], 120)})" if wrong and found["text"] else "")
                what = "a failed test" if wrong else short(str(text), 200)
                failure = Failure(
                    Fault(found["kind"]), what, int(found.get("case") or 0), data if test else "", tests.hidden, where
                )
            failure = _of(failure, tests)
        counts = (passed, total)
        whole = failure is None or self.every or total == 1
        return Report(
            total, passed, (0, 0) if tests.hidden else counts, counts if tests.hidden else (0, 0), failure=failure, whole=whole
        )

    # What they share

    def _fate(self, run: Run, in_time: bool, seconds: float) -> Failure | None:
        """The limit that a run broke, if it broke one. Raises SandboxError for a fault of the sandbox's."""
        if run.ours:
            raise SandboxError(f"{run.breach}", "try again; if it lasts, look at the machine's memory and process limits")
        if run.breach is not None:
            kind = Fault.OUTPUT if "output" in run.breach else Fault.MEMORY if "MiB" in run.breach else Fault.RUNTIME
            return Failure(kind, run.breach)
        if run.code == FLOOD:
            return Failure(Fault.OUTPUT, f"more than {self.limits.output_kb} KiB of output")
        if not in_time:
            return Failure(Fault.TIME, f"not done after {seconds:.3g} s")
        return None

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


class _Line:
    """Questions to a judged process."""

    def __init__(self, box: Box, job: Job) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.run = box.start(job, channels=[theirs.fileno()], channel=ours)
        self.ours = ours

    def ask(self, question: list[Any], seconds: float) -> list[Any] | Failure:
        """The answer's parts. Raises SandboxError."""
        run = self.run
        run.send(json.dumps(question).encode())
        in_time = pump([run], seconds, lambda: bool(run.frames) or run.over or run.cut_off)
        if not run.frames:
            if run.cut_off and not run.over:  # its code follows
                pump([run], 1.0, lambda: run.over)
            if run.ours:
                raise SandboxError(f"{run.breach}", "try again; if it lasts, look at the machine's memory and process limits")
            return self._fate(in_time, seconds)
        try:
            kind, *parts = json.loads(run.frames.popleft())
            if kind == "=" and len(parts) <= 1:
                return parts or [None]
            what, name, text, where = parts
            place = (str(where[0]), int(where[1])) if where else None
            if what == "unplain":
                return Failure(Fault.WRONG, f"it returned {short(text, 160)}")
            return Failure(Fault.SYNTAX if what == "syntax" else Fault.RUNTIME, short(f"{name}: {text}", 200), where=place)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            run.cut_off = True
            return Failure(Fault.RUNTIME, "something that is no answer came on the channel")

    def _fate(self, in_time: bool, seconds: float) -> Failure:
        run = self.run
        if run.breach is not None:
            kind = Fault.OUTPUT if "output" in run.breach else Fault.MEMORY if "MiB" in run.breach else Fault.RUNTIME
            return Failure(kind, run.breach)
        if run.code == FLOOD:
            return Failure(Fault.OUTPUT, "too much output")
        return Failure(Fault.RUNTIME, _ended(run)) if in_time else Failure(Fault.TIME, f"not done after {seconds:.3g} s")


def _ended(run: Run) -> str:
    if run.code is None:
        return "it closed its channel"
    return f"its process was ended by signal {-run.code}" if run.code < 0 else f"its process ended with exit code {run.code}"


def _of(failure: Failure, tests: Tests) -> Failure:
    return Failure(failure.fault, failure.what, failure.case, failure.shown, tests.hidden, failure.where)


def _no_data(value: Any) -> Any:
    raise SandboxError(f"an argument of the tests is {type(value).__name__}, no plain data", "correct the tests")


def _arguments(case: Case) -> str:
    return short(", ".join([*map(shown, case.args), *(f"{key}={shown(value)}" for key, value in case.named.items())]), 120)


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
