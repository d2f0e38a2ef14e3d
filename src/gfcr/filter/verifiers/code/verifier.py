"""The `code` verifier: an answer is right when its program passes the task's tests, run where it can reach nothing.

Invariants: judged code runs in a sandbox or not at all; what it does wrong (no end, too much memory, nonsense, an attack) is SCORED and
wrong; what the tests or the sandbox do wrong is UNSCORABLE. `bounded`: every wait is this side's, with a deadline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from gfcr.context import Build
from gfcr.errors import ConfigError, GfcrError
from gfcr.filter.verdicts import cut, scored, unscorable
from gfcr.filter.verifiers.code.extract import Answer, answer
from gfcr.filter.verifiers.code.leaks import hard_coded, perturbed
from gfcr.filter.verifiers.code.line import Tree
from gfcr.filter.verifiers.code.reference import BadTests, Reference, Tests, held_back, limited, public, reference
from gfcr.filter.verifiers.code.report import Failure, Fault, Level, Report, words
from gfcr.filter.verifiers.code.runs import Runner
from gfcr.filter.verifiers.code.score import Score, blames_all, blames_none, score, span_value
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.sandbox.box import works
from gfcr.sandbox.settings import Limits, Sandbox
from gfcr.sandbox.stock import close_all, stock
from gfcr.types import Span, StopReason, Task, Verdict

_NAMES = re.compile(r"\b(?:def|class|function|called|named|method|write|implement|define)\s+`?([A-Za-z_]\w*)", re.IGNORECASE)


@method(
    "code",
    Slot.VERIFIER,
    title="code by execution",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    arxiv="2307.04349",
    traits=("binary correctness",),
)
class Code:
    """Right iff the program passes every test: calls, asserts, unittest or input and output, in a sandbox. The reference of a task is
    its tests (docs/verifiers/code.md)."""

    class Settings(FrozenModel):
        sandbox: Sandbox = Sandbox()
        """Where judged code runs."""
        limits: Limits = Limits()
        """What an answer may use; a task's own limits go first."""
        score: Score = "all"
        """The reward: `all` (1 or 0), `share` (passed share; invites answers that are right on easy cases only), `coderl`
        (arXiv:2207.01780: -1 does not compile, -0.6 runtime error, -0.3 failed, 1 passed), `rltf` (arXiv:2307.04349: a failed test is
        worth -0.3 + 1.3 * passed share; the offending line carries -0.3). Correctness is always all of the tests."""
        score_on: Literal["all", "hidden"] = "all"
        """Which cases the reward and correctness come from, where a task has hidden ones."""
        feedback: Level = "case"
        """How much the evidence says: `verdict` (counts), `error` (kind and place), `case` (data of the first failing public case), `all`
        (of hidden ones too)."""
        tests: Literal["apart", "together"] = "apart"
        """Where test scripts run: `apart` in another sandbox, which the judged code cannot reach; `together` in the judged process, for
        tests that need its very objects (a class derived from the answer's, arrays): judged code can then fool them."""
        objects: Literal["strict", "own"] = "strict"
        """Whether an object of the answer's own class may decide how it compares and adds up with plain data, in tests run apart.
        `strict`: no, only plain data equals plain data."""
        hold_back: float = Field(0.0, ge=0, lt=1)
        """Share of the cases treated as hidden, drawn once per task."""
        perturb: int = Field(0, ge=0, le=100)
        """Further cases, with given inputs changed a little; expected is what the task's own `solution` gives. Calls and programs only;
        a task without a `solution` is judged without, and the evidence says so."""
        scan: Literal["off", "flag", "wrong"] = "off"
        """Search the program for expected results beside their inputs: `flag` says so in the evidence, `wrong` judges it wrong."""
        repeat: int = Field(1, ge=1, le=10)
        """Judge a right answer this many times; one that is not right each time is wrong, and the evidence calls it flaky."""
        accept_cut: bool = False
        """Judge an answer that the length limit cut by what is there. False: it is wrong."""

    name, version, bounded = "code", "1", True
    parallel = True
    """Each call has sandboxes of its own."""
    cost = 0.05
    """Seconds of a call, about."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings
        if settings.sandbox.kind == "bwrap":
            works(settings.sandbox)
        faults = _faults(build.tasks if build else ())
        if (first := next(faults, None)) and all(faults):  # in a pool of several kinds another verifier judges the rest
            raise ConfigError(
                f"filter.verifiers 'code': no task has tests as its reference: {first}",
                'see docs/verifiers/code.md for tests; where another column holds them: tasks.columns = { reference = "tests" }',
            )

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if task.reference is None:
            return unscorable(self, "the task has no reference")
        if (ended := cut(self, stop, self.settings.accept_cut)) is not None:
            return ended
        try:
            known = reference(task.reference)
            program = answer(text, known.entry)
            report = self._report(task, known, program, limited(self.settings.limits, known.limits))
        except BadTests as bad:
            return unscorable(self, f"the reference cannot be used: {bad}")
        except GfcrError as error:
            return unscorable(self, error.what)
        return self._verdict(report, program)

    def close(self) -> None:
        """End the sandboxes that are kept started; a later call starts new ones."""
        if self.settings.sandbox.warm:
            close_all()

    def report(self, task: Task, text: str) -> Report:
        """How a text does on a task's tests, in full. Raises BadTests, GfcrError."""
        known = reference(task.reference)
        program = answer(text, known.entry)
        return self._report(task, known, program, limited(self.settings.limits, known.limits))

    def public(self, task: Task) -> Reference:
        """What of a task's tests may be seen. Raises BadTests."""
        return public(reference(task.reference), self.settings.hold_back, task.id)

    def on_public(self, task: Task, text: str) -> tuple[bool, str, str]:
        """(right, what to say of it, kind of its fault or ""): a program on the tests that may be seen. Raises BadTests, GfcrError."""
        known = self.public(task)
        program = answer(text, known.entry)
        if program.refused is not None:
            report = Report(failure=Failure(Fault.REFUSED, program.refused))
        else:
            limits = limited(self.settings.limits, known.limits)
            report = Report()
            for tests in known.sets:
                with Runner(program, self.settings.sandbox, limits, True, stock(self.settings.sandbox)) as runner:
                    strict, together = self.settings.objects == "strict", self.settings.tests == "together"
                    report = report.plus(runner.run(_defined(tests, task), strict, together))
        if report.unscorable is not None:
            raise BadTests(report.unscorable)
        return report.right, words(report, program, self.settings.feedback), str(report.failure.fault) if report.failure else ""

    def _report(self, task: Task, known: Reference, program: Answer, limits: Limits) -> Report:
        if program.refused is not None:
            return Report(failure=Failure(Fault.REFUSED, program.refused))
        report = self._once(task, known, program, limits)
        for n in range(1, self.settings.repeat):
            if report.right and not (again := self._once(task, known, program, limits)).right:
                return replace(again, notes=(*again.notes, f"flaky: right {n} times before"))
        return report

    def _once(self, task: Task, known: Reference, program: Answer, limits: Limits) -> Report:
        s = self.settings
        every = s.score in ("share", "rltf") or s.score_on == "hidden" or s.hold_back > 0
        report = Report()
        for tests in (held_back(tests, s.hold_back, task.id) for tests in known.sets):
            if s.scan != "off" and (found := hard_coded(tests, "\n".join(program.files.values()))):
                note = f"{found} expected results stand in the program beside their inputs"
                report = replace(report, notes=(*report.notes, note))
                if s.scan == "wrong":
                    return report.plus(Report(len(tests.cases), failure=Failure(Fault.WRONG, "hard-coded results")))
            with Runner(program, s.sandbox, limits, every, stock(s.sandbox)) as runner:
                strict, together = s.objects == "strict", s.tests == "together"
                report = report.plus(runner.run(_defined(tests, task), strict, together))
            if report.failure is not None and not every:
                return report
            if s.perturb and tests.cases and (report.failure is None or every):
                report = report.plus(self._perturbed(task, known, tests, program, limits, every))
        return report

    def _perturbed(self, task: Task, known: Reference, tests: Tests, program: Answer, limits: Limits, every: bool) -> Report:
        """How the program does on changed inputs, by the task's own program."""
        if known.solution is None:
            return Report(notes=("not tried on other inputs: the task has no solution of its own",))
        cases = perturbed(tests, self.settings.perturb, task.id)
        right = Answer(known.solution if isinstance(known.solution, dict) else {tests.entry or "solution.py": known.solution})
        with Runner(right, self.settings.sandbox, limits, True) as runner:
            wanted = runner.results(replace(tests, cases=cases))
        kept = tuple(
            replace(case, expected=Tree(value) if tests.type == "call" else value)
            for case, (failure, value) in zip(cases, wanted)
            if failure is None
        )
        if not kept:
            return Report(notes=("no changed input was valid",))
        with Runner(program, self.settings.sandbox, limits, every) as runner:
            found = runner.run(replace(tests, cases=kept, hidden=True))
        return replace(found, notes=(f"right on {found.passed} of {found.total} changed inputs",)) if found.whole else found

    def _verdict(self, report: Report, program: Answer) -> Verdict:
        s = self.settings
        evidence = words(report, program, s.feedback)
        if report.unscorable is not None:
            return unscorable(self, evidence)
        on_hidden = s.score_on == "hidden" and report.hidden[1] > 0
        right = report.share(True) == 1.0 if on_hidden else report.right
        spans = () if report.failure is None else _spans(report.failure, program, s.score)
        said = program.canonical if program.files else None
        return scored(self, score(report, s.score, on_hidden), right, evidence, said, spans)


