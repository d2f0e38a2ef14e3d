"""Whether an answer is written in the scripts it was asked for.

Invariants: scripts are told apart, languages are not (English from German is not attempted); mathematics, code, links and names of
commands are not looked at; a text with few letters passes unjudged; linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

from pydantic import Field

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.verdicts import passes, refused, unjudged
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import StopReason, Task, Verdict

LATIN = frozenset({"LATIN"})
SCRIPTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("en", "de", "fr", "es", "it", "pt", "nl", "pl", "tr", "vi", "id", "sv", "cs", "ro", "fi"), LATIN),
    **dict.fromkeys(("ru", "uk", "bg", "be", "mk"), frozenset({"CYRILLIC"})),
    "sr": frozenset({"CYRILLIC", "LATIN"}),
    "zh": frozenset({"CJK"}),
    "ja": frozenset({"CJK", "HIRAGANA", "KATAKANA"}),
    "ko": frozenset({"HANGUL", "CJK"}),
    **dict.fromkeys(("ar", "fa", "ur"), frozenset({"ARABIC"})),
    "he": frozenset({"HEBREW"}),
    "el": frozenset({"GREEK"}),
    **dict.fromkeys(("hi", "mr", "ne"), frozenset({"DEVANAGARI"})),
    "bn": frozenset({"BENGALI"}),
    "ta": frozenset({"TAMIL"}),
    "te": frozenset({"TELUGU"}),
    "th": frozenset({"THAI"}),
    "ka": frozenset({"GEORGIAN"}),
    "hy": frozenset({"ARMENIAN"}),
}
"""Language -> scripts it is written in, by the first word of the Unicode names of their letters."""
_CODE = re.compile(
    r"(?:```|~~~)[^\n]*\n.*?(?:```|~~~|\Z)|`[^`\n]*`|\$\$.{0,600}?\$\$|\$[^$\n]*\$|\\\[.{0,600}?\\\]|\\\(.{0,600}?\\\)|\\boxed\s*\{[^{}]*\}"
    r"|\\begin\{(\w{1,20}\*?)\}.{0,600}?\\end\{\1\}|\\[A-Za-z]+|https?://\S+|</?\w[^<>\n]{0,80}>",
    re.DOTALL,
)
_WORD = re.compile(r"[^\W\d_]+")


@method("language", Slot.GATE, title="language by script", criterion="reliability", faithfulness=Faithfulness.OURS)
class Language:
    """Refuses a finished answer whose words are mostly in other scripts than the language's (the language consistency of DeepSeek-R1,
    arXiv:2501.12948, as a gate)."""

    class Settings(FrozenModel):
        language: str
        """A two-letter code (`en`, `zh`, `ja`, `ru`, ...): names scripts only, so `en` is any language in Latin letters."""
        share: float = Field(0.5, ge=0, le=1)
        """Least share of letters in these scripts. UNCONFIRMED: the paper prints no threshold."""
        letters: int = Field(40, ge=1)
        """Fewest letters, outside mathematics and code, that are judged; a letter of a script without an alphabet (CJK, ...) counts as 3."""

    name, version, bounded = "language", "1", True

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings
        if settings.language not in SCRIPTS:
            raise ConfigError(
                f"filter.gates 'language': the scripts of {settings.language!r} are not known",
                f"known: {', '.join(sorted(SCRIPTS))}",
            )
        self.scripts = SCRIPTS[settings.language]

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if (unheard := unjudged(self, stop)) is not None:
            return unheard
        counts = scripts(text)
        total = sum(counts.values())
        if total < self.settings.letters:
            return passes(self, f"not judged: {total} letters of words")
        own = sum(counts[s] for s in self.scripts)
        said = ", ".join(f"{name.capitalize()} {n / total:.0%}" for name, n in counts.most_common(3))
        if own < self.settings.share * total:
            return refused(self, f"not in {self.settings.language}: {said}")
        return passes(self, said)


def scripts(text: str) -> Counter[str]:
    """Letters of words by script; one-letter words of alphabets (variables, units) are left out, ideographs and syllables count 3."""
    counts: Counter[str] = Counter()
    for word in _WORD.finditer(_CODE.sub(" ", text)):
        letters = word.group()
        own = Counter(found for c in letters if (found := _script(c)))
        if len(letters) == 1 and not own.keys() & _DENSE:
            continue
        for name, n in own.items():
            counts[name] += n * (3 if name in _DENSE else 1)
    return counts


_DENSE = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL"})


@lru_cache(maxsize=8192)
def _script(char: str) -> str:
    """First word of a letter's Unicode name; empty for symbols dressed as letters (mathematical alphabets, units)."""
    name = unicodedata.name(char, "")
    first = name.partition(" ")[0].partition("-")[0]
    if first in (
        "MATHEMATICAL",
        "DOUBLE",
        "SCRIPT",
        "BLACK",
        "MODIFIER",
        "SUPERSCRIPT",
        "SUBSCRIPT",
        "FULLWIDTH",
        "HALFWIDTH",
        "COMBINING",
        "",
    ):
        return "LATIN" if name.startswith("FULLWIDTH LATIN") else "KATAKANA" if name.startswith("HALFWIDTH KATAKANA") else ""
    return first
