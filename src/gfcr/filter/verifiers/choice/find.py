"""The final choice of a whole answer.

Invariants: the last statement that chooses counts; statements that are negated, hypothetical, a question, an empty form or taken back
choose nothing; where nothing is stated, a line that is a choice by itself counts, then a conclusion, then a last sentence that names
one option; adjacent boxes (or tags) are one statement. At most STATEMENTS places are read, from the last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gfcr.filter.texts.lines import lines
from gfcr.filter.texts.stated import LONGEST, Statement, statements
from gfcr.filter.verifiers.choice.options import Options
from gfcr.filter.verifiers.choice.read import Reading, read

STATEMENTS = 200

_DOUBT = re.compile(
    r"(?:\b(?:if|suppose|supposing|assuming|assume|unless|whether|say)\s+(?:that\s+)?(?:the\s+)?(?:correct\s+|final\s+|right\s+)?"
    r"|(?:n['’]t|\bnot)\s+(?:think|believe|mean|say|true|sure|clear)\b[^.\n]{0,25}|\b(?:is|could|would|might)\s+(?:the\s+)?(?:correct\s+|final\s+|right\s+)?)$",
    re.IGNORECASE,
)
_BACK = re.compile(
    r"[^\n.!?]{0,60}[.!?\n]{0,4}\s{0,9}(?:\b(?:wait|no|hmm+|actually|hold\s+on|oops|sorry|on\s+reflection)\b)[^\n]{0,60}?"
    r"\b(?:wrong|incorrect|not\s+(?:right|correct)|(?:is|was)n['’]t\s+(?:right|correct)|mistaken?)\b",
    re.IGNORECASE,
)
_GAP = re.compile(r"(?:[\s,;.&$}\\]|</\w{1,12}\s?>|and|or|quad|text\{|\\[()\[\]])*")
_SO = re.compile(
    r"(?:\b(?:so|therefore|thus|hence|ergo|accordingly|consequently|that\s{1,9}leaves|leaving|leaves|which\s{1,9}is|this\s{1,9}(?:is|matches|means|corresponds\s{1,9}to|gives|"
    r"leaves)|(?:it|that)\s{1,9}(?:is|must\s{1,9}be|should\s{1,9}be|has\s{1,9}to\s{1,9}be)|it's)\b|∴|因此|所以|故)[,:]?\s{0,9}",
    re.IGNORECASE,
)
_IS_RIGHT = re.compile(
    r"[)\]\"'*.]*\s{0,9}(?:is|must\s{1,9}be|seems|looks|appears)\s{1,9}(?:to\s{1,9}be\s{1,9})?(?:therefore\s{1,9}|thus\s{1,9}|clearly\s{1,9}|definitely\s{1,9})?(?:the\s{1,9})?"
    r"(?:correct|right|best|true|answer)\b|\s{0,9},?\s{0,9}(?:it\s{1,9}is\b|(?:is\s{1,9})?(?:my\s{1,9})?final\s{1,9}answer\b)|\s{0,9}(?:是)?(?:正确|对的)",
    re.IGNORECASE,
)
_WORD = re.compile(
    r"(?<![\w'’-])(?:(?:option|choice|answer|statement)\s+)?[(\[*\"']{0,3}([A-Za-z]|\d{1,2})(?![\w'’])", re.IGNORECASE
)
_END = re.compile(r"[)\]\"'*$.!\s]*")
_LINE_LABEL = re.compile(r"^[ \t>*_-]*[(\[]?([A-Za-z]|\d{1,2})[)\].:]", re.MULTILINE)
_NEGATIVE = re.compile(
    r"\b(?:not|no|never|neither|nor|wrong|incorrect|false|unlike|except|rather\s+than|instead\s+of)\b|n['’]t\b|不|错",
    re.IGNORECASE,
)

_NOT = re.compile(r"\b(?:not|never|neither|nor|cannot)\b|n['’]t\b|不", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Choice:
    """What an answer chose: labels, and where it says so."""

    labels: frozenset[str]
    """Empty: it says that no option fits."""
    start: int
    end: int


def find(zone: str, known: Options) -> Choice | None:
    """The final choice of a text; None where it makes none."""
    floor = 0
    stated = statements(zone)[-STATEMENTS:]
    for place in range(len(stated) - 1, -1, -1):
        found, taken_back = _of(zone, stated, place, known)
        if found is not None:
            return found
        floor = max(floor, taken_back)
        if taken_back:
            break
    return _unstated(zone, floor, known)


def _of(zone: str, stated: list[Statement], place: int, known: Options) -> tuple[Choice | None, int]:
    """What one statement chooses, or where it is taken back (0 where it is not)."""
    here = stated[place]
    content = zone[here.start : min(here.end, here.start + LONGEST)]
    if here.kind == "phrase" and (_DOUBT.search(zone, max(0, here.mark - 60), here.mark) or _asks(content)):
        return None, 0
    reading = read(content, known)
    if reading.why == "none":
        return Choice(frozenset(), here.start, here.end), 0
    if not reading.labels:
        return None, 0
    after = here.end - len(reading.rest) if here.kind == "phrase" else here.end
    if back := _BACK.match(zone, max(after, here.start)):
        return None, back.end()
    labels, start, last = reading.labels, here.start, here.end
    while here.kind in ("box", "tags") and place and stated[place - 1].kind == here.kind:  # \boxed{A}, \boxed{C}
        before = stated[place - 1]
        gap = _GAP.match(zone, before.end)
        if gap is None or gap.end() < here.mark or not (more := read(zone[before.start : before.end], known).labels):
            break
        labels, start, here, place = labels | more, before.start, before, place - 1
    return Choice(labels, start, last), 0


def _asks(content: str) -> bool:
    """Whether the statement is a question."""
    first = re.split(r"[.!\n]", content, maxsplit=1)[0]
    return "?" in first and len(first.partition("?")[0]) < 40


def _unstated(zone: str, floor: int, known: Options) -> Choice | None:
    """The choice of a text that states none: a line that is one, a conclusion, a last sentence that names one option."""
    written = lines(zone, floor)
    if not written:
        return None
    listed = len({m[1].upper() for m in _LINE_LABEL.finditer(zone, floor) if known.label(m[1])}) > 1 and len(written) > 1
    last, first = written[-1], written[0]
    if not listed and (whole := _alone(zone[last[0] : last[1]], known)) is not None:
        return Choice(whole.labels, *last)
    if (said := _concluded(zone, floor, known)) is not None:
        return said
    head = zone[first[0] : min(first[1], first[0] + LONGEST)]
    reading = read(head, known)
    dressed = reading.sure and (re.match(r"\s*[*_]*[(\[]?\w{1,2}[)\].:]", head) or not re.match(r"\s*\w", reading.rest))
    if not listed and reading.labels and (dressed or _END.fullmatch(reading.rest)):
        return Choice(reading.labels, *first)
    if listed and _LINE_LABEL.match(zone, last[0]):
        return None  # the options themselves, once more
    return _named(zone, *last, known)


def _alone(line: str, known: Options) -> Reading | None:
    """The choice that a whole line is: `B`, `(B)`, `**B.**`, `B) Paris`, `Paris`, `A, C`."""
    if len(line) > LONGEST:
        return None
    reading = read(line, known)
    if not reading.labels:
        return None
    if _END.fullmatch(reading.rest):
        return reading
    return reading if re.match(r"\s*[*_]*[(\[]?\w{1,2}[)\]]", line) and reading.sure else None


def _concluded(zone: str, floor: int, known: Options) -> Choice | None:
    """The last `so B.` or `B is correct`."""
    best: Choice | None = None
    for mark in list(_SO.finditer(zone, floor))[-STATEMENTS:]:
        content = zone[mark.end() : _sentence_end(zone, mark.end())]
        reading = read(content, known, loose=True)
        if reading.labels and (
            _END.fullmatch(reading.rest) or (reading.sure and len(reading.labels) == 1 and not _NEGATIVE.search(reading.rest))
        ):
            best = Choice(reading.labels, mark.end(), mark.end() + len(content))
    for word in list(_WORD.finditer(zone, floor))[-STATEMENTS:]:
        label = known.label(word[1])
        if label is not None and _IS_RIGHT.match(zone, word.end()) and (best is None or word.start() >= best.start):
            if word[1] in "aA" and word.group().islower():
                continue
            best = Choice(frozenset([label]), word.start(), word.end())
    return best


def _named(zone: str, start: int, end: int, known: Options) -> Choice | None:
    """The one option that the last sentence of the last line names, in dress (`option B`, `(B)`, `**B**`) or by its text."""
    line = zone[max(start, end - LONGEST) : end].rstrip()
    cut = max((m.end() for m in re.finditer(r"[.!?]\s+(?=\S)", line)), default=0)
    sentence = line[cut:]
    if sentence.endswith("?") or (_NOT if known.words else _NEGATIVE).search(sentence):
        return None
    labels = {
        label
        for m in re.finditer(
            r"\b(?:option|choice)\s+[(\[*\"']{0,3}(\w{1,2})(?!\w)|(?<!\w)\(([A-Z])\)|\*\*\(?([A-Z])\)?[.:]?\*\*",
            sentence,
            re.IGNORECASE,
        )
        if (label := known.label(m[1] or m[2] or m[3])) is not None
    }
    if known.words:
        labels = {label for label in known.labels if re.search(rf"\b{label}\b", sentence, re.IGNORECASE)}
    low = sentence.casefold()
    for label, text in zip(known.labels, known.texts):
        if (len(text) > 1 or text.isdigit()) and re.search(rf"(?<![\w.]){re.escape(text)}(?![\w])(?!\.\d)", low):
            labels.add(label)
    begin = end - (len(line) - cut)
    return Choice(frozenset(labels), begin, end) if len(labels) == 1 else None


def _sentence_end(zone: str, start: int) -> int:
    stop = re.compile(r"[\n;]|[.!?](?=\s|$)").search(zone, start, min(start + LONGEST, len(zone)))
    return stop.end() if stop else min(start + LONGEST, len(zone))
