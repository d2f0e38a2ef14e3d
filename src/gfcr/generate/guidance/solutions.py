"""A task's solution, cut at its steps.

`Task.meta["solution"]` is the text of a right answer. It is privileged: no verifier reads it, and the policy meets it through a named
method only (`hint`, `reference`). Invariants: a part of a solution is a whole number of steps and never all of them, so that the answer
is left to the policy; the parts of one solution grow strictly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gfcr.errors import ConfigError
from gfcr.types import Member, Task

SOLUTION = "solution"
AUTHOR = "solution"
"""Author of a segment that holds a solution, whole (`solution`) or in part (`solution:3/9`)."""
_BORDERS = {
    "lines": r"(?<=\n)(?=\S)",
    "paragraphs": r"(?<=\n\n)(?=\S)",
    "sentences": r"(?<=[.!?])\s+(?=\S)",
    "characters": r"(?=[\s\S])",
}


@dataclass(frozen=True, slots=True)
class Steps:
    """A solution and its borders."""

    text: str
    ends: tuple[int, ...]
    """Characters after each step; the last is the whole text."""

    def __len__(self) -> int:
        return len(self.ends)

    def first(self, n: int) -> str:
        """The text of the first n steps, without spaces that a tokenizer would put before what follows."""
        return self.text[: self.ends[n - 1]].rstrip(" ") if n else ""

    def at_share(self, share: float) -> int:
        """The number of steps nearest to this share of the solution, at least 1 and never all."""
        return min(max(round(share * len(self)), 1), len(self) - 1)


class Splitter:
    """Cuts solutions where the recipe says."""

    def __init__(self, at: str, where: str) -> None:
        """`at`: `lines`, `paragraphs`, `sentences`, `characters`, or a regular expression: a step begins at each match. Raises
        ConfigError for an expression that is none; `where` names the setting."""
        try:
            self.border = re.compile(_BORDERS.get(at, at))
        except re.error as error:
            raise ConfigError(
                f"{where} = {at!r} is neither one of {', '.join(_BORDERS)} nor a regular expression: {error}",
                "correct it; a step begins at each match",
            ) from None

    def steps(self, task: Task) -> Steps | None:
        """None for a task without a solution, or with one of a single step: it cannot be given in part."""
        text = solution_of(task)
        if text is None:
            return None
        ends = sorted({m.start() for m in self.border.finditer(text)} - {0, len(text)})
        found = Steps(text, (*ends, len(text)))
        return found if len(found) > 1 else None


def solution_of(task: Task) -> str | None:
    """The task's solution; None where it has none."""
    found = task.meta.get(SOLUTION)
    return found if isinstance(found, str) and found.strip() else None


def need_solutions(tasks: Sequence[Task], who: str) -> None:
    """Raise ConfigError when no task has a solution."""
    if tasks and not any(solution_of(task) is not None for task in tasks):
        raise ConfigError(
            f"{who} shows the policy parts of solutions, and none of the {len(tasks)} tasks has one",
            'give the task file a column `solution` (or name it: tasks.columns = { solution = "..." })',
        )


def need_steps(tasks: Sequence[Task], splitter: Splitter, where: str) -> None:
    """Raise ConfigError when every solution is one step: no part of one could ever be given."""
    solved = [task for task in tasks if solution_of(task) is not None]
    if solved and not any(splitter.steps(task) for task in solved):
        raise ConfigError(
            f"{where} leaves every solution in one step ({(solution_of(solved[0]) or '')[:40]!r}, say), so no part of one can be given",
            f"name what begins a step: {', '.join(_BORDERS)}, or a regular expression (of the lab's programs: recipes/hint.toml)",
        )


def author(steps: int, of: int) -> str:
    return f"{AUTHOR}:{steps}/{of}"


def given(member: Member) -> int | None:
    """Steps of the solution that a member's context holds; None for none."""
    for node in member.rollout.path:
        name, _, part = node.segment.author.partition(":")
        if name == AUTHOR and part:
            return int(part.partition("/")[0])
    return None
