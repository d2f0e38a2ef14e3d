"""Reads tidied text into a tree: expressions (structures.py adds lists, relations, sets and the rest).

Invariants: text is read in full or refused (`Unreadable`), never in part; recursion, length and the number of nodes are bounded;
nothing is evaluated and nothing is executed.
"""

from __future__ import annotations

import re
from abc import abstractmethod

from gfcr.filter.verifiers.math.calls import Calls
from gfcr.filter.verifiers.math.scanner import DEEPEST, MOST, NAME, REPEATING, RUN
from gfcr.filter.verifiers.math.tree import Node, Unreadable, add, determinant, integer, negative, over, times
from gfcr.filter.verifiers.math.vocabulary import (
    AS_COMMAND_ONLY,
    CALLED,
    CLOSERS,
    CONSTANTS,
    FUNCTIONS,
    GREEK,
    PLAIN_GREEK,
    SMALL_WORDS,
    SPACED_UNITS,
    SPLITTABLE,
    WORDS,
    measure,
)

_SUBSCRIPT = re.compile(r"_\s*(?:\{([^{}]{1,30})\}|([A-Za-z0-9∞]))")
_PRIMES = re.compile(r"'+|\^\s*\{?'+\}?")


class Reader(Calls):
    """Reads one text."""

    # the upper half: structures.py
    @abstractmethod
    def inside(self, opener: str) -> Node:
        """What stands in brackets, braces and sets, up to the partner of `opener`."""

    @abstractmethod
    def matrix(self) -> Node:
        """A matrix environment."""

    def sum_(self) -> Node:
        """Terms joined by signs."""
        parts: list[Node] = []
        c = self.peek()
        sign = ""
        if c and c in "+-±∓":
            self.i += 1
            sign = c
        while True:
            again = self.signs()  # 3 + -2
            term = self.product()
            term = negative(term) if again else term
            parts.append(
                negative(term)
                if sign == "-"
                else ("pm", term)
                if sign == "±"
                else ("pm", negative(term))
                if sign == "∓"
                else term
            )
            c = self.peek()
            if not c or c not in "+-±∓":
                return add(parts)
            sign = c
            self.i += 1

    def product(self) -> Node:
        """Factors, side by side or joined by `*` and `/`."""
        parts = [self.factor()]
        while True:
            before = self.i
            c = self.peek()
            if c == "*" or c == "/":
                self.i += 1
                sign = self.signs()
                factor = self.factor()
                factor = negative(factor) if sign else factor
                if c == "*":
                    parts.append(factor)
                else:
                    parts = [over(times(parts), factor)]
            elif c and self.starts_factor(c, before):
                parts.append(self.factor())
            else:
                return times(parts)

    def signs(self) -> bool:
        """Reads signs before a factor; whether they make it negative."""
        sign = False
        while (c := self.peek()) and c in "+-":
            self.i += 1
            sign ^= c == "-"
        return sign

    def starts_factor(self, c: str, before: int) -> bool:
        """Whether a factor begins here that is multiplied with the one before, without a sign."""
        if c in "([{⦅⌊⌈⟪π∞√":
            return True
        if c == "|":
            return self.bars == 0
        if c == "\\":
            match = NAME.match(self.s, self.i)
            return (match is not None and match.group(1) not in ("overline",)) or bool(REPEATING.match(self.s, self.i))
        if c.isalpha():
            return self.letters_are_factors(before)
        return (c.isdigit() or c == ".") and self.s[self.i - 1 : self.i] in ("}", ")", "]", "⦆", "⌋", "!") and self.i == before

    def letters_are_factors(self, before: int) -> bool:
        """Whether a run of letters after a factor is algebra, and not a word or a unit."""
        match = RUN.match(self.s, self.i)
        if match is None:
            return ord(self.s[self.i]) > 127 and self.s[self.i] in "φτι"
        run = match.group()
        if run in ("and", "or", "if", "for", "where", "in", "mod", "is", "to", "of", "on", "as"):
            return False
        if run in ("min", "max", "gcd", "lcm", "abs", "floor", "ceil") and self.s[match.end() : match.end() + 1] != "(":
            return False
        spaced = self.i > before
        if len(run) > 1 and self.s[before - 1 : before].isdigit() and measure(run.lower()) and not run.isupper():
            return False
        after_number = self.s[before - 1 : before].isdigit()
        if spaced and after_number and len(run) <= 2 and run in SPACED_UNITS:
            return self.s[match.end() : match.end() + 1] in ("(", "_") or self.followed_by_algebra(match.end())
        return self.split_run(run) is not None

    def followed_by_algebra(self, at: int) -> bool:
        rest = self.s[at:].lstrip()
        return bool(rest) and rest[0] in "+-*=<>≤≥"

    def split_run(self, run: str) -> list[str] | None:
        """Letters as symbols and functions; None where they are a word."""
        if (
            (run in FUNCTIONS and run not in AS_COMMAND_ONLY)
            or run in PLAIN_GREEK
            or run in ("pi", "inf", "infty", "infinity", "oo")
        ):
            return [run]
        out: list[str] = []
        i, letters = 0, 0
        while i < len(run):
            name = next((run[i : i + n] for n in (7, 6, 5, 4, 3, 2) if run[i : i + n] in SPLITTABLE), None)
            if name:
                if letters > 2:  # misSINg
                    return None
                out.append(name)
                i += len(name)
                letters = 0
                continue
            out.append(run[i])
            i += 1
            letters += 1
            if letters > 4 or (letters == 4 and not run.isupper()):
                return None
        if len(run) == letters >= 3 and not run.isupper() and run.lower() in WORDS:
            return None
        if len(run) >= 2 and not run.isupper() and run.lower() in SMALL_WORDS:
            return None
        return out

    def factor(self) -> Node:
        """A primary with its powers, factorials and marks."""
        self.count += 1
        if self.count > MOST:
            raise Unreadable(f"more than {MOST} terms")
        base = self.primary()
        return self.postfix(base)

    def postfix(self, base: Node) -> Node:
        while True:
            at = self.i
            c = self.peek()
            if c == "^":
                primes = _PRIMES.match(self.s, self.i)
                if primes and primes.group().startswith("^") and base[0] == "v":
                    self.i = primes.end()
                    base = ("v", base[1] + "'" * primes.group().count("'"))
                    continue
                self.i += 1
                base = ("^", base, self.exponent())
            elif c == "!" and self.s[self.i : self.i + 2] != "!=":
                double = self.s[self.i : self.i + 2] == "!!"
                self.i += 2 if double else 1
                base = ("f", "fact2" if double else "fact", (base,))
            elif c == "%":
                self.i += 1
                base = ("%", base)
            elif c == "°":
                self.i += 1
                if self.peek() in ("C", "F") and not self.s[self.i + 1 : self.i + 2].isalnum():
                    self.i += 1
                base = ("deg", base)
            else:
                self.i = at
                return base

    def exponent(self) -> Node:
        sign = self.signs()
        power = self.group() if self.peek() == "{" else self.primary()
        end = self.i
        if self.peek() == "^":  # right-associative
            self.i += 1
            power = ("^", power, self.exponent())
        if self.peek() == "!" and self.s[self.i : self.i + 2] != "!=":
            self.i += 1
            power = ("f", "fact", (power,))
        else:
            self.i = end if power[0] != "^" else self.i  # white space tells a unit from a symbol
        return negative(power) if sign else power

    def group(self) -> Node:
        """One argument of a command: a braced group, or what TeX takes as one: a digit, a letter, a command."""
        c = self.peek()
        if c == "{":
            return self.bracketed("{")
        if c.isdigit():
            self.i += 1
            return integer(int(c))
        if c.isalpha():
            self.i += 1
            return self.symbol(c)
        return self.primary()

    def bracketed(self, opener: str) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable(f"more than {DEEPEST} nested groups")
        bars, self.bars = self.bars, 0
        self.i += 1
        node = self.inside(opener)
        self.bars = bars
        self.depth -= 1
        return node

    def primary(self) -> Node:
        c = self.peek()
        if not c:
            raise self.fail("a value is missing")
        if c.isdigit() or c == ".":
            return self.numeral()
        if c in "([{⦃":
            return self.bracketed(c)
        if c in "⦅⌊⌈":
            self.i += 1
            name = {"⦅": "abs", "⌊": "floor", "⌈": "ceil"}[c]
            return ("f", name, (self.closed(CLOSERS[c]),))
        if c == "|":
            self.i += 1
            self.bars += 1
            node = self.closed("|")
            self.bars -= 1
            return ("f", "abs", (node,))
        if c == "⟪":
            return self.matrix()
        if c == "\\":
            return self.command()
        if c in "π∞":
            self.i += 1
            return CONSTANTS[c]
        if c == "…":
            self.i += 1
            return ("dots",)
        if c.isalpha():
            return self.letters(c)
        raise self.fail("no value")

    def closed(self, closer: str) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable(f"more than {DEEPEST} nested groups")
        node = self.sum_()
        self.expect(closer)
        self.depth -= 1
        return node

    def letters(self, c: str) -> Node:
        match = RUN.match(self.s, self.i)
        if match is None:
            if c in "φτι□ℝℚℤℕℂ":
                self.i += 1
                return ("all", c) if c in "ℝℚℤℕℂ" else self.symbol(c)
            raise self.fail("no symbol")
        run = self.split_run(match.group())
        if run is None:
            raise self.fail("a word")
        name = run[0]
        self.i += len(name)
        if name in FUNCTIONS and (len(name) > 1):
            return self.function(FUNCTIONS[name])
        if name in ("pi",):
            return ("k", "pi")
        if name in ("inf", "infty", "infinity", "oo"):
            return ("k", "inf")
        return self.symbol(name)

    def symbol(self, name: str) -> Node:
        """A symbol with its index and primes; a function's letter before a bracket with its arguments."""
        if (sub := _SUBSCRIPT.match(self.s, self.i)) is not None:
            self.i = sub.end()
            index = re.sub(r"\s+", "", sub.group(1) or sub.group(2)).replace("⟨", "").replace("⟩", "")
            name = f"{name}_{index}"
        if (primes := re.compile(r"'+").match(self.s, self.i)) is not None:
            self.i = primes.end()
            name += primes.group()
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name.split("_")[0].rstrip("'") in CALLED and self.s[self.i : self.i + 1] == "(":
            arguments = self.bracketed("(")
            return ("f", f"call {name}", arguments[3] if arguments[0] == "tuple" else (arguments,))
        return ("v", name)

    def command(self) -> Node:
        match = NAME.match(self.s, self.i)
        if match is None:
            raise self.fail("no command")
        name = match.group(1)
        self.i = match.end()
        if name == "frac":
            top, bottom = self.group(), self.group()
            return over(top, bottom)
        if name == "sqrt":
            return self.root()
        if name == "binom":
            return ("f", "binom", (self.group(), self.group()))
        if name in ("boxed", "fbox", "mathrm", "text", "mathbf", "bold", "mathcal", "mathit"):
            return self.group()
        if name == "det":
            return determinant(self.matrix() if self.peek() == "⟪" else self.bracketed(self.peek()))
        if name in ("sum", "prod"):
            return self.series(name)
        if name == "Gamma" and self.peek() in "({":
            return self.function("gamma")
        if name == "exp":
            return self.function("exp")
        if name in FUNCTIONS and name not in ("gamma", "Gamma"):
            return self.function(FUNCTIONS[name])
        if name in ("arg", "lim", "int", "iint", "oint", "cases", "forall", "exists", "not", "begin", "end"):
            raise self.fail(f"\\{name} is not read")
        if name in GREEK:
            return self.symbol(f"\\{name}")
        raise self.fail(f"\\{name} is not known")
