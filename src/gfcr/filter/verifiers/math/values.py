"""Values of expressions: exact where they are rational, else numbers of many digits.

Invariants: every computation is bounded before it is done (bits, factorials, exponents, terms, operations of one verdict); nothing
is equal by resemblance: two numbers count as equal when they agree in all digits that the sizes of their parts allow (at least
40 beyond the smallest part), decimals as written only in all of theirs. What is too large raises TooBig, what has no value
Undefined.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from gfcr.filter.verifiers.math.functions import FUNCTIONS
from gfcr.filter.verifiers.math.tree import Node, TooBig, Undefined, children

BITS = 20_000
"""Bits of the largest exact number."""
OPERATIONS = 12_000
"""Operations of one verdict."""
LARGEST_EXPONENT = 4096
"""Bits of the largest exponent of two that a number may have."""


class Budget:
    """Operations left for one verdict."""

    def __init__(self, operations: int = OPERATIONS) -> None:
        self.left = operations

    def spend(self, n: int = 1) -> None:
        self.left -= n
        if self.left < 0:
            raise TooBig("more operations than one verdict may take")


def bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > BITS or value.denominator.bit_length() > BITS:
        raise TooBig(f"a number of more than {BITS} bits")
    return value


def exact(node: Node, budget: Budget) -> Fraction | None:
    """The rational value; None where it is not rational, has symbols, or exactness is not decided here."""
    budget.spend()
    kind = node[0]
    if kind in ("n", "d"):
        return node[1]
    if kind == "%":
        inner = exact(node[1], budget)
        return None if inner is None else inner / 100
    if kind == "base":
        return Fraction(in_base(node))
    if kind == "+" or kind == "*":
        total = Fraction(0) if kind == "+" else Fraction(1)
        for part in node[1]:
            value = exact(part, budget)
            if value is None:
                return None
            total = bounded(total + value if kind == "+" else total * value)
        return total
    if kind == "^":
        return _exact_power(node, budget)
    if kind == "f":
        return _exact_function(node, budget)
    return None


def in_base(node: Node) -> int:
    """The number that digits in a base are. Raises Undefined for a digit that the base has not."""
    _, digits, base = node
    if not 2 <= base <= 36:
        raise Undefined(f"no base {base}")
    try:
        return int(digits, base)
    except ValueError:
        raise Undefined(f"{digits} has digits that base {base} has not") from None


def _exact_power(node: Node, budget: Budget) -> Fraction | None:
    base, power = exact(node[1], budget), exact(node[2], budget)
    if base is None or power is None:
        return None
    if power.denominator != 1:
        return root(base, power.denominator, power.numerator)
    n = power.numerator
    if base == 0 and n <= 0:
        raise Undefined("zero to the power of zero" if n == 0 else "a division by zero")
    if base in (0, 1) or n == 0:
        return base if n else Fraction(1)
    if base == -1:
        return Fraction(1 if n % 2 == 0 else -1)
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(n) * size > BITS:
        raise TooBig(f"a power of more than {BITS} bits")
    return Fraction(base**n)


def root(value: Fraction, degree: int, power: int = 1) -> Fraction | None:
    """value ** (power / degree) where that is rational and real; None elsewhere."""
    if degree <= 0 or degree > 64 or abs(power) > 64 or (value < 0 and degree % 2 == 0) or (value == 0 and power < 0):
        return None
    top, bottom = _integer_root(abs(value.numerator), degree), _integer_root(value.denominator, degree)
    if top is None or bottom is None:
        return None
    return bounded(Fraction(-top if value < 0 else top, bottom) ** power)


def _integer_root(value: int, degree: int) -> int | None:
    if value < 2:
        return value
    if degree == 2:
        found = math.isqrt(value)
        return found if found * found == value else None
    low, high = 1, 1 << (value.bit_length() // degree + 1)
    while low <= high:
        middle = (low + high) // 2
        power = middle**degree
        if power == value:
            return middle
        low, high = (middle + 1, high) if power < value else (low, middle - 1)
    return None


def _exact_function(node: Node, budget: Budget) -> Fraction | None:
    name, arguments = node[1], node[2]
    if name not in ("root", "abs", "floor", "ceil", "fact", "fact2", "binom", "gcd", "lcm", "max", "min", "gamma"):
        return None
    values = [exact(a, budget) for a in arguments]
    numbers = [v for v in values if v is not None]
    if len(numbers) != len(values) or not numbers:
        return None
    if name == "root" and len(numbers) == 2:
        return root(numbers[0], numbers[1].numerator) if numbers[1].denominator == 1 else None
    if name in ("max", "min"):
        return max(numbers) if name == "max" else min(numbers)
    if name in ("abs", "floor", "ceil"):
        v = numbers[0]
        return abs(v) if name == "abs" else Fraction(math.floor(v) if name == "floor" else math.ceil(v))
    if any(v.denominator != 1 for v in numbers):
        return None
    whole = [v.numerator for v in numbers]
    if name in ("gcd", "lcm"):
        return bounded(Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole)))
    if name == "binom" and len(whole) == 2:
        n, k = whole
        if n < 0 or n > 5000:
            raise TooBig(f"binomial coefficient of {_short(n)}")
        return Fraction(math.comb(n, k) if k >= 0 else 0)
    return Fraction(_factorial(name, whole[0]))


def _factorial(name: str, n: int) -> int:
    if name == "gamma":
        name, n = "fact", n - 1
    if n < 0:
        raise Undefined(f"no factorial of {_short(n)}")
    if n > 3000:
        raise TooBig(f"factorial of {_short(n)}")
    if name == "fact":
        return math.factorial(n)
    return math.prod(range(n, 0, -2))


def _short(n: int) -> str:
    return str(n) if n.bit_length() < 80 else f"a number of {n.bit_length()} bits"


_local = threading.local()


def context(bits: int) -> Any:
    """mpmath's arithmetic of this thread, at a precision (its global one is not safe between threads)."""
    found = getattr(_local, "context", None)
    if found is None:
        import mpmath  # here: importing gfcr stays light

        found = _local.context = mpmath.MPContext()
    found.prec = bits
    return found


