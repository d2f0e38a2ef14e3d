"""Finding the final answer in a text, and telling whether two answers are the same.

Invariants: the last marked answer counts, wherever it stands (nothing is searched in a tail only); a text without the mark has
no answer (None), which is not the empty answer; every function takes time linear in the text, so a verifier built on them is
bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

LONGEST_NUMBER = 400
"""Digits of the longest text read as a number; longer ones are compared as text."""


class Extract(StrEnum):
    """Where the final answer stands."""

    HASH = "hash"
    """After the last `####`, to the end of its line (GSM8K)."""
    BOXED = "boxed"
    r"""Inside the last `\boxed{...}` or `\fbox{...}` whose braces close (MATH)."""
    TAGS = "tags"
    """Inside the last `<answer>...</answer>`."""
    LAST_NUMBER = "last-number"
    """The last number of the text."""
    WHOLE = "whole"
    """The whole text."""


_BOX = re.compile(r"\\f?boxed\s*\{|\\fbox\s*\{|[{}]|\\.", re.DOTALL)
_NUMBER = re.compile(r"[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+−]?\.\d+")
_PLAIN = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:/[-+]?\d+)?")
_FRACTION = re.compile(r"([-+]?)\\[dt]?frac\s*\{([-+]?\d+)\}\s*\{([-+]?\d+)\}")
_SIZING = re.compile(r"\\(?:left|right)(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def extract(text: str, mode: Extract) -> str | None:
    """The final answer as written, stripped; None where the text marks none."""
    found = _FINDERS[mode](text)
    return None if found is None else found.strip()


def _hash(text: str) -> str | None:
    _, mark, after = text.rpartition("####")
    return after.lstrip(" #").partition("\n")[0] if mark else None


def _boxed(text: str) -> str | None:
    """One pass with a stack of open braces; of the boxes that close, the one that opens last."""
    best, opened = None, -1
    stack: list[int | None] = []
    for token in _BOX.finditer(text):
        kind = token.group()
        if kind == "}":
            if stack and (start := stack.pop()) is not None and start > opened:
                best, opened = text[start : token.start()], start
        elif kind == "{":
            stack.append(None)
        elif kind.endswith("{"):
            stack.append(token.end())
    return best


def _tags(text: str) -> str | None:
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    return text[start + len("<answer>") : end] if start >= 0 else None


def _last_number(text: str) -> str | None:
    found = None
    for found in _NUMBER.finditer(text):  # noqa: B007  (the last one is wanted)
        pass
    if found is None:
        return None
    number = found.group()
    return number[1:] if number[0] in "-+−" and found.start() and text[found.start() - 1].isalnum() else number  # 3-2 ends in 2


_FINDERS: dict[Extract, Callable[[str], str | None]] = {
    Extract.HASH: _hash,
    Extract.BOXED: _boxed,
    Extract.TAGS: _tags,
    Extract.LAST_NUMBER: _last_number,
    Extract.WHOLE: lambda text: text,
}


def reference_answer(reference: object, mode: Extract) -> str | None:
    """The final answer a reference is: itself, or what `mode` finds in a worked solution; None where that would drop a part of it
    (`12:30` has two numbers, so its last one is not the answer)."""
    text = format(Decimal(repr(reference)), "f") if isinstance(reference, float) else str(reference)
    if number(text) is not None:
        return text
    if mode is Extract.LAST_NUMBER:
        return extract(text, mode) if len(_NUMBER.findall(text)) == 1 else None
    return extract(text, mode) or text


def number(text: str) -> Fraction | None:
    r"""The number a text is: `1,234.50`, `$18`, `-3/4`, `\frac{3}{4}`, `42.`; None for any other text. Exact, no floats."""
    text = _bare(text)
    if len(text) > LONGEST_NUMBER:
        return None
    if found := _FRACTION.fullmatch(text):
        top, bottom = int(found[1] + "1") * int(found[2]), int(found[3])
        return Fraction(top, bottom) if bottom else None
    text = _THOUSANDS.sub("", text)
    if not _PLAIN.fullmatch(text):
        return None
    top_text, _, bottom_text = text.partition("/")
    bottom = int(bottom_text) if bottom_text else 1
    return Fraction(top_text) / bottom if bottom else None


def normalise(text: str) -> str:
    """A text for comparison: blanks collapsed, LaTeX spacing, `$` around it and a full stop at its end left out."""
    return " ".join(_bare(text).split())


def same(answer: str, reference: str) -> bool:
    """Whether two answers are equal as numbers, or else as normalised texts. `50%` is not `50`, nor `.5`."""
    left, right = number(answer), number(reference)
    return left == right if left is not None and right is not None else normalise(answer) == normalise(reference)


def _bare(text: str) -> str:
    for mark, plain in (("−", "-"), (r"\!", ""), (r"\,", ""), (r"\;", ""), (r"\$", "$")):
        text = text.replace(mark, plain)
    text = _SIZING.sub("", text)
    text = text.strip().removesuffix(".").strip()
    if text.startswith("$"):
        text = text[1:].removesuffix("$").strip()
    elif text.startswith("-$"):
        text = "-" + text[2:].strip()
    return text