def _faults(tasks: Iterable[Task]) -> Iterator[str]:
    """Of each task, why its reference cannot be used; empty where it can."""
    for task in tasks:
        try:
            reference(task.reference)
            yield ""
        except BadTests as bad:
            yield f"task {task.id}: {bad}"


def _spans(failure: Failure, program: Answer, how: Score) -> tuple[Span, ...]:
    """The offending line; for RLTF, which gives it a value, the whole program where no line is to blame."""
    value = span_value(how)
    if value is not None and blames_all(failure):
        return (Span(*program.whole, "program", value),) if program.whole else ()
    place = program.line(*failure.where) if failure.where is not None else None
    return (Span(*place, "line", None if blames_none(failure) else value),) if place else ()


def _defined(tests: Tests, task: Task) -> Tests:
    """The tests, with the names that the prompt asks the answer to define: only these may hide a builtin from the tests."""
    if tests.type not in ("asserts", "unittest"):
        return tests
    asked = tuple(dict.fromkeys(_NAMES.findall(task.prompt))) if isinstance(task.prompt, str) else _asked(task.prompt)
    return replace(tests, defines=(*tests.defines, *asked))


def _asked(messages: Any) -> tuple[str, ...]:
    texts = [part.text or "" for message in messages for part in message.parts]
    return tuple(dict.fromkeys(_NAMES.findall("\n".join(texts))))
