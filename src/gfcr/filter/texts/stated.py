r"""Where an answer says what its final answer is: boxes, tags, `####` and phrases ("the answer is ...").

Invariants: linear in the text (every repetition has a bound); a statement is where its words stand, whether they are true, negated
or an empty form (`[your answer]`) is the reader's business; statements come in the order of their texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 400
"""Characters of a phrase's line that belong to its statement."""

_BOX = re.compile(r"\\f?boxed\s*\{|\\fbox\s*\{|[{}]|\\.", re.DOTALL)
_TAG = re.compile(r"<(/?)(?:answer|final_answer|ans)\s*>", re.IGNORECASE)
_HASH = re.compile(r"####[ \t#]*")
_IS = r"(?:is|are|was|were|(?:must|should|would|will|has to|could)\s+be)\b(?:\s{0,9}[:：])?"
_COLON = r"(?:[:：]|->|→|=>|⇒)"
_PHRASE = re.compile(
    rf"""
      \b(?:answers?|(?:correct|right|best|appropriate)\s{{1,9}}(?:option|choice|letter|statement|one)s?|(?:option|choice)s?)
        (?:\s{{1,9}}(?:choice|option|letter))?
        (?:\s{{1,9}}(?:to|for|of|in)\s[^.:：\n]{{1,80}}?|\s{{0,9}}\([^()\n]{{1,40}}\))?
        \s{{0,9}}[*_"']{{0,3}}\s{{0,9}}(?:{_COLON}|{_IS}|=)\s{{0,9}}[*_]{{0,3}}
    | \banswer\s{{1,9}}(?=[(\[*]{{0,3}}(?-i:[A-Z])[)\]*]{{0,3}}[.!]?[ \t]*$)
    | \b(?:I|we)(?:\s{{1,9}}would|\s{{1,9}}will|['’]ll|['’]d|\s{{1,9}}must|\s{{1,9}}should)?\s{{1,9}}(?:choose|chose|pick|select|go\s{{1,9}}with|answer(?:\s{{1,9}}with)?)\b\s{{0,9}}{_COLON}?
    | (?:正确|最终|最后)?(?:答案|选项)(?:应该|应当|应|就)?(?:是|为|选|[:：])\s{{0,9}}[:：]?
    | (?:故|因此|所以|应该?|我|答)选(?:择|项)?\s{{0,9}}[:：]?
    | (?:答え|正解|回答)\s{{0,9}}(?:は|[:：])\s{{0,9}}[:：]?
    | 정답\s{{0,9}}(?:은|[:：])\s{{0,9}}[:：]?
    | \b(?:respuesta|resposta|risposta|réponse|antwort|ответ)(?:\s{{1,9}}(?:\w{{4,10}}))?\s{{0,9}}(?:[:：]|\b(?:es|é|è|est|ist|lautet)\b\s{{0,9}}[:：]?|[—–])
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_HEADING = re.compile(r"^[ \t#*_]*(?:the\s+)?(?:final\s+)?answer[ \t*_]*$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A place where a final answer is said to stand."""

    mark: int
    """Where its mark begins."""
    start: int
    """First character of the answer's words."""
    end: int
    kind: str
    """`box`, `tags`, `hash`, `phrase`."""


def statements(text: str) -> list[Statement]:
    """All statements, ordered by where their words start."""
    found = [*_boxes(text), *_tags(text), *_hashes(text), *_phrases(text)]
    return sorted(found, key=lambda s: (s.start, -s.end))


def _boxes(text: str) -> list[Statement]:
    """Boxes whose braces close."""
    found: list[Statement] = []
    stack: list[re.Match[str] | None] = []
    for token in _BOX.finditer(text):
        kind = token.group()
        if kind == "}":
            if stack and (opened := stack.pop()) is not None:
                found.append(Statement(opened.start(), opened.end(), token.start(), "box"))
        elif kind == "{":
            stack.append(None)
        elif kind.endswith("{"):
            stack.append(token)
    return found


def _tags(text: str) -> list[Statement]:
    """What stands in `<answer>` tags; of nested openings the innermost, and the last one reaches to the end if it is not closed."""
    found: list[Statement] = []
    opened: re.Match[str] | None = None
    for token in _TAG.finditer(text):
        if not token[1]:
            opened = token
        elif opened is not None:
            found.append(Statement(opened.start(), opened.end(), token.start(), "tags"))
            opened = None
    if opened is not None and text[opened.end() :].strip():
        found.append(Statement(opened.start(), opened.end(), len(text), "tags"))
    return found


def _hashes(text: str) -> list[Statement]:
    out = []
    for mark in _HASH.finditer(text):
        end = _line_end(text, mark.end())
        if _PHRASE.search(text, mark.end(), end) is None and _HEADING.match(text, mark.start(), end) is None:
            out.append(Statement(mark.start(), mark.end(), end, "hash"))  # else it is a heading, and the phrase the statement
    return out


def _phrases(text: str) -> list[Statement]:
    """To the end of the line; of the next line with text, where the phrase ends its own."""
    out = []
    for mark in (*_PHRASE.finditer(text), *_HEADING.finditer(text)):
        start = mark.end()
        if not text[start : _line_end(text, start)].strip(" \t*_$"):
            start = next((i for i in range(start, min(start + LONGEST, len(text))) if text[i] not in " \t\n*_$"), len(text))
        out.append(Statement(mark.start(), start, _line_end(text, start), "phrase"))
    return out


def _line_end(text: str, start: int) -> int:
    limit = min(start + LONGEST, len(text))
    end = text.find("\n", start, limit)
    return limit if end < 0 else end
