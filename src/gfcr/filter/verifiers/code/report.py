"""What running an answer showed, in data and in words.

Invariant: words about a hidden case never hold its input, its expected value or what the answer made of it, below the level `all`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from gfcr.filter.verifiers.code.extract import Answer

Level = Literal["verdict", "error", "case", "all"]


class Fault(StrEnum):
    """What was wrong with an answer."""

    REFUSED = "refused"
    """Not run at all: a file name that leads out of its directory."""
    SYNTAX = "syntax"
    RUNTIME = "runtime"
    """An error was raised, or the process died before it answered."""
    TIME = "time"
    MEMORY = "memory"
    OUTPUT = "output"
    WRONG = "wrong"
    """It ran, with another result."""

    @property
    def broke(self) -> bool:
        """It did not come to a result."""
        return self in (Fault.RUNTIME, Fault.TIME, Fault.MEMORY, Fault.OUTPUT)


@dataclass(frozen=True)
class Failure:
    """The first failing case."""

    fault: Fault
    what: str
    """What happened, without the case's data."""
    case: int = 0
    """Which case, from 0."""
    shown: str = ""
    """The case's data: what was asked, given and wanted."""
    hidden: bool = False
    where: tuple[str, int] | None = None
    """File and line of the answer."""


@dataclass(frozen=True)
class Report:
    """How an answer did on all sets of tests."""

    total: int = 0
    passed: int = 0
    public: tuple[int, int] = (0, 0)
    """Passed and all of the public cases."""
    hidden: tuple[int, int] = (0, 0)
    failure: Failure | None = None
    whole: bool = True
    """Whether every case was run; False after stopping at the first failure."""
    unscorable: str | None = None
    """Why nothing can be said; no fault of the answer's."""
    notes: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.unscorable is None and self.failure is None and self.passed == self.total > 0

    def share(self, hidden: bool) -> float:
        """Passed share of all cases, or of the hidden ones only (where there are any)."""
        passed, total = self.hidden if hidden and self.hidden[1] else (self.passed, self.total)
        return passed / total if total else 0.0

    def plus(self, other: Report) -> Report:
        return replace(
            self,
            total=self.total + other.total,
            passed=self.passed + other.passed,
            public=(self.public[0] + other.public[0], self.public[1] + other.public[1]),
            hidden=(self.hidden[0] + other.hidden[0], self.hidden[1] + other.hidden[1]),
            failure=self.failure or other.failure,
            whole=self.whole and other.whole,
            unscorable=self.unscorable or other.unscorable,
            notes=self.notes + other.notes,
        )


def words(report: Report, answer: Answer, level: Level) -> str:
    """The report in one line: for evidence, and as feedback to a policy that may try again."""
    return _words(report, answer, level).encode("utf-8", "backslashreplace").decode()


def _words(report: Report, answer: Answer, level: Level) -> str:
    if report.unscorable is not None:
        return report.unscorable
    notes = "".join(f"; {note}" for note in report.notes)
    counts = f"{report.passed} of {report.total} cases passed"
    if report.hidden[1] and report.public[1] and report.whole:
        counts += f" (public {report.public[0]} of {report.public[1]}, hidden {report.hidden[0]} of {report.hidden[1]})"
    failure = report.failure
    if failure is None:
        return counts + notes
    if level == "verdict":
        return ("not all cases passed" if not report.whole else counts) + notes
    open_ = level == "all" or (level == "case" and not failure.hidden)
    what = failure.what.partition(":")[0] if failure.hidden and level != "all" else failure.what  # errors quote their input
    shown = failure.shown if open_ else ""
    parts = [shown or what] if failure.fault is Fault.WRONG else [what, *filter(None, [shown])]
    if failure.where is not None:
        file, line = failure.where
        source = answer.source(file, line)
        place = f"line {line}" if len(answer.files) == 1 else f"{file}, line {line}"
        parts.append(f"{place}: {source[:120]}" if source else place)
    if report.total > 1 and failure.fault not in (Fault.SYNTAX, Fault.REFUSED):
        parts.append(f"{'hidden ' if failure.hidden else ''}case {failure.case + 1}")
    if report.total:
        parts.append(counts if report.whole else f"stopped at the first failure of {report.total}")
    return "; ".join(parts) + notes


def short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
