"""Text read off an image, against the right text.

Invariants: similarity is 1 iff the normalised texts are equal; an empty answer is never similar to a text; the distance is exact, found
with bit-parallel dynamic programming (Myers 1999, Hyyrö 2003), so thousands of characters take milliseconds.

Sources: ANLS, arXiv:1905.13648 (1 - NL where NL < .5, else 0; NL = distance over the longer length; best over the references);
1 - WER as in SpaceR, arXiv:2504.01805.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

Metric = Literal["anls", "similarity", "wer"]
LONGEST = 20_000
"""Characters of the longest reference."""
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'"})


def distance(a: Sequence[object], b: Sequence[object]) -> int:
    """Edit distance (insertions, deletions, substitutions) of two sequences."""
    if len(a) > len(b):
        a, b = b, a
    m = len(a)
    if not m:
        return len(b)
    places: dict[object, int] = {}
    for i, item in enumerate(a):
        places[item] = places.get(item, 0) | 1 << i
    full, top = (1 << m) - 1, 1 << (m - 1)
    plus, minus, score = full, 0, m
    for item in b:
        equal = places.get(item, 0)
        vertical = equal | minus
        horizontal = (((equal & plus) + plus) ^ plus) | equal
        up = minus | (full & ~(horizontal | plus))
        down = plus & horizontal
        score += 1 if up & top else -1 if down & top else 0
        up = (up << 1 | 1) & full
        down = down << 1 & full
        plus = down | (full & ~(vertical | up))
        minus = up & vertical
    return score


def normal(text: str, ignore_case: bool) -> str:
    """Composed characters, blanks collapsed, typographic quotes as plain ones."""
    text = " ".join(unicodedata.normalize("NFC", text).translate(_QUOTES).split())
    return text.casefold() if ignore_case else text


def similarity(found: str, wanted: str, metric: Metric, tau: float) -> Fraction:
    """0 to 1, of two normalised texts. An answer more than four times as long as the reference (and 1,000 characters) is 0 without being
    measured: it could have at most 1/4."""
    if found == wanted:
        return Fraction(1)
    if not found or len(found) > 4 * len(wanted) + 1000:
        return Fraction(0)
    a: Sequence[object] = found.split() if metric == "wer" else found
    b: Sequence[object] = wanted.split() if metric == "wer" else wanted
    errors = distance(a, b)
    if metric == "wer":
        return max(Fraction(0), 1 - Fraction(errors, max(1, len(b))))
    loss = Fraction(errors, max(len(a), len(b)))
    return Fraction(0) if metric == "anls" and loss >= Fraction(str(tau)) else 1 - loss
