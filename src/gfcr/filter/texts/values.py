"""JSON values in an answer: strict JSON first, then what people and models write in its place.

Invariants: a value is taken whole or not at all; a value with a doubled key, NaN or infinity is none; numbers keep their digits
(Decimal), so `0.1` is not a float's neighbour; depth and size are bounded, and nothing here raises for any text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from gfcr.filter.texts.fences import blocks

LONGEST = 2_000_000
"""Characters of the longest text that is read."""
DEEPEST = 100
"""Levels of nesting."""
TRIES = 12
"""Bracketed places tried, from the last."""
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‟": '"', "＂": '"', "‘": "'", "’": "'"})
_TRAILING = re.compile(r'("(?:[^"\\\n]|\\.)*(?:"|(?=\n)|\Z))|,(\s*[}\]])')
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*(?:"|(?=\n)|\Z))|//[^\n]*|/\*[^*]*\*/')
_TOKENS = re.compile(r'"(?:[^"\\\n]|\\.)*(?:"|(?=\n)|\Z)|[\[\]{}]')
_OPENS = re.compile(r"[\[{]")
_BEGINS = {
    "{": re.compile(r"""\s{0,99}(?:["'“”„‘/}]|\w{1,40}\s{0,9}:)"""),
    "[": re.compile(r"""\s{0,99}(?:["'“”„‘/\[{(\]\d+.-]|(?:true|false|null|True|False|None)\b)"""),
}
_LITERAL = re.compile(r"""("(?:[^"\\\n]|\\.)*(?:"|(?=\n)|\Z))|'((?:[^'\\\n]|\\.)*)('|(?=\n)|\Z)|\b(True|False|None)\b|([()])""")
_IN_STRING = re.compile(r'\\.|"', re.DOTALL)


class NoValue(ValueError):
    """The text is no value; the message says why."""


def strict(text: str) -> Any:
    """The JSON value a text is. Raises NoValue."""
    if len(text) > LONGEST:
        raise NoValue(f"{len(text)} characters, more than {LONGEST}")
    text = text.strip().lstrip("\ufeff").strip()
    if _depth(text) > DEEPEST:
        raise NoValue(f"nested deeper than {DEEPEST} levels")
    try:
        return json.loads(text, parse_float=_decimal, parse_constant=_constant, object_pairs_hook=_object)
    except NoValue:
        raise
    except json.JSONDecodeError as error:
        raise NoValue(f"no JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError, ArithmeticError) as error:  # a number with too many digits, ...
        raise NoValue(f"no JSON: {error}") from None


def lenient(text: str) -> Any:
    """As `strict`, and also with typographic quotes, comments, commas before a bracket that closes, and Python's literals (single
    quotes, True, None). Raises NoValue with what strict JSON has against it."""
    try:
        return strict(text)
    except NoValue as error:
        if len(text) > LONGEST or _depth(text) > DEEPEST:
            raise
        first = error
    plain = text.strip().lstrip("\ufeff").strip()
    for candidate in (plain, plain.translate(_QUOTES)):
        mended = _TRAILING.sub(lambda m: m[1] or m[2], _COMMENT.sub(lambda m: m[1] or " ", candidate))
        try:
            return strict(mended)
        except NoValue:
            pass
        if candidate[:1] in "[({'":
            try:
                return strict(_LITERAL.sub(_from_python, mended))
            except NoValue:
                pass
    raise first


def find(text: str, mend: bool = True, want: type | None = None) -> tuple[Any, int, int]:
    """(value, start, end) of the answer's JSON value: the whole text, else the last fenced block that is one, else the last
    bracketed place that is one. `want` (dict or list): a value of this type goes before one of another, so that a footnote
    mark `[1]` is not taken for the object before it. `mend`: read leniently. Raises NoValue."""
    read = lenient if mend else strict
    other: tuple[Any, int, int] | None = None
    first: NoValue | None = None
    for start, end in _places(text):
        try:
            found = read(text[start:end]), *_trimmed(text, start, end)
        except NoValue as error:
            first = first or error
            continue
        if want is None or isinstance(found[0], want):
            return found
        other = other or found
    if other is None:
        raise first or NoValue("the answer is empty")
    return other


def _places(text: str) -> Iterator[tuple[int, int]]:
    yield 0, len(text)
    if len(text) > LONGEST:
        return
    for block in blocks(text)[: -TRIES - 1 : -1]:
        yield block.start, block.end
    yield from brackets(text)[: -TRIES - 1 : -1]


def brackets(text: str) -> list[tuple[int, int]]:
    """Places between `{` and `}` or `[` and `]` that match and lie in no other such place, in order. Brackets inside strings do not
    count; one that nothing closes, or behind which no value can begin, is text."""
    stack: list[tuple[str, int]] = []
    waiting = {"{": 0, "[": 0}
    found: list[tuple[int, int]] = []
    at = 0
    while token := (_TOKENS if stack else _OPENS).search(text, at):  # quotes of the prose around are no strings
        kind, at = token.group(), token.end()
        if kind in "{[" and _BEGINS[kind].match(text, token.end()):
            stack.append((kind, token.start()))
            waiting[kind] += 1
        elif kind in "}]":
            wanted = "{" if kind == "}" else "["
            while waiting[wanted]:
                opened, start = stack.pop()
                waiting[opened] -= 1
                if opened == wanted:
                    while found and found[-1][0] > start:
                        found.pop()
                    found.append((start, token.end()))
                    break
    return found


def plain(value: Any) -> Any:
    """The value as plain JSON data, numbers as int or float: for schemas and canonical text."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [plain(v) for v in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    inner = text[start:end]
    return start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


def _depth(text: str) -> int:
    """Deepest nesting of brackets outside double-quoted strings, as far as it matters."""
    depth = deepest = 0
    for token in _TOKENS.finditer(text):
        kind = token.group()
        if kind in "[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > DEEPEST:
                break
        elif kind in "]}":
            depth -= 1
    return deepest


def _decimal(text: str) -> Decimal:
    return Decimal(text)


def _constant(name: str) -> Any:
    raise NoValue(f"{name} is no JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise NoValue(f"the key {key[:40]!r} stands twice in one object")
        made[key] = value
    return made


def _from_python(m: re.Match[str]) -> str:
    """A piece of a Python literal as JSON; a string that does not end stays as it is, and so breaks the value."""
    if m[4]:
        return {"True": "true", "False": "false", "None": "null"}[m[4]]
    if m[5]:
        return "[" if m[5] == "(" else "]"
    if m[1] is not None or not m[3]:
        return m[0]
    return '"' + _IN_STRING.sub(lambda k: {'"': '\\"', "\\'": "'"}.get(k[0], k[0]), m[2]) + '"'
