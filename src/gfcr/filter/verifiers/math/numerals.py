"""Numbers in words (English, Chinese), dates and times: whole texts that are one value.

Invariants: a text is read as a whole or not at all; a date that two countries read in two ways is not read.
"""

from __future__ import annotations

import re
from fractions import Fraction

from gfcr.filter.texts.number_words import ONES, TENS
from gfcr.filter.verifiers.math.tree import Node

SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {
    "half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10, "eleventh": 11, "twelfth": 12, "hundredth": 100, "thousandth": 1000,
}  # fmt: skip
_LETTERS = re.compile(r"[A-Za-z \-]{3,120}")


def number_words(text: str) -> Fraction | None:
    """The number that a whole text of English words says; None where it says none."""
    if not _LETTERS.fullmatch(text):
        return None
    words = [w for w in text.lower().replace("-", " ").split() if w != "and"]
    if not words or len(words) > 20:
        return None
    sign = 1
    if words[0] in ("minus", "negative"):
        sign, words = -1, words[1:]
    if not words:
        return None
    last = words[-1]
    if last == "dozen":
        count = 1 if words[:-1] in ([], ["a"]) else _whole(words[:-1])
        return None if count is None else Fraction(sign * count * 12)
    part = _PARTS.get(last) or _PARTS.get(last.removesuffix("s"))
    if part:
        top = words[:-1]
        if top in ([], ["a"]) and last in ("half", "third", "quarter", "fourth", "fifth") and (top or last == "half"):
            return Fraction(sign, part)
        count = _whole(top)
        return None if count is None else sign * Fraction(count, part)
    if "point" in words:
        return _point(words, sign)
    whole = _whole(words)
    return None if whole is None else Fraction(sign * whole)


def _point(words: list[str], sign: int) -> Fraction | None:
    at = words.index("point")
    whole = _whole(words[:at]) if at else 0
    digits = [ONES.get(w, 10) for w in words[at + 1 :]]
    if whole is None or not digits or max(digits) > 9:
        return None
    return sign * (whole + Fraction(int("".join(map(str, digits))), 10 ** len(digits)))


def _whole(words: list[str]) -> int | None:
    total, current, last = 0, 0, ""
    for word in words:
        if word in ONES and (last in ("", *SCALES) or (last in TENS and 0 < ONES[word] < 10)):
            current += ONES[word]
        elif word in TENS and last in ("", *SCALES):
            current += TENS[word]
        elif word == "hundred" and 0 < current < 100:
            current *= 100
        elif word in SCALES and word != "hundred" and 0 < current < 1000:
            total, current = total + current * SCALES[word], 0
        elif word == "a" and not last and len(words) > 1:
            current = 1
        else:
            return None
        last = word
    return total + current if words else None


_CHINESE = {c: n for n, c in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_CHINESE_SCALES = {"十": 10, "百": 100, "千": 1000}


def chinese_number(text: str) -> Fraction | None:
    """The number that a whole text of Chinese numerals says, up to 万."""
    negative = text.startswith("负")
    text = text.removeprefix("负")
    if not text or len(text) > 12 or any(c not in _CHINESE and c not in _CHINESE_SCALES and c != "万" for c in text):
        return None
    high, mark, low = text.rpartition("万")
    parts = [_chinese_part(high) if mark else 0, _chinese_part(low) if low else 0]
    if None in parts:
        return None
    value = (parts[0] or 0) * 10_000 + (parts[1] or 0)
    return Fraction(-value if negative else value)


def _chinese_part(text: str) -> int | None:
    if not any(c in _CHINESE_SCALES for c in text):
        return int("".join(str(_CHINESE[c]) for c in text)) if text else None
    total, current = 0, None
    for c in text:
        if c in _CHINESE:
            current = _CHINESE[c]
        else:
            total += (1 if current is None else current) * _CHINESE_SCALES[c]
            current = None
    return total + (current or 0)


_MONTHS = {
    m: n
    for n, names in enumerate(
        [
            "january jan",
            "february feb",
            "march mar",
            "april apr",
            "may",
            "june jun",
            "july jul",
            "august aug",
            "september sep sept",
            "october oct",
            "november nov",
            "december dec",
        ],
        1,
    )
    for m in names.split()
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_MONTH_FIRST = re.compile(rf"(?:\w+day,?\s+)?({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\s*(?:,|\s)\s*(\d{{4}})", re.IGNORECASE)
_DAY_FIRST = re.compile(
    rf"(?:\w+day,?\s+)?(?:the\s+)?(\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?[\s-]+({_MONTH})\.?,?[\s-]+(\d{{4}})", re.IGNORECASE
)
_NO_YEAR = re.compile(
    rf"(?:({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?|(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\.?)", re.IGNORECASE
)
_MONTH_YEAR = re.compile(rf"({_MONTH})\.?,?\s+(\d{{4}})", re.IGNORECASE)
_ISO = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})|(\d{4})年(\d{1,2})月(\d{1,2})日?")
_TIME = re.compile(r"(\d{1,2})(?::(\d{2})(?::(\d{2}))?)?\s*([ap])\.?\s*m\.?|(\d{1,2}):(\d{2})(?::(\d{2}))?", re.IGNORECASE)


def date_or_time(text: str) -> Node | None:
    """A whole text as a date or a time of day. Missing parts of a date are 0; a time without am or pm has its hours as written."""
    if len(text) > 40 or not any(c.isdigit() for c in text):
        return None
    text = text.strip().rstrip(".") if not re.search(r"[ap]\.m\.$", text, re.IGNORECASE) else text.strip()
    if m := _ISO.fullmatch(text):
        year, month, day = (int(x) for x in m.groups() if x is not None)
        return _date(year, month, day)
    if m := _MONTH_FIRST.fullmatch(text):
        return _date(int(m[3]), _MONTHS[m[1].lower()], int(m[2]))
    if m := _DAY_FIRST.fullmatch(text):
        return _date(int(m[3]), _MONTHS[m[2].lower()], int(m[1]))
    if m := _NO_YEAR.fullmatch(text):
        return _date(0, _MONTHS[(m[1] or m[4]).lower()], int(m[2] or m[3]))
    if m := _MONTH_YEAR.fullmatch(text):
        return _date(int(m[2]), _MONTHS[m[1].lower()], 0)
    if m := _TIME.fullmatch(text):
        hours, minutes, seconds = (int(x or 0) for x in (m[1] or m[5], m[2] or m[6], m[3] or m[7]))
        if minutes > 59 or seconds > 59:
            return None
        half = (m[4] or "").lower()
        if half and not 1 <= hours <= 12:
            return None
        if half:
            hours = hours % 12 + (12 if half == "p" else 0)
        return ("time", hours, minutes, seconds, bool(half))
    return None


def _date(year: int, month: int, day: int) -> Node | None:
    return ("date", year, month, day) if 1 <= month <= 12 and day <= 31 else None