class Numbers:
    """Numeric values at one precision and one choice of values for the symbols; `common`: what log without a base means."""

    def __init__(self, bits: int, symbols: Mapping[str, Any], budget: Budget, common: bool = False) -> None:
        self.mp = context(bits)
        self.bits, self.symbols, self.budget, self.common = bits, symbols, budget, common
        self.largest, self.smallest = -(10**9), 10**9
        """Exponents of two of the largest and the smallest number met (zeros left out)."""
        self.real = True
        """Whether every number met was real."""

    def __call__(self, node: Node) -> Any:
        value = self._value(node)
        self._check(value)
        return value

    def _check(self, value: Any) -> None:
        mp = self.mp
        if not mp.isfinite(value):
            raise Undefined("no finite value")
        if mp.im(value):
            self.real = False
        for part in (mp.re(value), mp.im(value)):
            if part:
                size = int(part.man.bit_length() + part.exp)
                if abs(size).bit_length() > LARGEST_EXPONENT:
                    raise TooBig("a number too large to compare")
                self.largest, self.smallest = max(self.largest, size), min(self.smallest, size)

    def _value(self, node: Node) -> Any:
        self.budget.spend()
        mp, kind = self.mp, node[0]
        if kind in ("n", "d"):
            bounded(node[1])
            return mp.mpf(node[1].numerator) / node[1].denominator
        if kind == "v":
            try:
                return self.symbols[node[1]]
            except KeyError:
                raise Undefined(f"{node[1]} has no value") from None
        if kind == "k":
            if node[1] == "inf":
                raise Undefined("infinity is no number")
            return +mp.pi if node[1] == "pi" else +mp.e if node[1] == "e" else mp.mpc(0, 1)
        if kind == "+":
            return mp.fsum([self(x) for x in node[1]])
        if kind == "*":
            product = mp.mpf(1)
            for x in node[1]:
                product = product * self(x)
                self._check(product)
            return product
        if kind == "^":
            return self._power(node)
        if kind == "f":
            return self._function(node[1], node[2])
        if kind == "%":
            return self(node[1]) / 100
        if kind == "deg":
            return self(node[1]) * mp.pi / 180
        if kind == "base":
            return mp.mpf(in_base(node))
        if kind in ("sum", "prod"):
            return self._series(node)
        raise Undefined(f"{kind} has no value")

    def _power(self, node: Node) -> Any:
        mp = self.mp
        self.budget.spend(2)
        exponent = rational_exponent(node[2])
        base, power = self(node[1]), self(node[2])
        if base == 0:
            if mp.re(power) <= 0:
                raise Undefined("a division by zero" if mp.re(power) < 0 else "zero to the power of zero")
            return mp.mpf(0)
        if mp.im(power) == 0 and mp.im(base) == 0 and abs(base) != 1:
            size = abs(mp.log(abs(base), 2) * power)
            if size > mp.mpf(2) ** LARGEST_EXPONENT:
                raise TooBig("a power too large to compare")
        elif abs(power) > 10**6:
            raise TooBig("a complex power too large")
        if exponent is not None and exponent.denominator % 2 and exponent.denominator > 1 and mp.im(base) == 0 and base < 0:
            real = mp.exp(mp.log(-base) * power)  # the real root of an odd degree
            return -real if exponent.numerator % 2 else real
        if exponent is not None and exponent.denominator == 1 and abs(exponent.numerator) < 2**62:
            return mp.power(base, exponent.numerator)
        return mp.power(base, power)

    def _series(self, node: Node) -> Any:
        kind, name, low, high, body = node
        first, last = self._whole(low), self._whole(high)
        if last - first > 2000:
            raise TooBig("a series of more than 2000 terms")
        if mentions(body, name):
            raise Undefined("an index inside a subscript")
        total = self.mp.mpf(0 if kind == "sum" else 1)
        before = self.symbols
        for k in range(first, last + 1):
            self.symbols = {**before, name: self.mp.mpf(k)}
            value = self(body)
            total = total + value if kind == "sum" else total * value
        self.symbols = before
        return total

    def _whole(self, node: Node) -> int:
        value = self(node)
        near = self.mp.nint(self.mp.re(value))
        if abs(value - near) > self.mp.mpf(2) ** (-self.bits // 2) or abs(near) > 10**9:
            raise Undefined("a bound that is no whole number")
        return int(near)

    def _function(self, name: str, arguments: tuple[Node, ...]) -> Any:
        if name.startswith("call "):
            raise Undefined("a function without a definition")
        whole = _exact_function(("f", name, arguments), self.budget) if name in _WHOLE else None
        if whole is not None:
            return self.mp.mpf(whole.numerator) / whole.denominator
        values = [self(a) for a in arguments]
        self.budget.spend(5)  # transcendental functions cost more
        rule = FUNCTIONS.get((name, len(values)))
        if rule is None:
            raise Undefined(f"{name} of {len(values)} values is not computed")
        try:
            return rule(self, *values)
        except (ZeroDivisionError, ValueError) as error:
            raise Undefined(str(error) or "no value") from None


_WHOLE = frozenset({"fact", "fact2", "binom", "gcd", "lcm", "gamma"})


def mentions(node: Node, name: str) -> bool:
    """Whether a symbol below has the name in its index."""
    stack = [node]
    while stack:
        one = stack.pop()
        if one[0] == "v" and "_" in one[1] and name in one[1].partition("_")[2]:
            return True
        stack.extend(children(one))
    return False


def rational_exponent(node: Node) -> Fraction | None:
    try:
        return exact(node, Budget(200))
    except (TooBig, Undefined):
        return None
