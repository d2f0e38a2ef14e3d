"""The place in a text that is being read, and the numbers there.

Invariants: a number is read with all its digits; length and nesting are bounded.
"""

from __future__ import annotations

import re
from fractions import Fraction

from gfcr.filter.verifiers.math.tree import Node, Unreadable

LONGEST = 3000
"""Characters of the longest answer that is read."""
DEEPEST = 40
"""Nested groups."""
MOST = 1500
"""Primary expressions of one answer."""
LONGEST_NUMBER = 2000
"""Digits of the longest number."""
_NUMBER = re.compile(r"(?:(\d{1,3}(?:,\d{3})+(?!\d))|(\d+))(\.\d+|\.(?!\d|\.))?|(\.\d+)")
_PLAIN_NUMBER = re.compile(r"()(\d+)(\.\d+|\.(?!\d|\.))?|(\.\d+)")
_EXPONENT = re.compile(r"[eE]([+-]?\d{1,6})(?![\d.\w])")
_BASE = re.compile(r"(\d[\dA-Fa-f]*)\s*_\s*(?:\{\s*(?:⟨)?(\d{1,2}|[a-z]{3,7})(?:⟩)?\s*\}|(\d{1,2}))(?![\w^])")
_BASE_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12, "sixteen": 16,
}  # fmt: skip
REPEATING = re.compile(r"\\(?:overline|bar|dot)\s*\{\s*(\d{1,20})\s*\}")
_SPACE = re.compile(r"\s*")
_MIXED = re.compile(
    r"\s*(?:\\frac\s*(?:\{\s*(\d{1,9})\s*\}\s*\{\s*(\d{1,9})\s*\}|(\d)\s*(\d)(?!\d))|(?<=\s)(\d{1,9})\s*/\s*(\d{1,9}))(?![\w/^!_(])"
)

RUN = re.compile(r"[A-Za-z]+")

NAME = re.compile(r"\\([A-Za-z]+)")


class Scanner:
    """A text and how far it is read; `thousands`: whether `1,234` is one number."""

    def __init__(self, text: str, thousands: bool = True) -> None:
        if len(text) > LONGEST:
            raise Unreadable(f"{len(text)} characters are more than {LONGEST}")
        self.s, self.i, self.depth, self.count, self.bars = text, 0, 0, 0, 0
        self.number = _NUMBER if thousands else _PLAIN_NUMBER

    def fail(self, what: str) -> Unreadable:
        return Unreadable(f"{what} at {self.s[self.i : self.i + 20]!r}")

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        match = _SPACE.match(self.s, self.i)
        assert match is not None
        self.i = match.end()
        return self.s[self.i : self.i + 1]

    def expect(self, character: str) -> None:
        if self.peek() != character:
            raise self.fail(f"expected {character!r}")
        self.i += 1

    def numeral(self) -> Node:
        based = _BASE.match(self.s, self.i)
        if based and ((based.group(2) or based.group(3)) in _BASE_WORDS or (based.group(2) or based.group(3)).isdigit()):
            self.i = based.end()
            base = based.group(2) or based.group(3)
            return ("base", based.group(1).upper().lstrip("0") or "0", _BASE_WORDS.get(base) or int(base))
        match = self.number.match(self.s, self.i)
        if match is None:
            raise self.fail("no number")
        if match.end() - match.start() > LONGEST_NUMBER:
            raise Unreadable(f"a number of more than {LONGEST_NUMBER} digits")
        self.i = match.end()
        grouped, digits, decimals, bare = match.groups()
        whole = (grouped or digits or "0").replace(",", "")
        part = (bare or decimals or "").lstrip(".")
        if part and (again := REPEATING.match(self.s, self.i)):
            self.i = again.end()
            return self.repeating(whole, part, again.group(1))
        if (decimals == "." or not part) and (again := REPEATING.match(self.s, self.i)) and decimals:
            self.i = again.end()
            return self.repeating(whole, "", again.group(1))
        if len(part) > 2 and part[-2] == part[-1] and self.s[self.i : self.i + 1] == "…":  # 0.333...
            self.i += 1
            return self.repeating(whole, part, part[-1])
        power = _EXPONENT.match(self.s, self.i)
        shift = 0
        if power:
            self.i = power.end()
            shift = int(power.group(1))
            if abs(shift) > 5000:
                raise Unreadable("an exponent of more than 5000")
        value = Fraction(int(whole + part), 1) * Fraction(10) ** (shift - len(part))
        if part:
            return ("d", value, len((whole + part).lstrip("0")), Fraction(10) ** (shift - len(part)))
        if not power and (mixed := _MIXED.match(self.s, self.i)):
            top, bottom = (int(x) for x in mixed.groups() if x is not None)
            if bottom and top < bottom:
                self.i = mixed.end()
                return ("n", value + Fraction(top, bottom))
        return ("n", value)

    @staticmethod
    def repeating(whole: str, part: str, again: str) -> Node:
        first = Fraction(int(whole + part), 10 ** len(part))
        return ("n", first + Fraction(int(again), (10 ** len(again) - 1) * 10 ** len(part)))
