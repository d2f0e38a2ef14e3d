"""A reference and an answer as texts: what they say, read once, and how they are compared.

Invariants: what cannot be read in full is compared as a whole text or not at all; a reference that says nothing (empty, null, nan, only
an empty box) judges nobody.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from gfcr.filter.verifiers.math.choice import gold_letter
from gfcr.filter.verifiers.math.extract import Found, find
from gfcr.filter.verifiers.math.normalise import text_key, tidy
from gfcr.filter.verifiers.math.numerals import chinese_number, date_or_time, number_words
from gfcr.filter.verifiers.math.settle import settle
from gfcr.filter.verifiers.math.structures import read_tidied, trimmed
from gfcr.filter.verifiers.math.tree import Node, Unreadable
from gfcr.filter.verifiers.math.units import SIGN, unit

LONGEST_TEXT = 2000
"""Characters of the longest text that is read as mathematics."""
_PLAIN = re.compile(r"[-+]?(?:\d{1,300}(?:\.\d{1,300})?|\.\d{1,300})")
_COMMA = re.compile(r"([-+]?)(\d{1,9}),(\d{1,9})")
_DOTS = re.compile(r"([-+]?\d{1,3}(?:\.\d{3}){1,6}),(\d{1,9})|([-+]?\d{1,3}(?:\.\d{3}){2,6})")
_SPACED = re.compile(r"([-+]?\d{1,3}(?:[ ']\d{3}){1,6})(\.\d+)?(?!\d)")
_GLUED_UNIT = re.compile(r"([-+]?[\d.,]+)(?:[mgshlLNJWVAK]|[kcm]?m)(?:\s*\^\s*\{?[23]\}?)?")
_LABEL = re.compile(r"\(([A-Z])\)[\s:.]*(?=\S)|([A-E])[).]\s+(?=\S)")
_EVENT = re.compile(r"(?<![A-Za-z])(?:P|Pr|\\Pr|\\mathbb\{[PE]\}|E|Var)\s*[(\[][^()\[\]]{1,60}[)\]]\s*=(?!=)")
_REALS = frozenset({"all real numbers", "all reals", "the real numbers", "all real x", "real numbers"})
_COMPOUND = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)\.?,?\s*(?:and\s+)?(\d+(?:\.\d+)?)\s*([A-Za-z]+)\.?")
_MONEY = re.compile(r"\\?\$\s*(?=[\d.])|\$\s*\\\$\s*(?=[\d.])")
_CONGRUENT = re.compile(r"(?:[A-Za-z]\s*=\s*)?(-?\d{1,30})\s*⟨mod (\d{1,30})⟩")
_CORNERS = re.compile(r"[A-Z]{3,}|\\(?:angle|triangle)\s*(?:[A-Z]{3}|\{[A-Z]{3}\})")
_LONG_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_NOT_A_NUMBER = re.compile(r"nan|\+?-?nan|null|n/a|undefined\?", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True)
class Reading:
    """One text, read."""

    text: str
    key: str
    nodes: tuple[Node, ...]
    """Settled readings, the likelier first; empty where the text is read as text only."""
    why: str = ""
    """Why there are none."""


def read(text: str, decimal_comma: bool = False, answer: bool = False) -> Reading:
    """Read a text in full. `decimal_comma`: whether `2,5` may be a decimal; `answer`: whether the `m` of `5m` may be a unit."""
    text = text.strip()
    plain = text.strip("$ ").removesuffix(".") if len(text) < 700 else ""
    if plain and _PLAIN.fullmatch(plain):
        value = _decimal(plain)
        return Reading(text, plain, (("words", value, SIGN) if _priced(text) else value,))
    key = text_key(text) if len(text) <= 200_000 else text
    if len(text) > LONGEST_TEXT:
        return Reading(text, key, (), f"{len(text)} characters are more than {LONGEST_TEXT}")
    nodes: list[Node] = []
    why = ""
    tidied = trimmed(tidy(text))
    if len(_EVENT.findall(tidied)) == 1:
        tidied = _EVENT.sub(lambda m: f"P_{{{zlib.crc32(m.group().replace(' ', '').encode())}}} = ", tidied)
    if match := _CORNERS.fullmatch(tidied):  # letters in order, no product
        return Reading(text, key, (("v", re.sub(r"[\s{}]", "", match.group())),))
    special = _special(text, tidied, decimal_comma)
    if special is not None:
        nodes.append(special)
    try:
        for node in read_tidied(tidied):
            settled = settle(node)
            if settled not in nodes:
                nodes.append(settled)
    except Unreadable as error:
        why = str(error)
    except RecursionError:
        why = "nested too deeply"
    if _priced(text):
        nodes = [("words", n, SIGN) if n[0] in ("n", "d") else n for n in nodes]
    if answer and (match := _LABEL.match(tidied)):
        nodes += [n for n in read(tidied[match.end() :]).nodes if n not in nodes]
    if answer and (match := _GLUED_UNIT.fullmatch(tidied)):
        glued = tidied[match.end(1) :]
        known = unit(glued) is not None
        nodes += [("words", n, glued) if known else n for n in read(match[1]).nodes if n not in nodes]
    return Reading(text, key, tuple(nodes), why)


def _priced(text: str) -> bool:
    """Whether a money sign, and no mathematics delimiter, stands before the number."""
    return _MONEY.match(text) is not None and (text[0] != "$" or text.count("$") == 1)


def _decimal(plain: str) -> Node:
    whole, _, part = plain.partition(".")
    digits = (whole.lstrip("+-") + part).lstrip("0")
    value = Fraction(plain)
    return ("d", value, len(digits), Fraction(1, 10 ** len(part))) if part else ("n", value)


def _special(text: str, tidied: str, decimal_comma: bool) -> Node | None:
    """Whole texts that the grammar does not know: dates, number words, other ways to write thousands and decimals."""
    dated = date_or_time(tidied.replace("⟨", "").replace("⟩", ""))
    if dated is not None:
        return dated
    words = tidied.replace("⟨", " ").replace("⟩", " ").strip()
    value = number_words(words)
    if value is None and not text.isascii():
        value = chinese_number(words)
    if value is not None:
        return ("n", value)
    counted = number_words(words.rpartition(" ")[0])
    if counted is not None and (unit(last := words.rpartition(" ")[2]) is not None or len(last) > 3):  # fifty cents
        return ("words", ("n", counted), last)
    if words.lower().rstrip(".") in _REALS:
        return ("all", "ℝ")
    if (match := _CONGRUENT.fullmatch(tidied)) and (modulus := int(match[2])):
        return ("cong", int(match[1]) % modulus, modulus)
    if match := _COMPOUND.fullmatch(words):
        return _compound(match)
    if match := _DOTS.fullmatch(words):
        whole = (match[1] or match[3]).replace(".", "")
        return _decimal(f"{whole}.{match[2]}" if match[2] else whole)
    if match := _SPACED.fullmatch(words):
        return _decimal(match[1].replace(" ", "").replace("'", "") + (match[2] or ""))
    if (match := _COMMA.fullmatch(words)) and (decimal_comma or _surely_decimal(match[2], match[3])):
        return _decimal(f"{match[1]}{match[2]}.{match[3]}")
    return None


def _compound(match: re.Match[str]) -> Node | None:
    """3 hours 20 minutes, in the second unit."""
    first, second = unit(match[2]), unit(match[4])
    if first is None or second is None or first[0] != second[0] or first[1] <= second[1]:
        return None
    return ("words", ("n", Fraction(match[1]) * first[1] / second[1] + Fraction(match[3])), match[4])


def _surely_decimal(whole: str, part: str) -> bool:
    """Whether `whole,part` can hardly be a list or thousands."""
    if len(part) == 3:
        return whole == "0"
    return (whole == "0" and len(part) > 1) or (len(whole) >= 4 and len(part) == 2)


@dataclass(frozen=True)
class Reference:
    """One reference: what it says and which kind of answer it wants."""

    text: str
    reading: Reading
    letter: str | None = None
    is_text: bool = False
    """Words, or a number too long to read, which an answer either is or is not; not mathematics that could not be read."""
    fault: str = ""
    """Why nobody can be judged by it."""


def reference(gold: object) -> Reference:
    """Read one reference as it stands in a data set: bare, between dollars, boxed, after "the answer is"."""
    if isinstance(gold, bool) or gold is None:
        return _faulty(str(gold), "the reference is no text and no number")
    text = str(gold).strip()
    found = find(text, ("boxed", "hash", "final", "answer")) if any(m in text for m in ("box", "####", "nswer")) else None
    said = _said(found, text)
    if not said.strip(" $\\()[]{}."):
        return _faulty(text, "the reference is empty")
    if _NOT_A_NUMBER.fullmatch(said.strip(" $")):
        return _faulty(text, f"the reference {said.strip()!r} is no answer")
    reading = read(said)
    letter = gold_letter(said) if len(said) < 40 else None
    words = bool(_WORD.search(re.sub(r"\\[A-Za-z]+", " ", tidy(said[:LONGEST_TEXT])))) or len(reading.key) == 1
    whole = (words and len(said) <= LONGEST_TEXT) or _LONG_NUMBER.fullmatch(said.strip(" $")) is not None
    return Reference(said, reading, letter, not reading.nodes and whole)


def _said(found: Found | None, text: str) -> str:
    if found is None:
        return text
    if found.mark in ("boxed", "hash"):
        return found.text
    return found.text if found.text.strip() else text


def _faulty(text: str, why: str) -> Reference:
    return Reference(text, Reading(text, text, ()), fault=why)


def references(gold: object) -> list[Reference]:
    """Several references, any of which may match: a list of texts."""
    every: Iterable[object] = gold if isinstance(gold, (list, tuple)) else [gold]
    return [reference(g) for g in every]
