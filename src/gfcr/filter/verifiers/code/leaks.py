"""Signs that an answer knows the tests and not the task (card F-07).

- Held-back cases are hidden ones (reference.py): the gap between public and hidden ones shows.
- Perturbed inputs: given inputs, changed a little, and the task's own right program says what is expected of them. Inputs on which
  that program fails are none.
- The scan looks for expected results that stand in the program beside the input they belong to.

Everything here is a function of the task and the answer: judging twice judges alike.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gfcr.filter.verifiers.code.reference import Case, Tests
from gfcr.types.ids import derive_id

_WORD = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z]+")
_TRIES = 8


def perturbed(tests: Tests, n: int, key: str) -> tuple[Case, ...]:
    """Up to `n` new inputs, hidden and without expected values, each a given one with one thing in it changed."""
    rng = random.Random(derive_id("perturbed", key))
    known = {_mark(case) for case in tests.cases}
    found: list[Case] = []
    for i in range(n * _TRIES):
        if len(found) == n:
            break
        case = tests.cases[i % len(tests.cases)]
        if tests.type == "call":
            new = replace(case, args=tuple(_change(list(case.args), rng)), hidden=True, expected=None)
        else:
            new = replace(case, input=_change_text(case.input, rng), hidden=True, expected=None)
        if _mark(new) not in known and (tests.type != "call" or len(new.args) == len(case.args)):
            known.add(_mark(new))
            found.append(new)
    return tuple(found)


def hard_coded(tests: Tests, source: str) -> int:
    """How many cases' expected results stand in the program within reach of the very input they belong to: both as literals on one
    line or the next. Cases whose input or result is too short to tell are not counted."""
    flat = re.sub(r"\s+", " ", source.replace("'", '"'))
    count = 0
    for case in tests.cases:
        given = (
            [_literal(arg) for arg in case.args]
            if tests.type == "call"
            else [_literal(case.input), _literal(case.input.strip())]
        )
        wanted = _literal(case.expected if tests.type == "call" else str(case.expected).strip())
        anchors = [", ".join(given)] if tests.type == "call" else given
        for anchor in anchors:
            if len(anchor) + len(wanted) < 3 or not anchor:
                continue
            pattern = rf"(?<![\w.]){re.escape(anchor)}(?![\w.]).{{0,24}}?(?<![\w.]){re.escape(wanted)}(?![\w.])"
            if re.search(pattern, flat):
                count += 1
                break
    return count


def _literal(value: Any) -> str:
    return repr(value).replace("'", '"')


def _mark(case: Case) -> str:
    return repr((case.args, sorted(case.named.items()), case.input))


def _change(value: Any, rng: random.Random) -> Any:
    """The value with one thing in it changed, its type kept."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-7, -3, -2, -1, 1, 2, 3, 7, 11))
    if isinstance(value, float):
        return value + rng.choice((-1.5, -0.5, 0.25, 0.5, 2.0))
    if isinstance(value, str):
        return _change_text(value, rng)
    if isinstance(value, list) and value:
        i = rng.randrange(len(value))
        return [*value[:i], _change(value[i], rng), *value[i + 1 :]]
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        return {**value, key: _change(value[key], rng)}
    return value


def _change_text(text: str, rng: random.Random) -> str:
    """One number or one word of the text changed."""
    words: Sequence[re.Match[str]] = list(_WORD.finditer(text))
    if not words:
        return text
    at = rng.choice(words)
    word = at[0]
    if word[0].isalpha():
        new = word[1:] + word[0] if len(set(word)) > 1 else word + chr(ord("a") + rng.randrange(26))
    elif "." in word:
        new = str(float(word) + rng.choice((-0.5, 0.5, 1.0)))
    else:
        new = str(int(word) + rng.choice((-2, -1, 1, 2, 5)))
    return text[: at.start()] + new + text[at.end() :]
