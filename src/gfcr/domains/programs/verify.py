"""Judging register programs: outcome, format, steps.

Invariants: everything is pure, exact and linear in the answer; the outcome is compared with the task's reference and
never with a recomputation, so a broken key is as wrong here as in any data set; an unfinished answer is wrong unless it
was our side that ended it (cancelled, parked, failed), which says nothing about the policy; the gate never refuses an
answer that the verifier accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from gfcr.domains.programs.language import LETTERS, OPERATORS, PAIR, Program, apply, interpret, parse_answer, parse_prompt
from gfcr.errors import DataError
from gfcr.types import Status, StopReason, Task, Verdict

_OURS = frozenset({StopReason.CANCELLED, StopReason.PARKED, StopReason.FAILED})


def expected_final(task: Task) -> str | None:
    """The final pair that the task's reference names (`{"final": "55"}` or `"55"`); None when it names none."""
    reference = task.reference
    final = reference.get("final") if isinstance(reference, Mapping) else reference
    return final if isinstance(final, str) and PAIR.fullmatch(final) else None


def no_final(task: Task) -> str:
    """Why a task's reference names no final pair."""
    if task.reference is None:
        return "the task has no reference"
    return f"the reference {str(task.reference)[:60]!r} names no final pair of registers in 0..6"


def check_outcome(expected: str, text: str, stop: StopReason) -> tuple[bool, str]:
    """(right, reason): right iff the text after the first `#` is exactly `expected` and the end token was emitted."""
    body, mark, final = text.partition("#")
    if stop is not StopReason.EOS:
        return False, f"no end token: the answer stopped with {stop} after {len(text)} characters"
    if not mark:
        return False, f"no `#` in the {len(body)} characters of the answer"
    if final != expected:
        return False, f"final is {final[:12]!r}, the reference is {expected!r}"
    return True, f"final {final!r} is the reference's"


def step_labels(
    program: Program, text: str, against: Literal["truth", "previous"] = "truth", complete: bool = True
) -> tuple[tuple[int, int, float | None], ...]:
    """(start, end, value) of each trace line of an answer, in answer-token offsets (one character is one token).

    A line is right (1.0) when its letter is the next step's, or repeats the last step's, its operator is that step's, and
    its values follow: from the true state (`truth`: a line after a mistake is wrong until the values are right again) or
    from what the line before claimed (`previous`: only the line with the mistake is wrong). Characters that belong to no
    line are wrong (0.0), as one span. The final pair has no label: the outcome judges it. With `complete=False` (a limit cut
    the answer) a last piece that may be the beginning of a line has the value None.
    """
    answer, states = parse_answer(text), interpret(program)
    out: list[tuple[int, int, float | None]] = []
    done = 0  # steps written so far, right or wrong
    before: dict[int, tuple[int, int]] = {0: (program.x, program.y)}  # claimed values before each step
    for line in answer.lines:
        if not line.formed:
            cut = not complete and answer.final is None and line.end == len(text) and _begins_line(line.text)
            out.append((line.start, line.end, None if cut else 0.0))
            continue
        step = LETTERS.index(line.text[0]) - program.start
        values = (int(line.text[2]), int(line.text[3]))
        right = False
        if 0 <= step < program.length and step in (done, done - 1):
            operator = program.operators[step]
            expected = states[step] if against == "truth" else apply(operator, *before[step])
            right = line.text[1] == operator and values == expected
            before[step + 1] = values
            done = max(done, step + 1)
        out.append((line.start, line.end, float(right)))
    return tuple(out)


def _begins_line(text: str) -> bool:
    """Whether a line could begin with `text`: a letter, then an operator, then a register."""
    return len(text) < 4 and all(c in allowed for c, allowed in zip(text, (LETTERS, OPERATORS, "0123456")))


@dataclass(frozen=True, slots=True)
class ExactVerifier:
    """Outcome verdict: score 1 and correct, or score 0 and wrong."""

    bounded: ClassVar[bool] = True
    name: ClassVar[str] = "programs.exact"
    version: ClassVar[str] = "1"

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        """`text` is the policy's own answer without special tokens. UNSCORABLE for a bad reference or an answer we ended."""
        expected = expected_final(task)
        if expected is None:
            return Verdict(
                self.name,
                self.version,
                Status.UNSCORABLE,
                evidence=no_final(task),
            )
        if stop in _OURS:
            return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=f"the answer is unfinished: {stop}")
        right, evidence = check_outcome(expected, text, stop)
        final = text.partition("#")[2]
        answer = final if PAIR.fullmatch(final) else None
        return Verdict(self.name, self.version, Status.SCORED, float(right), right, evidence, answer=answer)


@dataclass(frozen=True, slots=True)
class FormatGate:
    """Refuses finished answers that state no final pair. Whatever stands before the first `#` is the policy's own affair (a
    direct guess, repeated lines, odd characters), because the verifier does not read it; cut answers pass on to the
    verifier, which scores them as wrong.
    """

    bounded: ClassVar[bool] = True
    name: ClassVar[str] = "programs.format"
    version: ClassVar[str] = "1"

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        """SCORED 1.0 (it may pass; says nothing about correctness), INVALID, or UNSCORABLE for an answer we ended."""
        if stop in _OURS:
            return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=f"the answer is unfinished: {stop}")
        if stop is not StopReason.EOS:
            return Verdict(self.name, self.version, Status.SCORED, 1.0, evidence=f"cut ({stop}), its format is not judged")
        answer = parse_answer(text)
        if answer.final is None:
            return Verdict(self.name, self.version, Status.INVALID, evidence="no `#` before the end")
        if not PAIR.fullmatch(answer.final):
            return Verdict(
                self.name,
                self.version,
                Status.INVALID,
                evidence=f"{answer.final[:12]!r} after the first `#` is not one pair of registers in 0..6",
            )
        odd = sum(not line.formed for line in answer.lines)
        evidence = f"well formed, {len(answer.lines)} lines" if not odd else f"a final pair after {odd} odd stretches"
        return Verdict(self.name, self.version, Status.SCORED, 1.0, evidence=evidence)


@dataclass(frozen=True, slots=True)
class ProgramSteps:
    """Exact label of every trace line; reads the prompt, never the reference, so broken keys do not spoil it."""

    against: Literal["truth", "previous"] = "truth"
    bounded: ClassVar[bool] = True
    name: ClassVar[str] = "programs.steps"
    version: ClassVar[str] = "1"

    def score(self, task: Task, text: str, stop: StopReason) -> tuple[tuple[int, int, float | None], ...]:
        """See `step_labels`. Raises DataError when the task's prompt is not a register program."""
        if not isinstance(task.prompt, str):
            raise DataError(f"task {task.id} has chat messages as prompt", "give register programs as text, like `c-d*?65`")
        return step_labels(parse_prompt(task.prompt), text, self.against, complete=stop is StopReason.EOS)
