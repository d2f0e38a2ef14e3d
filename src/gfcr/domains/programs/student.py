"""Training text of the warm start: answers as a careful and as a sloppy student would write them.

The clean student makes no mistake and sometimes repeats lines or guesses. The sloppy one errs at random and holds
misconceptions (cells of the operation tables it always learnt wrong), so that its pupil is right greedily far more often
than when sampled, and RL has something to unlearn. After a mistake the student goes on from the wrong value.

Invariants: all draws come from the generator handed in; a misconception changes only the value an operator writes (x), and
`s` has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gfcr.domains.programs.language import ANSWER_TOKENS, MODULUS, Program, apply
from gfcr.domains.programs.tokenizer import END_ID, encode_answer


@dataclass(frozen=True, slots=True)
class Student:
    """How answers are written."""

    styles: tuple[float, float, float]
    """Shares of: trace, trace with repeated lines, direct answer."""
    repeat: float = 0.5
    """Probability that a line is written once more, again and again, in the second style."""
    slips: Mapping[str, float] = field(default_factory=dict)
    """Probability of a random wrong value, by operator."""
    beliefs: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    """Misconceptions: (operator, x, y) -> the wrong new x."""
    conviction: float = 0.7
    """How often a misconception is acted on."""


CLEAN = Student(styles=(0.80, 0.15, 0.05))
SLIPS = {"+": 0.01, "-": 0.02, "*": 0.06, "s": 0.01}
WRONG_SHARE = {"+": 0.10, "-": 0.12, "*": 0.30, "s": 0.0}
"""Share of the 49 cells of each operator's table that the sloppy student has wrong."""


def sloppy_student(rng: np.random.Generator) -> Student:
    """A sloppy student with freshly drawn misconceptions."""
    beliefs: dict[tuple[str, int, int], int] = {}
    for operator, share in WRONG_SHARE.items():
        for cell in rng.choice(MODULUS**2, round(share * MODULUS**2), replace=False):
            x, y = divmod(int(cell), MODULUS)
            beliefs[operator, x, y] = _another(rng, apply(operator, x, y)[0])
    return Student(styles=(0.62, 0.34, 0.04), slips=SLIPS, beliefs=beliefs)


def _another(rng: np.random.Generator, value: int) -> int:
    """A register value other than `value`."""
    return (value + int(rng.integers(1, MODULUS))) % MODULUS


def _step(student: Student, rng: np.random.Generator, operator: str, x: int, y: int) -> tuple[int, int]:
    new_x, new_y = apply(operator, x, y)
    believed = student.beliefs.get((operator, x, y))
    if believed is not None and rng.random() < student.conviction:
        return believed, new_y
    if student.slips and rng.random() < student.slips[operator]:
        return _another(rng, new_x), new_y
    return new_x, new_y


def write_answer(student: Student, rng: np.random.Generator, program: Program) -> list[int]:
    """Token ids of one answer with its end token, cut to ANSWER_TOKENS (what lies beyond is never sampled)."""
    style = rng.choice(3, p=student.styles)
    text, x, y = "", program.x, program.y
    for letter, operator in zip(program.letters, program.operators):
        x, y = _step(student, rng, operator, x, y)
        times = rng.geometric(1 - student.repeat) if style == 1 else 1
        if style != 2:
            text += f"{letter}{operator}{x}{y}" * int(times)
    return [*encode_answer(f"{text}#{x}{y}"), END_ID][:ANSWER_TOKENS]
