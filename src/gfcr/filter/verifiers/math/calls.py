"""Commands with arguments: roots, sums and products, functions with and without brackets.

Invariants: those of reader.py, which this is the lower half of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from gfcr.filter.verifiers.math.scanner import NAME, RUN, Scanner
from gfcr.filter.verifiers.math.tree import MINUS, Node, add, integer, negative, over, replaced, times
from gfcr.filter.verifiers.math.vocabulary import CONSTANTS, FUNCTIONS, INVERSE, SHORT_ARGUMENT, SPLITTABLE


class Calls(Scanner, ABC):
    """Reads what follows a function's name."""

    # the upper half: reader.py
    @abstractmethod
    def sum_(self) -> Node:
        """Terms joined by signs."""

    @abstractmethod
    def product(self) -> Node:
        """Factors joined by products and quotients."""

    @abstractmethod
    def factor(self) -> Node:
        """One factor with its exponent and factorials."""

    @abstractmethod
    def primary(self) -> Node:
        """A number, a name, a bracket or a command."""

    @abstractmethod
    def group(self) -> Node:
        """What braces hold, or the one token that stands for them."""

    @abstractmethod
    def exponent(self) -> Node:
        """What stands behind `^`."""

    @abstractmethod
    def signs(self) -> bool:
        """Skips signs; whether they negate."""

    @abstractmethod
    def bracketed(self, opener: str) -> Node:
        """What stands between `opener`, which is next, and its partner."""

    @abstractmethod
    def closed(self, closer: str) -> Node:
        """An expression and the `closer` behind it."""

    @abstractmethod
    def starts_factor(self, c: str, before: int) -> bool:
        """Whether `c` may begin a factor that is multiplied by what ends at `before`."""

    def root(self) -> Node:
        degree: Node = integer(2)
        if self.peek() == "[":
            self.i += 1
            degree = self.closed("]")
        c = self.peek()
        if c.isdigit():  # \sqrt10 is meant as the root of ten
            inside = self.numeral()
        elif c == "(":
            inside = self.bracketed("(")
        else:
            inside = self.group()
        return ("f", "root", (inside, degree))

    def series(self, name: str) -> Node:
        self.expect("_")
        self.expect("{")
        variable = self.peek()
        if not variable.isalpha():
            raise self.fail("no index")
        self.i += 1
        self.expect("=")
        low = self.sum_()
        self.expect("}")
        self.expect("^")
        high = self.group() if self.peek() == "{" else self.primary()
        body = self.product()
        if variable in CONSTANTS:  # here it is an index
            body = replaced(body, CONSTANTS[variable], ("v", variable))
        return (name, variable, low, high, body)

    def function(self, name: str) -> Node:
        power: Node | None = None
        base: Node | None = None
        for _ in range(2):
            if self.peek() == "^" and name != "sqrt":
                self.i += 1
                power = self.exponent()
            if self.peek() == "_" and name == "log":
                self.i += 1
                base = self.group()
        if power == MINUS and name in INVERSE:
            name, power = INVERSE[name], None
        if name == "sqrt" and self.peek() in ("[",):
            return self.root()
        arguments = self.arguments(name)
        node: Node
        if name == "log" and base is not None:
            node = ("f", "logb", (arguments[0], base))
        elif name in ("sqrt", "cbrt"):
            node = ("f", "root", (arguments[0], integer(2 if name == "sqrt" else 3)))
        else:
            node = ("f", name, arguments)
        if name == "cis":
            node = add([("f", "cos", arguments), times([CONSTANTS["i"], ("f", "sin", arguments)])])
        return node if power is None else ("^", node, power)

    def arguments(self, name: str) -> tuple[Node, ...]:
        c = self.peek()
        if c == "(" or c == "{" or (c == "[" and name in SHORT_ARGUMENT):
            inner = self.bracketed(c)
            if inner[0] == "tuple":
                return tuple(inner[3])
            if inner[0] in ("list", "group", "rel", "set"):
                raise self.fail("no argument")
            return (inner,)
        if name in ("root", "sqrt", "cbrt"):
            return (self.group() if not c.isdigit() else self.numeral(),)
        if name not in SHORT_ARGUMENT:
            raise self.fail(f"{name} without brackets")
        sign = self.signs()
        parts = [self.factor()]
        while True:
            before = self.i
            c = self.peek()
            named = NAME.match(self.s, self.i)
            if named and named.group(1) in FUNCTIONS and named.group(1) not in ("gamma", "Gamma"):
                self.i = before
                break
            run = RUN.match(self.s, self.i)
            if run and any(run.group().startswith(f) for f in SPLITTABLE if f in FUNCTIONS):
                self.i = before
                break
            if c == "/" and parts[-1][0] in ("n", "k", "v") and name not in ("ln", "log", "lg"):
                self.i += 1
                parts = [over(times(parts), self.factor())]
            elif c and c not in "([⦅⌊⌈|⟪" and self.starts_factor(c, before):
                parts.append(self.factor())
            else:
                self.i = before
                break
        argument = times(parts)
        return (negative(argument) if sign else argument,)
