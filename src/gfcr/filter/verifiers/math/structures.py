"""Reads whole answers: lists, tuples, intervals, sets, matrices, relations, ratios, and values with words after them.

Invariants: those of reader.py; where a text can be read in two ways (`1,234`), every reading is given, the likelier first.
"""

from __future__ import annotations

import re

from gfcr.filter.verifiers.math.reader import Reader
from gfcr.filter.verifiers.math.scanner import DEEPEST
from gfcr.filter.verifiers.math.tree import Node, Unreadable, integer, variables
from gfcr.filter.verifiers.math.units import unit
from gfcr.filter.verifiers.math.vocabulary import CLOSERS

RELATIONS = "=<>≤≥≠≈∈"
MOST_ITEMS = 200
_POWERS = {"squared": 2, "cubed": 3, "factorial": 0}
_SEPARATOR = re.compile(
    r"\s*(?:([,;])\s*(?:⟨?\s*\b(and|or)(?![a-z])\s*⟩?)?|⟨?\s*(?<![a-z\\])(and|or)(?![a-z])\s*⟩?)\s*", re.IGNORECASE
)
_WORDS = re.compile(
    r"(?:⟨[^⟩]*⟩|(?!(?:and|or)\b)[A-Za-zµμ]+\.?|(?<=[A-Za-z⟩.])\s*\^\s*\{?-?\d\}?|(?<=[A-Za-z⟩}\d.])\s*[/*·-]\s*(?=[A-Za-z⟨])|\s+(?=[A-Za-z⟨µμ]))+"
)
_QUALIFIERS = re.compile(
    r"(?:⟨\s*)?(if|for|where|when|with|such|mod|except|unless|as|iff|not|in(?!\s*(?:⟩|\^|$))|is|are|but|has|then|only)\b",
    re.IGNORECASE,
)
_BUILDER = re.compile(r"\s*([A-Za-z])\s*(?:∈\s*ℝ\s*)?[|:]\s*(?!\d)")
_TURNED = re.compile(r"(?=\]|.*\[$)([\[\]])([^\[\]]+)([\[\]])")
_LEADING = re.compile(r"^(?:[=&:\s]|\\(?:Rightarrow|implies|therefore|Longrightarrow|iff|Leftrightarrow)(?![A-Za-z]))+")
_EDGE = re.compile(r"[\s.,;:]+$")


