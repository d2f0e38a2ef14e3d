"""Exact arithmetic on a text: fractions, no floats.

    sum = product (("+" | "-") product)*        product = signed (("*" | "/" | "//" | "%") signed)*
    signed = ("+" | "-") signed | power         power = value (("**" | "^") signed)?       value = NUMBER | "(" sum ")"

Invariants: nothing is evaluated but this grammar; text, nesting and numbers are bounded, so every call ends in microseconds to
milliseconds; what is wrong is said with its place. A number may have thousands apart by commas (`1,234.5`).
"""

from __future__ import annotations

import re
from decimal import Context, Decimal
from fractions import Fraction

LONGEST = 2_000
"""Characters of an expression."""
DEEPEST = 60
"""Levels of parentheses and signs."""
BITS = 4_096
"""Of a numerator or denominator, on the way too."""
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?(?:[eE][-+]?\d{1,3}(?!\d))?|\.\d+(?:[eE][-+]?\d{1,3}(?!\d))?)"
    r"|(?P<sign>\*\*|//|[-+*/%^()])|(?P<end>$)|(?P<other>\S))",
    re.ASCII,
)
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\u00a0": " "})


class BadExpression(ValueError):
    """What is no expression, or has no value; the message says why and where."""


def evaluate(text: str) -> Fraction:
    """The value of an expression. Raises BadExpression."""
    if len(text) > LONGEST:
        raise BadExpression(f"{len(text)} characters; at most {LONGEST} are taken")
    return _Parser(text.translate(_SIGNS)).whole()


def written(value: Fraction) -> str:
    """A value as text: a whole number, a decimal fraction where it is one of at most 30 places, else `p/q` and about how much."""
    if value.denominator == 1:
        return str(value.numerator)
    rest, places = value.denominator, 0
    for factor in (2, 5):
        count = 0
        while rest % factor == 0:
            rest, count = rest // factor, count + 1
        places = max(places, count)
    if rest == 1 and places <= 30:
        digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
        return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    about = Context(prec=10).divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{value.numerator}/{value.denominator} (about {about.normalize():g})"


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = [
            (m.lastgroup or "end", m.group(m.lastgroup or 0), m.start(m.lastgroup or 0))
            for m in _TOKEN.finditer(text)
            if m.lastgroup
        ]
        self.at = self.depth = 0

    def whole(self) -> Fraction:
        value = self.sum()
        kind, word, place = self.tokens[self.at]
        if kind != "end":
            raise BadExpression(f"{word!r} at character {place + 1} does not belong there")
        return value

    def sum(self) -> Fraction:
        value = self.product()
        while (sign := self.sign("+", "-")) is not None:
            other = self.product()
            value = _checked(value + other if sign == "+" else value - other)
        return value

    def product(self) -> Fraction:
        value = self.signed()
        while (sign := self.sign("*", "/", "//", "%")) is not None:
            other = self.signed()
            if sign == "*":
                value = _checked(value * other)
            elif not other:
                raise BadExpression("division by zero")
            elif sign == "/":
                value = _checked(value / other)
            else:
                value = _checked(Fraction(value // other) if sign == "//" else value % other)
        return value

    def signed(self) -> Fraction:
        self.depth += 1
        if self.depth > DEEPEST:
            raise BadExpression(f"nested deeper than {DEEPEST} levels")
        sign = self.sign("+", "-")
        value = self.power() if sign is None else self.signed() if sign == "+" else -self.signed()
        self.depth -= 1
        return value

    def power(self) -> Fraction:
        base = self.value()
        if self.sign("**", "^") is None:
            return base
        exponent = self.signed()
        if exponent.denominator != 1:
            raise BadExpression("an exponent that is no whole number has no exact value in general")
        n = exponent.numerator
        if not base:
            if n < 0:
                raise BadExpression("division by zero")
            return Fraction(int(n == 0))
        size = max(abs(base.numerator).bit_length(), base.denominator.bit_length()) - 1
        if size * abs(n) > BITS:
            raise BadExpression(f"a number of more than {BITS} bits")
        return _checked(base**n) if abs(base) != 1 else Fraction(base if n % 2 else 1)

    def value(self) -> Fraction:
        kind, word, place = self.tokens[self.at]
        if kind == "number":
            self.at += 1
            return _checked(Fraction(word.replace(",", "")))
        if word == "(":
            self.at += 1
            value = self.sum()
            if self.sign(")") is None:
                raise BadExpression(f"the parenthesis at character {place + 1} is not closed")
            return value
        raise BadExpression(
            "it ends too early" if kind == "end" else f"{word!r} at character {place + 1}: a number was expected"
        )

    def sign(self, *wanted: str) -> str | None:
        kind, word, _ = self.tokens[self.at]
        if kind != "sign" or word not in wanted:
            return None
        self.at += 1
        return word


def _checked(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > BITS or value.denominator.bit_length() > BITS:
        raise BadExpression(f"a number of more than {BITS} bits")
    return value
