"""The number an answer gives, and how near it is.

Invariants: exact fractions, no floats; an article is never a number, and a number word counts only where a number is due; two numbers
offered for one (`2 or 3`) are none; relative errors are of the reference, never of the answer.

Source of the accuracy: VSI-Bench, arXiv:2412.14171: MRA = mean over t in {.50, .55, ..., .95} of 1[|y - y*| / |y*| <= 1 - t].
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from gfcr.filter.texts.number_words import ONES, TENS
from gfcr.filter.texts.stated import statements
from gfcr.filter.verifiers.choice.options import plain

THRESHOLDS = tuple(range(50, 100, 5))
"""Percent; ten of them, written out: the official code's float range has ten only through rounding."""
LONGEST = 60
"""Digits and exponent of the longest number read."""
TAIL = 4_000
"""Characters from the end that are read first for a text's last number."""

_SMALL = ONES | TENS
_BIG = {"thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_WORD = rf"(?:{'|'.join([*_SMALL, 'hundred', *_BIG])})"
_DIGITS = (
    r"(?:\d{1,3}(?:,\d{3}){1,20}(?!\d)|\d+)(?:\.\d+)?(?:\s*(?:[eE]|(?:[x×*]|\\times)\s*10\s*\^)\s*\{?[-+]?\d{1,400}\}?)?|\.\d+"
)
_UNIT = r"(?:(?P<square>square|sq\.?)\s*)?(?P<unit>millimet(?:er|re)s?|centimet(?:er|re)s?|kilomet(?:er|re)s?|met(?:er|re)s?|inch(?:es)?|feet|foot|yards?|miles?|mm|cm|km|m|in|ft|yd|mi)(?![A-Za-z])\s*(?P<power>\^?\{?2\}?(?!\d)|²)?"
_NUMBER = re.compile(
    rf"(?P<sign>(?<![\w.)\]])[-+−]\s?)?(?:(?P<top>\d+)\s*/\s*(?P<bottom>\d+)(?![\d/.])|(?P<digits>{_DIGITS})"
    rf"|\b(?P<words>{_WORD}(?:(?:\s+and\s+|[\s-]+){_WORD}){{0,8}})\b)(?P<percent>\s*%)?(?:\s*{_UNIT})?",
    re.IGNORECASE | re.ASCII,
)
_HEDGE = re.compile(
    r"\s*(?:(?:[A-Za-z²]{1,12}\s*)?(?:or|to|-|–|—|~|±|\+/-)|and|/|,|;)\s*(?:(?:about|maybe|perhaps|possibly|even|and|or)\s+)?",
    re.IGNORECASE,
)
_BEFORE = re.compile(r"\b(?:between|either|from)\s+$", re.IGNORECASE)
_NONE = re.compile(r"\W*(?:there\s+(?:are|is)\s+)?(?:none|no|zero|nothing)\b", re.IGNORECASE)
_METRES = {"mm": Fraction(1, 1000), "cm": Fraction(1, 100), "m": Fraction(1), "km": Fraction(1000), "in": Fraction(254, 10000), "ft": Fraction(3048, 10000), "yd": Fraction(9144, 10000), "mi": Fraction(1609344, 1000)}  # fmt: skip
_LONG = (("milli", "mm"), ("centi", "cm"), ("kilo", "km"), ("met", "m"), ("inch", "in"), ("fe", "ft"), ("foot", "ft"), ("yard", "yd"), ("mile", "mi"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """A number in a text."""

    value: Fraction
    start: int
    end: int
    unit: str = ""
    """`m`, `cm2`, ...; empty without one."""
    word: bool = False
    """Written as a word."""


@dataclass(frozen=True, slots=True)
class NoNumber:
    """Why a text gives no number."""

    why: str


def given(zone: str, none_is_zero: bool = False) -> Reading | NoNumber:
    """The number of an answer's last statement; where nothing is stated, its last number (in figures before words). `none_is_zero`:
    "none" and "no chairs" are 0."""
    stated = [s for s in statements(zone) if zone[s.start : s.end].strip(" \t*_$.:{}")]
    if stated:
        last = stated[-1]
        return _first(zone, last.start, last.end, none_is_zero)
    if not zone.strip():
        return NoNumber("the answer is empty")
    if len(zone.strip()) <= 60:
        return _first(zone, 0, len(zone), none_is_zero)
    tail = max(0, len(zone.rstrip()) - TAIL)
    if tail and (blank := re.compile(r"\s").search(zone, tail, tail + 200)):
        tail = blank.end()  # not within a number
    chosen = _counting(zone, tail) or _counting(zone, 0)
    if not chosen:
        return NoNumber("no number in it")
    if len(chosen) > 1 and _offered(zone, chosen[-2], chosen[-1]):
        return NoNumber(f"two numbers for one: {zone[chosen[-2].start : chosen[-1].end][:40]!r}")
    return chosen[-1]


def _counting(zone: str, start: int) -> list[Reading]:
    """Numbers from `start` on: those in figures, else those in words but "one" (in prose it is a pronoun)."""
    found = readings(zone, start)
    return [r for r in found if not r.word] or [r for r in found if r.value != 1]


def _first(zone: str, start: int, end: int, none_is_zero: bool) -> Reading | NoNumber:
    """The first number of a statement, after its last `=` or `≈`; none when another is offered beside it."""
    equals = max((m.end() for m in re.compile(r"=|≈|\\approx").finditer(zone, start, end)), default=start)
    found = readings(zone, equals, end) or readings(zone, start, end)
    if not found:
        if none_is_zero and _NONE.match(zone, start, end):
            return Reading(Fraction(0), start, end, word=True)
        return NoNumber(f"no number in {zone[start:end].strip()[:40]!r}")
    if len(found) > 1 and _offered(zone, found[0], found[1]):
        return NoNumber(f"two numbers for one: {zone[found[0].start : found[1].end][:40]!r}")
    return found[0]


def _offered(zone: str, first: Reading, second: Reading) -> bool:
    """Whether the second number stands beside the first as another answer (`2 or 3`, `2-3`, `between 2 and 3`)."""
    if in_unit(second, first.unit) == first.value:
        return False  # 2.5 m or 250 cm
    between = zone[first.end : second.start]
    if _BEFORE.search(zone, max(0, first.start - 12), first.start) and len(between) < 20:
        return True
    return _HEDGE.fullmatch(between) is not None or (first.end == second.start and zone[second.start] in "-−")


def readings(text: str, start: int = 0, end: int | None = None) -> list[Reading]:
    """All numbers of a text, in order."""
    found = []
    for m in _NUMBER.finditer(text, start, len(text) if end is None else end):
        value = _value(m)
        if value is not None:
            found.append(Reading(value, m.start(), m.end(), _unit(m), m["words"] is not None))
    return found


def number(value: object) -> Reading | None:
    """The number that a reference is: a number, or a text with one number (and perhaps a unit); None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    text = plain(value).strip() if isinstance(value, str) else repr(value)
    found = readings(text)
    return found[0] if len(found) == 1 and not re.sub(r"[\s.]", "", text[: found[0].start] + text[found[0].end :]) else None


def accuracy(value: Fraction, wanted: Fraction) -> Fraction:
    """Mean relative accuracy, 0 to 1 in tenths. A reference of 0 has no relative error: the absolute one takes its place (SPAR-Bench,
    arXiv:2503.22976)."""
    error = abs(value - wanted) / (abs(wanted) or 1)
    return Fraction(sum(100 * error <= 100 - t for t in THRESHOLDS), len(THRESHOLDS))


def in_unit(reading: Reading, unit: str) -> Fraction | None:
    """The value in another unit; as it is where either has none; None for a unit of another kind."""
    if not unit or not reading.unit or unit == reading.unit:
        return reading.value
    if unit.endswith("2") != reading.unit.endswith("2"):
        return None
    power = 2 if unit.endswith("2") else 1
    return reading.value * (_METRES[reading.unit.rstrip("2")] / _METRES[unit.rstrip("2")]) ** power


def _unit(m: re.Match[str]) -> str:
    if not m["unit"]:
        return ""
    name = m["unit"].lower()
    short = name if name in _METRES else next(unit for start, unit in _LONG if name.startswith(start))
    return short + ("2" if m["square"] or m["power"] else "")


def _value(m: re.Match[str]) -> Fraction | None:
    if len(m.group()) > 4 * LONGEST:
        return None
    if m["words"]:
        value = _spelt(re.split(r"[\s-]+", m["words"].lower()))
    elif m["bottom"]:
        value = Fraction(int(m["top"]), int(m["bottom"])) if len(m.group()) <= LONGEST and int(m["bottom"]) else None
    else:
        value = _figures(m["digits"])
    if value is None:
        return None
    value = -value if m["sign"] and m["sign"].strip() != "+" else value
    return value / 100 if m["percent"] else value


def _figures(text: str) -> Fraction | None:
    text = re.sub(r"[\s,{}]", "", text)
    base, _, exponent = re.sub(r"(?:[x×*]|\\times)10\^", "e", text).lower().partition("e")
    if len(base) > LONGEST or (exponent and abs(int(exponent)) > LONGEST):
        return None
    return Fraction(base) * Fraction(10) ** int(exponent or 0)


def _spelt(words: list[str]) -> Fraction | None:
    """`twenty one`, `one hundred and five`, `two thousand`; None for words that make no number."""
    total = group = 0
    last = 10**12
    for word in words:
        if word == "and":
            continue
        if word in _BIG:
            if not group or _BIG[word] >= last:
                return None
            total, group, last = total + group * _BIG[word], 0, _BIG[word]
        elif word == "hundred":
            if not 0 < group < 10:
                return None
            group *= 100
        else:
            value = _SMALL[word]
            room = 10 if value < 10 else 100
            if group % room or (group % 100 and group % 100 < 20) or (value == 0 and len(words) > 1):
                return None
            group += value
    return Fraction(total + group)