class Structures(Reader):
    def whole(self) -> Node:
        node = self.list_("")
        self.peek()
        if self.i != len(self.s):
            raise self.fail("more than an answer")
        return node

    def list_(self, closer: str) -> Node:
        """Items up to the closing bracket (or the end). A list of one is its item."""
        items, marks = [self.relation()], [""]
        while True:
            match = _SEPARATOR.match(self.s, self.i)
            if match is None or match.end() == self.i:
                break
            self.i = match.end()
            c = self.peek()
            if not c or (closer and c == closer):  # a comma at the end
                if match.group(1) is None:
                    raise self.fail("nothing after the last word")
                break
            items.append(self.relation())
            marks.append((match.group(2) or match.group(3) or "").lower() or match.group(1))
            if len(items) > MOST_ITEMS:
                raise Unreadable(f"more than {MOST_ITEMS} items")
        if len(items) == 1:
            return items[0]
        if ";" in marks and set(marks[1:]) != {";"}:
            return ("group", tuple(_split(items, marks)))
        joined = next((m for m in marks[1:] if m in ("and", "or")), ",")
        return ("list", tuple(items), joined)

    def relation(self) -> Node:
        items, operators = [self.sets()], []
        while (c := self.peek()) and c in RELATIONS:
            self.i += 1
            if c == "=" and self.s[self.i : self.i + 1] == "=":
                raise self.fail("a comparison of code")
            operators.append(c)
            items.append(self.sets())
        return ("rel", tuple(operators), tuple(items)) if operators else items[0]

    def sets(self) -> Node:
        node = self.ratio()
        while (c := self.peek()) and c in "∪∩∖":
            self.i += 1
            other = self.ratio()
            if c == "∖":
                node = ("minus", node, other)
            else:
                kind = "union" if c == "∪" else "cap"
                node = (kind, (*node[1], other)) if node[0] == kind else (kind, (node, other))
        return node

    def ratio(self) -> Node:
        parts = [self.words(self.sum_())]
        while self.peek() == ":":
            self.i += 1
            parts.append(self.words(self.sum_()))
        return parts[0] if len(parts) == 1 else ("ratio", tuple(parts))

    def words(self, node: Node) -> Node:
        """The value with the words after it, if there are any: a unit, or what is counted."""
        c = self.peek()
        if not (c == "⟨" or c.isalpha() or c in "\"'"):
            return node
        match = _WORDS.match(self.s, self.i)
        if match is None or _QUALIFIERS.match(self.s, self.i) or (node[0] == "v" and c != "⟨" and unit(match.group()) is None):
            return node
        self.i = match.end()
        if (power := _POWERS.get(match.group().strip().lower())) is not None:  # 3 squared
            return ("f", "fact", (node,)) if power == 0 else ("^", node, integer(power))
        return ("words", node, match.group().strip())

    def primary(self) -> Node:
        c = self.peek()
        if c == "∅":
            self.i += 1
            return ("set", ())
        return super().primary()

    def inside(self, opener: str) -> Node:
        closer = CLOSERS[opener]
        if opener == "⦃":
            if self.peek() == closer:
                self.i += 1
                return ("set", ())
            builder = _BUILDER.match(self.s, self.i)
            if builder:
                self.i = builder.end()
            node = self.list_(closer)
            self.expect(closer)
            if builder:
                if not _relations(node) or builder.group(1) not in variables(node):
                    raise self.fail("a set by no condition")
                return node if node[0] == "rel" else ("list", node[1], "or" if node[2] == "or" else "and")
            if node[0] == "group":
                raise self.fail("a set of groups")
            return ("set", node[1] if node[0] == "list" else (node,))
        node = self.list_(closer)
        c = self.peek()
        if opener == "{":
            self.expect(closer)
            return node
        if c not in (")", "]"):
            raise self.fail("an open bracket")
        self.i += 1
        if node[0] == "list" and node[2] not in ("and", "or"):
            return ("tuple", opener, c, node[1])
        if c != closer:
            raise self.fail("brackets that do not match")
        return node

    def matrix(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable(f"more than {DEEPEST} nested groups")
        self.i += 1
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        while True:
            if self.peek() == "⟫" and not row:
                break
            row.append(self.sum_())
            c = self.peek()
            if c == "&":
                self.i += 1
                continue
            rows.append(tuple(row))
            row = []
            if c == "⏎":
                self.i += 1
                continue
            if c != "⟫":
                raise self.fail("an open matrix")
            break
        self.i += 1
        self.depth -= 1
        if not rows or len({len(r) for r in rows}) != 1:
            raise self.fail("rows of different length")
        return ("mat", tuple(rows))


def _relations(node: Node) -> bool:
    return node[0] == "rel" or (node[0] == "list" and all(x[0] == "rel" for x in node[1]))


def _split(items: list[Node], marks: list[str]) -> list[Node]:
    groups: list[list[Node]] = [[]]
    for item, mark in zip(items, marks):
        if mark == ";":
            groups.append([])
        groups[-1].append(item)
    return [g[0] if len(g) == 1 else ("list", tuple(g), ",") for g in groups]


def trimmed(text: str) -> str:
    """Tidied text without what leads to the answer (`=`, arrows) and the punctuation that closes it."""
    text = _EDGE.sub("", _LEADING.sub("", text))
    if len(text) < 200 and (turned := _TURNED.fullmatch(text)):  # ]0, 1[
        text = ("(" if turned[1] == "]" else "[") + turned[2] + (")" if turned[3] == "[" else "]")
    return text


def read_tidied(text: str) -> list[Node]:
    """Every reading of the tidied text, the likelier first. Raises Unreadable where there is none."""
    text = trimmed(text)
    if not text:
        raise Unreadable("nothing is there")
    found: list[Node] = []
    why: Unreadable | None = None
    for thousands in (True, False) if "," in text else (True,):
        try:
            node = Structures(text, thousands).whole()
        except Unreadable as error:
            why = why or error
            continue
        except RecursionError:
            raise Unreadable("nested too deeply") from None
        if node not in found:
            found.append(node)
    if not found:
        assert why is not None
        raise why
    return found
