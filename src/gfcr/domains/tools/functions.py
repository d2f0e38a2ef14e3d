"""Small functions to write, with tests to see and others that stay hidden. Invariant: what is expected is what a right program, here in
this file, gives; hidden cases are other ones than those shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from gfcr.types import Origin, Task

SHOWN, HIDDEN = 3, 8
"""Cases of each set; fewer hidden ones where a function has not so many different inputs."""
Spec = tuple[str, str, Callable[..., Any], Callable[[Random], list[Any]]]
"""Name and parameters, what it does, a right program, a draw of arguments."""


def task(rng: Random, version: str) -> Task:
    kind = rng.choice(sorted(_SPECS))
    head, words, right, draw = _SPECS[kind](rng)
    cases: dict[str, dict[str, Any]] = {}
    for _ in range(20 * (SHOWN + HIDDEN)):
        args = draw(rng)
        cases.setdefault(repr(args), {"args": args, "expected": right(*args)})
        if len(cases) == SHOWN + HIDDEN:
            break
    found, name = list(cases.values()), head.partition("(")[0]
    public = {"type": "call", "fn": name, "cases": found[:SHOWN]}
    hidden = {"type": "call", "fn": name, "cases": found[SHOWN:]}
    example = found[0]
    given = ", ".join(map(repr, example["args"]))
    prompt = (
        f"Write a Python function `{head}` that {words}. For example, {name}({given}) gives {example['expected']!r}. "
        "Answer with one ```python block that holds the whole program."
    )
    return Task(
        "tools.repair",
        prompt,
        {"tests": {"public": public, "hidden": hidden}},
        environment={"name": "repair"},
        category=kind,
        origin=Origin("generated", "gfcr.tools.repair", version),
    )


def _numbers(rng: Random, least: int = 0, most: int = 8, low: int = -9, high: int = 20) -> list[int]:
    return [rng.randrange(low, high) for _ in range(rng.randrange(least, most))]


def _text(rng: Random, letters: str, least: int = 0, most: int = 12) -> str:
    return "".join(rng.choice(letters) for _ in range(rng.randrange(least, most)))


def _multiples(rng: Random) -> Spec:
    a, b = sorted(rng.sample(range(2, 12), 2))
    words = f"counts the whole numbers from 1 up to, but not including, n that are divisible by {a} or by {b}"
    return "count(n)", words, lambda n: sum(i % a == 0 or i % b == 0 for i in range(1, n)), lambda r: [r.randrange(0, 200)]


def _rotate(rng: Random) -> Spec:
    way, k = rng.choice(("left", "right")), rng.randrange(1, 7)
    words = f"moves the items of a list {k} places to the {way}, those that fall out coming back at the other end"

    def right(items: list[int]) -> list[int]:
        n = (k if way == "left" else -k) % len(items) if items else 0
        return items[n:] + items[:n]

    return "rotate(items)", words, right, lambda r: [_numbers(r)]


def _runs(rng: Random) -> Spec:
    between, least = rng.choice(("", "-", ",", "/")), rng.randrange(1, 4)
    joined = f" joined by {between!r}" if between else ""
    words = f"writes each run of equal letters of at least {least} as the letter and the run's length{joined}, and leaves shorter runs out"

    def right(text: str) -> str:
        found: list[str] = []
        start = 0
        for i in range(1, len(text) + 1):
            if i == len(text) or text[i] != text[start]:
                if i - start >= least:
                    found.append(f"{text[start]}{i - start}")
                start = i
        return between.join(found)

    return (
        "runs(text)",
        words,
        right,
        lambda r: ["".join(r.choice("abc") * r.randrange(1, 5) for _ in range(r.randrange(0, 5)))],
    )


def _largest(rng: Random) -> Spec:
    n, end = rng.randrange(2, 6), rng.choice(("largest", "smallest"))
    words = f"gives the value that is number {n} among the different values of a list, counted from the {end}, or None where there are fewer"

    def right(items: list[int]) -> int | None:
        values = sorted(set(items), reverse=end == "largest")
        return values[n - 1] if len(values) >= n else None

    return "nth(items)", words, right, lambda r: [_numbers(r, 0, 10, 0, 9)]


def _shift(rng: Random) -> Spec:
    k = rng.randrange(1, 26)
    words = f"replaces each letter from a to z by the one {k} places later in the alphabet, going on at a after z, and leaves the rest"

    def right(text: str) -> str:
        return "".join(chr((ord(c) - 97 + k) % 26 + 97) if "a" <= c <= "z" else c for c in text)

    return "shift(text)", words, right, lambda r: [_text(r, "abcxyz ABC!")]


def _merge(rng: Random) -> Spec:
    down, once = rng.random() < 0.5, rng.random() < 0.5
    order = "descending" if down else "ascending"
    words = f"merges two lists of numbers into one in {order} order{', each value once' if once else ''}"

    def right(a: list[int], b: list[int]) -> list[int]:
        return sorted(set(a + b) if once else a + b, reverse=down)

    return "merge(a, b)", words, right, lambda r: [sorted(_numbers(r), reverse=down), sorted(_numbers(r), reverse=down)]


def _balanced(rng: Random) -> Spec:
    pairs = rng.sample(["()", "[]", "{}", "<>"], rng.randrange(1, 4))
    marks = "".join(pairs)
    words = (
        f"tells whether the brackets {' and '.join(pairs)} of a text are balanced and rightly nested, whatever else is in it"
    )

    def right(text: str) -> bool:
        stack: list[str] = []
        for c in text:
            if any(c == pair[0] for pair in pairs):
                stack.append(c)
            elif any(c == pair[1] for pair in pairs) and (not stack or stack.pop() + c not in pairs):
                return False
        return not stack

    def draw(r: Random) -> list[Any]:
        pair = r.choice(pairs)
        return [r.choice(("", pair, f"a{pair}{pair}", _text(r, marks + "a", 0, 6), f"{pair[0]}{r.choice(pairs)}{pair[1]}"))]

    return "balanced(text)", words, right, draw


def _digits(rng: Random) -> Spec:
    base, power = rng.randrange(2, 17), rng.randrange(1, 4)
    raised = "" if power == 1 else f", each raised to the power {power}"

    def right(n: int) -> int:
        total = 0
        while n:
            total, n = total + (n % base) ** power, n // base
        return total

    return "digits(n)", f"sums the digits of n, written in base {base}{raised}", right, lambda r: [r.randrange(0, 100_000)]


def _common(rng: Random) -> Spec:
    least = rng.randrange(1, 5)
    words = (
        f"gives the word of at least {least} letters that occurs most often in a text with words apart by blanks, the first of them in the "
        "text where several do, or None where there is none"
    )

    def right(text: str) -> str | None:
        found = Counter(word for word in text.split() if len(word) >= least)
        return max(found, key=lambda word: found[word]) if found else None

    return (
        "common(text)",
        words,
        right,
        lambda r: [" ".join(r.choice(("a", "to", "sun", "rain", "clouds")) for _ in range(r.randrange(0, 9)))],
    )


def _windows(rng: Random) -> Spec:
    k, what = rng.randrange(2, 6), rng.choice(("largest", "smallest", "sum"))
    hows: dict[str, Callable[[list[int]], int]] = {"largest": max, "smallest": min, "sum": sum}
    how = hows[what]
    words = f"gives, for each stretch of {k} neighbouring numbers of a list from left to right, the {what} of them, as a list"
    return (
        "windows(items)",
        words,
        lambda items: [how(items[i : i + k]) for i in range(len(items) - k + 1)],
        lambda r: [_numbers(r, 0, 9)],
    )


_SPECS: dict[str, Callable[[Random], Spec]] = {
    "multiples": _multiples,
    "rotate": _rotate,
    "runs": _runs,
    "nth": _largest,
    "shift": _shift,
    "merge": _merge,
    "balanced": _balanced,
    "digits": _digits,
    "common": _common,
    "windows": _windows,
}
