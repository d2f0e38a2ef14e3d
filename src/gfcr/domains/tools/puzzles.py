"""Questions that a few lines of Python answer. Invariant: the reference is computed, and one whole number."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import gcd
from random import Random

from gfcr.types import Origin, Task


def task(rng: Random, version: str) -> Task:
    kind = rng.choice(sorted(_KINDS))
    question, result = _KINDS[kind](rng)
    return Task(
        "tools.python",
        f"{question} Compute it with Python, then give only the number after ####.",
        str(result),
        environment={"name": "python"},
        category=kind,
        origin=Origin("generated", "gfcr.tools.python", version),
    )


def _digit_sum(rng: Random) -> tuple[str, int]:
    a, b = rng.randrange(2, 100), rng.randrange(20, 200)
    return f"What is the sum of the decimal digits of {a}**{b}?", sum(map(int, str(a**b)))


def _longest_run(rng: Random) -> tuple[str, int]:
    a, b = rng.randrange(2, 100), rng.randrange(50, 400)
    best = run = 0
    before = ""
    for digit in str(a**b):
        run = run + 1 if digit == before else 1
        best, before = max(best, run), digit
    return f"How long is the longest run of one and the same digit in the decimal digits of {a}**{b}?", best


def _divisible(rng: Random) -> tuple[str, int]:
    n, (a, b, c) = rng.randrange(500, 20_000), rng.sample(range(2, 30), 3)
    count = sum((i % a == 0 or i % b == 0) and i % c != 0 for i in range(1, n + 1))
    return f"How many whole numbers from 1 to {n} are divisible by {a} or by {b}, but not by {c}?", count


def _nth_prime(rng: Random) -> tuple[str, int]:
    n = rng.randrange(20, 2000)
    return f"What is the prime number with index {n}, where 2 has the index 1?", _primes()[n - 1]


def _primes_between(rng: Random) -> tuple[str, int]:
    a = rng.randrange(10, 9_000)
    b = a + rng.randrange(50, 9_000)
    return f"How many prime numbers p are there with {a} <= p <= {b}?", sum(a <= p <= b for p in _primes())


def _last_digits(rng: Random) -> tuple[str, int]:
    a, b = rng.randrange(11, 1000), rng.randrange(1000, 100_000)
    return f"What is {a}**{b} modulo 1000003?", pow(a, b, 1_000_003)


def _odd_squares(rng: Random) -> tuple[str, int]:
    n, m = rng.randrange(100, 5000), rng.randrange(3, 12)
    total = sum(i * i for i in range(1, n, 2) if i % m)
    return f"What is the sum of the squares of all odd numbers below {n} that are not divisible by {m}?", total


def _collatz(rng: Random) -> tuple[str, int]:
    n = value = rng.randrange(10, 100_000)
    steps = 0
    while value != 1:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        steps += 1
    what = "halve it when it is even, else triple it and add 1"
    return f"Start with {n} and repeat: {what}. After how many steps is it 1 for the first time?", steps


def _palindromes(rng: Random) -> tuple[str, int]:
    a = rng.randrange(10, 5000)
    b = a + rng.randrange(100, 20_000)
    count = sum(str(i) == str(i)[::-1] for i in range(a, b + 1))
    return f"How many whole numbers from {a} to {b} read the same backwards in decimal notation?", count


def _gcd_sum(rng: Random) -> tuple[str, int]:
    n = rng.randrange(30, 3000)
    return f"What is the sum of gcd(i, {n}) over all i from 1 to {n}?", sum(gcd(i, n) for i in range(1, n + 1))


_KINDS: dict[str, Callable[[Random], tuple[str, int]]] = {
    "digit sum": _digit_sum,
    "longest run": _longest_run,
    "divisible": _divisible,
    "nth prime": _nth_prime,
    "primes between": _primes_between,
    "power modulo": _last_digits,
    "odd squares": _odd_squares,
    "collatz": _collatz,
    "palindromes": _palindromes,
    "gcd sum": _gcd_sum,
}


@cache
def _primes() -> tuple[int, ...]:
    """All below 20,000."""
    sieve = bytearray([1]) * 20_000
    for i in range(2, 142):
        if sieve[i]:
            sieve[i * i :: i] = bytes(len(range(i * i, 20_000, i)))
    return tuple(i for i in range(2, 20_000) if sieve[i])
