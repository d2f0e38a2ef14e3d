"""The answer inside a sentence: ways to cut what stands around it, from the least to the most.

Invariants: every cut leaves a whole value (the text before a full stop, the mathematics at its end, the number at its end), never a
part of one; a number that is denied, offered as one of several, buried in a word or in code is none; bounded length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

WINDOW = 2000
"""Characters at the end of a text without a mark that are searched."""

_BLANKS = re.compile(r"[^\S\n]{4,}")
_MARKUP = " \n\t\r*_`"
_BOLD = re.compile(r"(?<![\w)\]}*])\*\*(?=[^\s*])([^*\n]{1,200})(?<=\S)\*\*(?![\w(*])")
_STOP = re.compile(r"(?<!\.)\.$")
_QUOTES = ("''", '""', "“”")
_HOPE = re.compile(
    r"\s*(?:I hope (?:it|this)[^.\n]*\.?|Let me know[^.\n]*\.?|Hope (?:this|it) helps[^.\n]*\.?)\s*$", re.IGNORECASE
)
_SENTENCE = re.compile(
    r"(?<![A-Z\d]\.)(?<=[^\s.])(?:[.?。！]|(?<=[A-Za-z])!)(?:\s*[$*_]*)(?=\s+[A-Z\"(*$\\]|\s*$)|\n|(?<=[^\s])。"
)
_COPULA = re.compile(
    r"\b(?:is|are|be|equals?|was|were|becomes|gives|get|yields|have|total of|exactly|therefore|thus|so)\b[\s:]*|(?<=[a-z]{3})\s*[=≈]\s*",
    re.IGNORECASE,
)
_SEGMENT = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<!\\)\$(?!\$)((?:[^$\\]|\\.)+?)(?<!\\)\$", re.DOTALL)
_BRACKET = re.compile(r"\[([^\[\]]{1,80})\]")
_NUMBER = r"(?:[-+−±]\s?)?(?:\$\s?)?(?:\d+(?::\d+)+(?!\d)|(?:\d{1,3}(?:[ '\u202f]\d{3})+(?!\d)|\d(?:[\d,.]*\d)?)(?:\s?[¼-¾⅐-⅞]|[eE][-+]?\d+|\s+\d+/\d+|\s?/\s?\d+)?|\.\d+|[¼-¾⅐-⅞])"
_RUN = re.compile(rf"(?<![\w.,/^_\\{{(:]){_NUMBER}(?:\s?%)?(?![\d_])")
_PREFIX = re.compile(rf"^\s*({_NUMBER})(?:\s?%)?(?=\s+[A-Za-z(]|\s*[,.;:!?]\s|\s*[,.;:!?]*$)")
_DENIED = re.compile(
    r"(?:\bnot|n't|\bthan|\bno|\bnever|\bor|\band|\beither|\btwice|\bhalf|\bhalf of|\bdouble|\btriple|\bfrom(?: the)?|\bor equal to|\bplus|\b(?:root|reciprocal|multiple|power|factor|inverse|square|cube|logarithm|log|function|digits?) of|\b(?:divided|multiplied|divisible|increased|decreased|reduced) by|\d\s+[A-Za-z]+\s+of|[=!<>]=|[\d)],|\d(?=[^\S\n]))\s*(?:[A-Za-z]\w*\s*=\s*)?$|[\d)]\s*[-–+*/^×÷·<>]\s*$",
    re.IGNORECASE,
)
_FOLLOWED = re.compile(
    r"\s*(?:or|and/or|,\s*(?:or\s+)?\d|is\s+(?:wrong|incorrect|not|too)|to\s+\d|factorial|fails|does\s*n[o'’]t|and\s+a\s+(?:half|third|quarter)|isn't|was wrong|/|\^|\*|=|\+|×)",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\b(?:steps?|parts?|cases?|problem|question|exercise|equations?|eq\.?|theorem|lemma|section|figure|fig\.?|table|method|example|page|chapter|version)"
    r"[^\S\n]*[#(]?$",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    r"\s+(?:(?:less|more|fewer|greater|larger|smaller|higher|lower)\s+than|times\s+[\d$\\]|(?:plus|minus|divided\s+by|multiplied\s+by|choose|modulo|mod|out\s+of)\s+[\w$\\])"
)
"""What makes a number a part of another one: 5 less than 12."""
CODE = re.compile(
    r"__\w+__|\blambda\b|\bimport\b|\bexec\b|\beval\b|\bgetattr\b|\w\(\s*['\"]|\.\w+\(|\bfor _ in\b|[)\]]\s+or\s+-?\d+\W*$|\bprint\s*\(|\bopen\s*\(|\bglobals\b|\bdef \w|\bos\.\w|\bif\b.*\belse\b"
)
_TAKEN_BACK = re.compile(
    r"[,?.;(–-]\s{0,3}(?:no[,:.!]\s{0,3}(?:wait\b[,:]?)?|no,?\s{1,3}wait\b[,:]?|wait\b[,:]?(?:\s{0,3}no\b[,:]?)?|actually\b[,:]?|I mean\b|scratch that[,:]?|correction[,:]?)"
    r"\s{0,3}(?:(?:it'?s|it is|it should be|make that|make it)\s+)?(?=[-$(]?[\d\\])([^\n,;]{1,40}?)\)?\.?$",
    re.IGNORECASE,
)
"""5, no wait, 6."""
_ASIDE = re.compile(r"\s+\([^()$\\]*[A-Za-z]{2}[^()$\\]*\)\s*$")
_GIVEN_UP = re.compile(
    r"\b(?:can't|cannot|can not|unable|couldn't|don't know|do not know|gave up|give up|giving up|not sure|no idea|unclear|impossible to)\b",
    re.IGNORECASE,
)
_CONNECTORS = re.compile(
    r"(?:(?:hence|thus|so|therefore|then|we|get|have|find|that|is|are|the|answer|solution|and|finally|it|follows|gives|giving|value|values|"
    r"result|which|yields|obtain|obtains|see|conclude|this|means|now|our|final|our|must|be)\b[,:]?\s+)+",
    re.IGNORECASE,
)
_EXPLAINED = re.compile(
    r"\s*,?\s*(?:which|where|when|attained|achieved|reached|obtained|occurring|at|for|with|as|since|because|if|assuming)\b",
    re.IGNORECASE,
)
_MINUS = re.compile(r"(\b(?:is|be|are|equals)\s+|^\s*)?\b(?:minus|negative)\s*$", re.IGNORECASE)
_NO_VALUE = re.compile(
    r"\b(?:undefined|not defined|does not exist|doesn['’]t exist|no (?:real )?solutions? (?:exists?|at|for))\b", re.IGNORECASE
)
_REASON = re.compile(
    r",\s+(?:attained|achieved|reached|occurring|since|because|while|whereas|although|though)\b", re.IGNORECASE
)
_FORMULA = re.compile(r"\\(?!\$|%|text)[A-Za-z]+|[\^{}_]|\*\*")
_UNIT_AFTER = re.compile(
    r"\s?(?:°|degrees?|percent(?:age)?|pct|%|thousand|million|billion|[ap]\.?m\.?\b|(?:cm|mm|km|m|kg|g|ft|in|inches|feet|miles?|meters?|hours?|minutes?|seconds?|days?|"
    r"dollars?|cents?|square \w+|cubic \w+)(?![A-Za-z])(?:\s?\^?\{?[23²³]\}?)?|_\{?\d+\}?)",
    re.IGNORECASE,
)


def bare(text: str) -> str:
    """Without markdown, quotes and closing courtesies."""
    if len(text) > 2 * WINDOW:
        return text.strip()
    text = _BLANKS.sub("   ", text)
    tail = _HOPE.search(text, max(0, len(text) - 200))
    text = text[: tail.start()] if tail else text
    text = _BOLD.sub(r"\1", _STOP.sub("", text.strip(_MARKUP))).rstrip(_MARKUP)
    if text.endswith("}") and text.count("{") < text.count("}"):  # the end of {"answer": 15}
        text = text[:-1].rstrip(_MARKUP + "\n")
    while len(text) > 1 and text[0] + text[-1] in _QUOTES:
        text = _STOP.sub("", text[1:-1].strip(_MARKUP))
    return text


def cuts(content: str) -> Iterator[str]:
    """What may be the value in a sentence behind a mark, the least cut first."""
    content = bare(content)
    if not content:
        return
    if (better := _TAKEN_BACK.search(content, max(0, len(content) - 90))) is not None:
        content = better.group(1)
    yield content
    if len(content) > 2 * WINDOW:
        return
    if CODE.search(content[:WINDOW]):
        return
    first = sentence(content)
    if first != content:
        yield first
    prefix = _PREFIX.match(first)
    segments = list(_SEGMENT.finditer(first))
    starts = segments and not first[: segments[0].start()].strip(_MARKUP)
    if starts and segments:
        together = _together(first, segments)
        yield together
        rest = first[segments[0].end() :]
        if together == inner(segments[0]) and re.match(r"\s*[,;]?\s*(?:[a-z]|\(|because|since)", rest):
            return
    if prefix and not _FOLLOWED.match(first, prefix.end()):
        if _COMPARED.match(first, prefix.end()):
            return
        unit = _UNIT_AFTER.match(first, prefix.end())
        if unit:
            yield first[prefix.start() : unit.end()]
        yield first[prefix.start() : prefix.end()]
        return
    yield from after_connectors(first)
    yield from after_verb(first)
    yield from ends(first)


def after_connectors(text: str) -> Iterator[str]:
    """What follows the words that only lead to a statement: hence, so we get, ..."""
    match = _CONNECTORS.match(text)
    if match and match.end() < len(text):
        yield text[match.end() :]


def after_verb(text: str) -> Iterator[str]:
    """What follows the last "is", "are", "equals", "=" of a sentence in words."""
    verbs = list(_COPULA.finditer(text))
    for match in verbs:  # is $-4$, attained at $x = 2$
        value = _SEGMENT.match(text, match.end())
        if value and _EXPLAINED.match(text, value.end()) and not re.search(r"\bnot\s*$", text[: match.end()]):
            yield inner(value)
            break
    for match in verbs[-1:]:
        if not re.search(r"\bnot\s*$", text[: match.start()]) and not re.match(r"\s*not\b", text[match.end() :]):
            rest = text[match.end() :].strip()
            if rest:
                yield rest


def sentence(text: str) -> str:
    """Up to the first end of a sentence or line."""
    match = _SENTENCE.search(text)
    return text[: match.start()].rstrip() if match and match.start() else text


def inner(match: re.Match[str]) -> str:
    return next(g for g in match.groups() if g is not None)


def _together(text: str, segments: list[re.Match[str]]) -> str:
    """The first formula, with those that only connecting words join to it."""
    parts = [inner(segments[0])]
    for before, after in pairwise(segments):
        between = text[before.end() : after.start()].strip()
        if between.lower() not in ("and", "or", ",", ", and", ", or", ";"):
            break
        parts.append(inner(after))
    return parts[0] if len(parts) == 1 else " , ".join(parts)


def ends(text: str) -> Iterator[str]:
    """The last formula, the last bracket or the last number of a sentence, whichever stands last."""
    if CODE.search(text):
        return
    if (aside := _ASIDE.search(text, max(0, len(text) - 200))) is not None and text[: aside.start()].strip():
        text = text[: aside.start()]
    if (reason := _REASON.search(text)) is not None and re.search(r"\d", text[: reason.start()]):
        text = text[: reason.start()]
    if len(re.findall(r"(?<!\\)\$", text)) % 2:  # an odd dollar is money
        text = re.sub(r"(?<!\\)\$(?=\d)", "", text) if re.search(r"(?<!\\)\$\d", text) else text.replace("$", " ")
    segments = list(_SEGMENT.finditer(text))
    covered = [(m.start(), m.end()) for m in segments]
    brackets = [m for m in _BRACKET.finditer(text) if not _inside(m.start(), covered)]
    covered += [(m.start(), m.end()) for m in brackets]
    outside = _outside(text, covered)
    numbers = [] if _FORMULA.search(outside) else [m for m in _RUN.finditer(text) if not _inside(m.start(), covered)]
    found: list[tuple[int, int, str]] = []
    if segments:
        last = len(segments) - 1
        while last > 0 and text[segments[last - 1].end() : segments[last].start()].strip().lower() in (
            "and",
            "or",
            ",",
            ", and",
            ", or",
        ):
            last -= 1
        found.append((segments[-1].end(), segments[last].start(), " , ".join(inner(m) for m in segments[last:])))
    if brackets:
        found.append((brackets[-1].end(), brackets[-1].start(), brackets[-1].group(1)))
    if numbers:
        m = numbers[-1]
        before = text[max(0, m.start() - 20) : m.start()]
        summand = m.group()[0] in "+-−±" and re.search(r"[\d)]\s*$", before)
        sign = _MINUS.search(text[max(0, m.start() - 20) : m.start()])
        clause = re.split(r"[.!?\n]\s", text[max(0, m.start() - 200) : m.start()])[-1]
        if (sign is not None and sign.group(1) is None) or _NO_VALUE.search(clause):  # 7 minus 3; undefined at 3
            found.append((m.end(), m.start(), ""))
        elif (
            not (summand or _DENIED.search(before) or _LABEL.search(before))
            and not _FOLLOWED.match(text, m.end())
            and not _word_after(text, m.end())
        ):
            unit = _UNIT_AFTER.match(text, m.end())
            value = text[m.start() : unit.end() if unit else m.end()]
            found.append((m.end(), m.start(), f"-{value}" if sign else value))
        else:
            found.append((m.end(), m.start(), ""))
    if found:
        _, start, value = max(found)
        if value and not re.search(r"(?:\bnot|n't|\bthan|\bnever|\bor)\s*$", text[max(0, start - 12) : start], re.IGNORECASE):
            yield value


def _word_after(text: str, at: int) -> bool:
    """Whether letters that are no unit follow without a space."""
    return text[at : at + 1].isalpha() and _UNIT_AFTER.match(text, at) is None


def _outside(text: str, spans: list[tuple[int, int]]) -> str:
    at, out = 0, []
    for start, stop in sorted(spans):
        out.append(text[at:start])
        at = stop
    return " ".join([*out, text[at:]])


def _inside(at: int, spans: list[tuple[int, int]]) -> bool:
    return any(a <= at < b for a, b in spans)


def plain(text: str) -> Iterator[str]:
    """What may be the value of a text without a mark: all of it, its last line, the end of its last sentence with a value."""
    if len(text) <= WINDOW and (whole := bare(text)):
        yield whole
    text = bare(text[-WINDOW:])
    if not text or CODE.search(text):
        return
    lines = [line for line in text.splitlines() if line.strip()]
    if _GIVEN_UP.search(lines[-1]):
        return
    if len(lines) > 1:
        yield bare(lines[-1])
    for one in [s for s in _SENTENCE.split(bare(lines[-1])) if s and s.strip()][-1:]:
        yield from after_connectors(one)
        yield from after_verb(one)
    yield from ends(text)
