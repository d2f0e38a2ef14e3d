"""A choice letter: the reference is one, the answer names one.

Invariants: an answer that lists several letters names none; a letter that begins a word, a formula or an article is none; letters
have no case.
"""

from __future__ import annotations

import re

from gfcr.filter.verifiers.math.normalise import tidy

_GOLD = re.compile(r"[(\[]?\s*([A-Z])\s*[)\].]?")
_GOLD_LABEL = re.compile(r"\(?([A-E])[).:]\s+(?=[A-Za-z]{2})")
_WRAP = r"[\s*_\"'`(\[{$\\⟨]*"
_LETTER = re.compile(
    rf"^{_WRAP}(?:(?:option|choice|answer)\s+)?{_WRAP}([A-Za-z])(?![A-Za-z0-9_'’^])[\s*_\"'`)\]}}$⟩]*", re.IGNORECASE
)
_DENIED = re.compile(
    r"\s*(?:is|was|are|seems)?\s*(?:not|n't|isn't|wrong|incorrect|false|不对|是错)\b|\s*(?:不对|是错)", re.IGNORECASE
)
_FORMULA = re.compile(r"\s*[=<>^+*/≤≥≈]|\s*-\s*\d|\s*\\(?:[a-z]+)")
_VALUE = re.compile(r"\s*\\(?:frac|sqrt|pi|\$)|\s*-\s*\d")
"""What an option says behind its bracketed letter: (B) \\frac12."""
_ARTICLE = re.compile(
    r"(?!(?:is|because|since|as|for|which|with|due|by|was|and|or|but|from|so|would|not|in)\b)[a-z]+", re.IGNORECASE
)


_LABELLED = re.compile(r"\s*(?:\*\*)?\(?([A-Z])[).:](?:\*\*)?\s+\S")


def gold_letter(gold: str) -> str | None:
    """The letter that a reference is; None where it is something else (lower-case letters are symbols)."""
    text = tidy(gold).replace("⟨", "").replace("⟩", "").strip()
    match = _GOLD.fullmatch(text) or _GOLD_LABEL.match(text)
    return match.group(1) if match else None


def letter(content: str) -> str | None:
    """The letter that what stands behind a mark names; None where it names none or several."""
    text = tidy(content[:200].replace("**", " "))
    match = _LETTER.match(text)
    if match is None:
        return None
    rest = text[match.end() :]
    spaced = match.group().endswith(" ")
    formula = _FORMULA.match(rest)
    if (formula and not (")" in match.group() and _VALUE.match(rest))) or _DENIED.match(rest):
        return None
    alone = re.match(r"(?:[,/&+]\s*|\bor\b\s*|\band\b\s*|和|或|、)*[(\[]?([A-Z])(?:[)\]]|(?![\w'’]))", rest)
    if alone and alone.group(1) != match.group(1).upper() and alone.group() != "I":
        return None
    found = match.group(1).upper()
    bracketed = any(c in match.group() for c in ")]*}⟩$\"'")
    if found in "AI" and spaced and not bracketed and _ARTICLE.match(rest):
        return None
    return found


_CHOSEN = re.compile(
    r"\b(?i:options?|choices?|choose|chose|select|selected|pick|picked)\s+(?:is\s+)?(?=[(*\[]{0,3}[A-Z](?![\w'’]))"
    r"|(?<![\w'’])(?<!\b[Oo]r )(?<!\b[Nn]or )(?<!\b[Aa]nd )(?=[A-Z]\s+is\s+(?:the\s+)?(?:correct|right|answer|best))"
)


def chosen(text: str) -> str | None:
    """The letter that the last sentence of choosing names: "option B", "I choose B", "B is the answer"."""
    found = None
    for match in _CHOSEN.finditer(text):
        named = letter(text[match.end() : match.end() + 60])
        found = named or found
    return found


def only_letter(text: str) -> str | None:
    """The letter that a text without a mark is, with nothing beside it but what belongs to a letter."""
    text = text[:300]
    if (labelled := _LABELLED.match(text)) is not None and len(text) < 300 and "\n" not in text.strip():
        return letter(text) if labelled.group(1) else None
    match = re.fullmatch(r"[\s*_\"'`(\[{]*([A-Za-z])[\s*_\"'`)\]}.:,]*", tidy(text).replace("⟨", "").replace("⟩", ""))
    return match.group(1).upper() if match else None
