"""Register programs: two registers x, y in 0..6 and steps that change them.

A prompt `c-d*?65` lists the steps (a line letter and an operator each), then `?` and the start values of x and y. The
answer has one trace line per step, `<letter><operator><x><y>` with the values after the step, then `#<x><y>`:
`c-15d*55#55`, closed by the end token. Operators, all modulo 7: `+` x = x + y, `-` x = x - y, `*` x = x * y, `s` swaps.

Invariants: every function is pure; one character is one token, so offsets in an answer's text are token offsets of the
answer; parsing takes time linear in the text and never fails on an answer, whatever it holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gfcr.errors import DataError

DOMAIN = "programs"
MODULUS = 7
LETTERS = "abcdefghijklmnop"
OPERATORS = "+-*s"
MAX_STEPS = len(LETTERS)
ANSWER_TOKENS = 64
"""Most new tokens an answer may have, the end token included; the trace of 16 steps needs 68 and cannot fit."""

_PROMPT = re.compile(r"((?:[a-p][-+*s])+)\?([0-6])([0-6])")
_LINE = re.compile(r"[a-p][-+*s][0-6]{2}")
PAIR = re.compile(r"[0-6]{2}")
"""The text of a register pair, the only thing a final answer can be."""


@dataclass(frozen=True, slots=True)
class Program:
    """One register program with its start values. Raises ValueError when it has no prompt text."""

    start: int
    """Index in LETTERS of the first line's letter; the others follow without a gap."""
    operators: str
    """One character of OPERATORS per step, in order."""
    x: int
    y: int

    def __post_init__(self) -> None:
        if not self.operators or set(self.operators) - set(OPERATORS):
            raise ValueError(f"operators {self.operators!r}: need one or more of {OPERATORS!r}")
        if not 0 <= self.start <= MAX_STEPS - len(self.operators):
            raise ValueError(f"{len(self.operators)} steps from letter {self.start} do not fit into {LETTERS}")
        if not (0 <= self.x < MODULUS and 0 <= self.y < MODULUS):
            raise ValueError(f"start values {self.x}, {self.y} are outside 0..{MODULUS - 1}")

    @property
    def length(self) -> int:
        """Number of steps, the measure of difficulty."""
        return len(self.operators)

    @property
    def letters(self) -> str:
        return LETTERS[self.start : self.start + self.length]

    @property
    def prompt(self) -> str:
        steps = "".join(letter + operator for letter, operator in zip(self.letters, self.operators))
        return f"{steps}?{self.x}{self.y}"


def apply(operator: str, x: int, y: int) -> tuple[int, int]:
    """(x, y) after one step; values in 0..6."""
    if operator == "+":
        return (x + y) % MODULUS, y
    if operator == "-":
        return (x - y) % MODULUS, y
    if operator == "*":
        return (x * y) % MODULUS, y
    if operator == "s":
        return y, x
    raise ValueError(f"operator {operator!r} is none of {OPERATORS!r}")


def interpret(program: Program) -> tuple[tuple[int, int], ...]:
    """The register values (x, y) after each step; as many as the program has steps."""
    states, x, y = [], program.x, program.y
    for operator in program.operators:
        x, y = apply(operator, x, y)
        states.append((x, y))
    return tuple(states)


def trace_lines(program: Program) -> tuple[str, ...]:
    """The right trace, one line of four characters per step."""
    return tuple(
        f"{letter}{operator}{x}{y}" for letter, operator, (x, y) in zip(program.letters, program.operators, interpret(program))
    )


def final_pair(program: Program) -> str:
    """The right answer: the two registers after the last step, as text."""
    x, y = interpret(program)[-1]
    return f"{x}{y}"


def reference_answer(program: Program) -> str:
    """The right answer with its trace, without the end token."""
    return "".join(trace_lines(program)) + "#" + final_pair(program)


def parse_prompt(text: str) -> Program:
    """The program of a prompt. Raises DataError when the text is not a prompt of this domain."""
    match = _PROMPT.fullmatch(text)
    if match:
        letters, operators = match[1][::2], match[1][1::2]
        start = LETTERS.index(letters[0])
        if letters == LETTERS[start : start + len(letters)]:
            return Program(start, operators, int(match[2]), int(match[3]))
    raise DataError(
        f"{text[:80]!r} is not a register program",
        "write steps with consecutive letters, `?` and two start values in 0..6, like `c-d*?65`",
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A stretch of an answer before its first `#`."""

    start: int
    """First character, in answer offsets."""
    end: int
    """One past the last."""
    text: str
    formed: bool
    """Whether it is a trace line; else it is a run of characters that belong to none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer taken apart; the lines cover everything before the first `#`."""

    lines: tuple[Line, ...]
    final: str | None
    """All text after the first `#`; None when there is no `#`."""

    @property
    def formed(self) -> bool:
        """Whether it is trace lines (or none) and one final pair, nothing else."""
        return self.final is not None and PAIR.fullmatch(self.final) is not None and all(line.formed for line in self.lines)


def parse_answer(text: str) -> Answer:
    """Take an answer apart (without its end token). Finds the trace lines again after characters that belong to none."""
    body, mark, final = text.partition("#")
    lines, at = [], 0
    for match in _LINE.finditer(body):
        if match.start() > at:
            lines.append(Line(at, match.start(), body[at : match.start()], False))
        lines.append(Line(match.start(), match.end(), match[0], True))
        at = match.end()
    if at < len(body):
        lines.append(Line(at, len(body), body[at:], False))
    return Answer(tuple(lines), final if mark else None)


def sample_program(rng: np.random.Generator, length: int) -> Program:
    """A program of `length` steps, uniform over first letters that fit, operators and start values."""
    start = int(rng.integers(0, MAX_STEPS - length + 1))
    operators = "".join(OPERATORS[i] for i in rng.integers(0, len(OPERATORS), length))
    x, y = rng.integers(0, MODULUS, 2)
    return Program(start, operators, int(x), int(y))
