"""The options of a choice, and which of them is right.

Invariants: what a reference means is read in full or not at all (None), never guessed; a label and a text that could both be meant
are told apart by the options, not by resemblance.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gfcr.domains.answers import number, same

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FEWEST = 8
"""Letters that count as labels where the task lists no options."""
_WORDS = (("Yes", "No"), ("True", "False"))
_LABELLED = re.compile(r"\s*[(\[]?([A-Za-z]|\d{1,2})\s*[)\].:：、]\s*(.+)", re.DOTALL)
_BEFORE_TEXT = re.compile(r"\s*(?:[(\[]\w{1,2}[)\]]|\w{1,2}[).:、]\s)")
_LIST = re.compile(r"\s*(?:[,;/&+、，]|\band\b|\s)\s*(?:\band\b)?\s*", re.IGNORECASE)
_WRAP = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|tt)?|math(?:rm|bf|it|sf|tt)|m?box|f?boxed|fbox|operatorname)\s*\{([^{}]*)\}"
    r"|\\(?:left|right|displaystyle|rm|bf)(?![A-Za-z])|\\[()\[\],;:! ]|\\q?quad(?![A-Za-z])|\$|(?<![\w)\]}])[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}(?![\w(\[{])|</?(?:b|i|strong|em|span|u)>"
)
_EXCLAIMED = re.compile(r"(?<=[^\W\d_]{2})!+$")
_HIDDEN = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"))
_QUOTES = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "‛": "'", "`": "'", "\u00a0": " "}
)


@dataclass(frozen=True)
class Options:
    """What can be chosen. Labels are as shown; `texts[i]` is what stands behind `labels[i]`, normalised, empty where unknown."""

    labels: tuple[str, ...]
    texts: tuple[str, ...]
    words: bool = False
    """The labels are words (Yes, No), read wherever a statement begins with one."""
    several: bool = False
    """Several are right, so `AC` names two."""

    def label(self, text: str) -> str | None:
        """The label a whole text is; letters in any case."""
        return next((known for known in self.labels if known.casefold() == text.casefold()), None)

    def by_text(self, text: str) -> str | None:
        """The one label whose text this is: as normalised words, else as an exact number; None for none or several."""
        wanted = words(text)
        found = [known for known, t in zip(self.labels, self.texts) if t and t == wanted]
        if not found and number(wanted) is not None:
            found = [known for known, t in zip(self.labels, self.texts) if t and number(t) is not None and same(t, wanted)]
        return found[0] if len(found) == 1 else None


def plain(text: str) -> str:
    r"""A text without what only dresses it: compatibility forms (`（Ｂ）` is `(B)`), typographic quotes, emphasis, `$`, `\text{}`."""
    text = unicodedata.normalize("NFKC", text.translate(_HIDDEN)).translate(_QUOTES)
    for _ in range(4):
        dressed, text = text, _WRAP.sub(lambda m: m[1] or " ", text)
        if dressed == text:
            break
    return text


def words(text: str) -> str:
    """A text for comparison: `plain`, blanks collapsed, quotes, brackets around all of it and a stop at its end left out; case does not
    count unless it holds mathematics (where `n` is not `N`)."""
    text = " ".join(plain(text).split())
    for _ in range(4):
        bare = _EXCLAIMED.sub("", text.rstrip(" .,;:?").lstrip(" ,;:"))
        if len(bare) > 2 and bare[0] == bare[-1] and bare[0] in "\"'":
            bare = bare[1:-1]
        if (
            len(bare) > 1
            and bare[0] + bare[-1] in ("()", "[]", "{}")
            and not set("()[]{}") & set(bare[1:-1])
            and "," not in bare
        ):
            bare = bare[1:-1]
        if bare == text:
            break
        text = bare
    if "\\" in text or "^" in text or "=" in text:
        return re.sub(r"\s*([^\w\s\\])\s*", r"\1", text)
    return text.casefold()


def listed(choices: Any) -> Any:
    """A task's `choices`; None where there are none, which files with one schema for all rows write as an empty list or map."""
    return None if choices in ([], (), {}, {"label": [], "text": []}) else choices


def options(choices: Any, wanted: Iterable[str] = ()) -> Options:
    """From a task's `choices`: texts in order (with or without `A)` before each), label -> text, or {"label": [...], "text": [...]}; None:
    the letters, as far as `wanted` goes. Raises ValueError for anything else."""
    if choices is None:
        asked = [w.strip() for w in wanted]
        for pair in _WORDS:
            if any(w.casefold() in (pair[0].casefold(), pair[1].casefold()) for w in asked):
                return Options(pair, ("", ""), True)
        last = max([FEWEST, *(LETTERS.index(w.upper()) + 1 for w in asked if len(w) == 1 and w.upper() in LETTERS)])
        return Options(tuple(LETTERS[:last]), ("",) * last)
    if isinstance(choices, Mapping):
        if set(choices) >= {"label", "text"} and isinstance(choices["label"], Sequence):
            choices = dict(zip(map(str, choices["label"]), choices["text"]))
        return Options(tuple(map(str, choices)), tuple(words(str(v)) for v in choices.values()))
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise ValueError("choices are a list of texts, or label -> text")
    if len(choices) > len(LETTERS):
        raise ValueError(f"{len(choices)} choices, more than there are letters")
    found = [_LABELLED.fullmatch(str(c)) for c in choices]
    named = [m[1].upper() for m in found if m]
    if len(named) == len(choices) and named == list(LETTERS[: len(named)]):
        return Options(tuple(named), tuple(words(m[2]) for m in found if m))
    return Options(tuple(LETTERS[: len(choices)]), tuple(words(str(c)) for c in choices))


def chosen(reference: str, known: Options, listed: bool) -> frozenset[str] | None:
    """The labels a reference means: one, several (`A, C`, `AC`), or an option's text; None where it means none. `listed`: the task
    lists its options, so a text is looked up among them."""
    text = plain(reference).strip()
    if listed and (found := known.by_text(text)) is not None and known.label(text) is None:
        return frozenset([found])
    bare = re.sub(r"^(?:option|choice|answer)\s+(?=\S{1,3}$)", "", text.strip(" .:$\"'"), flags=re.IGNORECASE).strip("()[]{} .")
    if (one := known.label(bare)) is not None and (len(bare) > 1 or bare.upper() in LETTERS[: len(known.labels)] or listed):
        return frozenset([one])
    if (dressed := _LABELLED.fullmatch(text)) and _BEFORE_TEXT.match(text) and (one := known.label(dressed[1])) is not None:
        behind = words(dressed[2])
        own = known.texts[known.labels.index(one)]
        return frozenset([one]) if not own or own == behind else None
    parts = [p.strip("()[] .'\"") for p in _LIST.split(bare)]
    if len(parts) == 1 and bare.isupper() and bare.isalpha() and list(bare) == sorted(set(bare)):
        parts = list(bare)
    labels = [known.label(p) for p in parts]
    return frozenset(one for one in labels if one) if len(parts) > 1 and all(labels) else None
