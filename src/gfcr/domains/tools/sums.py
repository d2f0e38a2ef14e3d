"""Chained sums, for the calculator. Invariant: the reference is the exact value, a whole number."""

from __future__ import annotations

from random import Random

from gfcr.types import Origin, Task


def task(rng: Random, version: str) -> Task:
    """Two to eight terms of two to four digits; of every third task the sum is multiplied."""
    terms = rng.randrange(2, 9)
    values = [rng.randrange(10, 10 ** rng.randrange(2, 5)) for _ in range(terms)]
    signs = [1, *(rng.choice((1, -1)) for _ in range(terms - 1))]
    text = str(values[0]) + "".join(f" {'+' if sign > 0 else '-'} {value}" for sign, value in zip(signs[1:], values[1:]))
    result = sum(sign * value for sign, value in zip(signs, values))
    category = f"{terms} terms"
    if rng.randrange(3) == 0:
        factor = rng.randrange(3, 100)
        text, result, category = f"({text}) * {factor}", result * factor, f"{category}, times"
    prompt = f"What is {text}? Work it out with the calculator, then give only the result after ####."
    return Task(
        "tools.calculator",
        prompt,
        str(result),
        environment={"name": "calculator"},
        category=category,
        origin=Origin("generated", "gfcr.tools.calculator", version),
        meta={"terms": terms},
    )
