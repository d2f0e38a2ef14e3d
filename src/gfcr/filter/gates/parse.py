"""Whether an answer has a final answer at all, and whether it has the sections it was asked for.

Invariants: an answer that a lenient reader can read passes; a cut answer passes unjudged; linear in the text.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from gfcr.context import Build
from gfcr.domains.answers import Extract, extract
from gfcr.errors import ConfigError
from gfcr.filter.texts.fences import blocks
from gfcr.filter.texts.spoken import spoken
from gfcr.filter.texts.stated import statements
from gfcr.filter.texts.values import NoValue, find
from gfcr.filter.verdicts import passes, refused, unjudged
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import StopReason, Task, Verdict

Form = Literal["stated", "boxed", "tags", "hash", "last-number", "json", "fence", "words"]
_EMPTY = " \t\r\n*_$.:`{}[]()\"'"


@method("parse", Slot.GATE, title="a final answer can be found", criterion="reliability", faithfulness=Faithfulness.OURS)
class Parse:
    """Refuses a finished answer in which none of the named forms of a final answer can be found."""

    class Settings(FrozenModel):
        forms: tuple[Form, ...] = Field(("stated", "last-number", "words"), min_length=1)
        """One of them is enough: `stated` (a box, `<answer>`, `####`, "the answer is ..."), `boxed`, `tags`, `hash`, `last-number`, `json` (a JSON
        value, leniently), `fence` (a fenced block), `words` (any text outside thinking)."""

    name, version, bounded = "parse", "1", True

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if (unheard := unjudged(self, stop)) is not None:
            return unheard
        zones = spoken(text)
        for form in self.settings.forms:
            if any(_has(form, zone) for zone in zones):
                return passes(self, f"a final answer stands in it ({form})")
        return refused(self, f"no final answer in it ({', '.join(self.settings.forms)})")


def _has(form: Form, zone: str) -> bool:
    if form == "stated":
        return any(zone[s.start : s.end].strip(_EMPTY) for s in statements(zone))
    if form == "tags":
        return any(s.kind == "tags" and zone[s.start : s.end].strip() for s in statements(zone))
    if form == "json":
        try:
            find(zone)
        except NoValue:
            return False
        return True
    if form == "fence":
        return any(block.text.strip() for block in blocks(zone))
    if form == "words":
        return any(c.isalnum() for c in zone) or bool(zone.strip(_EMPTY))
    return bool(extract(zone, Extract(form)))


@method("sections", Slot.GATE, title="required sections in order", criterion="reliability", faithfulness=Faithfulness.OURS)
class Sections:
    """Refuses a finished answer without the required sections `<name>..</name>`, filled, in their order (R1's format; R1-VL's "sections
    present, in order, final answer last", arXiv:2503.12937)."""

    class Settings(FrozenModel):
        names: tuple[str, ...] = Field(("think", "answer"), min_length=1)
        """Names of the tags, in order; capitals and blanks in a tag do not count."""
        opened: tuple[str, ...] = ("think",)
        """Sections that the prompt may have opened already: a closing tag is enough for them."""
        last: bool = False
        """Whether text after the last section is refused."""

    name, version, bounded = "sections", "1", True

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings
        if bad := next((n for n in (*settings.names, *settings.opened) if not re.fullmatch(r"[\w-]+", n)), None):
            raise ConfigError(f"filter.gates 'sections': {bad!r} is no name of a tag", "use letters, digits, `_` and `-`")
        if unknown := set(settings.opened) - set(settings.names) - {"think"}:
            raise ConfigError(
                f"filter.gates 'sections': opened names {min(unknown)!r}, which is not in names", "name it in both"
            )

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if (unheard := unjudged(self, stop)) is not None:
            return unheard
        why = self._fault(text)
        return refused(self, why) if why else passes(self, f"{', '.join(self.settings.names)} in order")

    def _fault(self, text: str) -> str:
        """Sections are taken from the end, so that a tag which is only spoken of before does not count."""
        end = len(text)
        tail = True
        for name in reversed(self.settings.names):
            closing = _last(rf"<\s*/\s*{re.escape(name)}\s*>", text, end)
            opening = _last(rf"<\s*{re.escape(name)}\s*>", text, closing.start() if closing else end)
            if closing is None and opening is not None and tail and text[opening.end() :].strip():
                closing_start, after = end, ""  # the last section may be left open
            elif closing is None:
                return f"<{name}> is not there, or not in its place"
            else:
                closing_start, after = closing.start(), text[closing.end() : end]
            if tail and self.settings.last and after.strip():
                return f"text after </{name}>: {after.strip()[:40]!r}"
            if opening is None and name not in self.settings.opened:
                return f"</{name}> closes nothing"
            start = opening.end() if opening else 0
            if not text[start:closing_start].strip() and name not in self.settings.opened:
                return f"<{name}> is empty"
            end, tail = (opening.start() if opening else 0), False
        return ""


def _last(pattern: str, text: str, end: int) -> re.Match[str] | None:
    found = None
    for found in re.compile(pattern, re.IGNORECASE).finditer(text, 0, end):  # noqa: B007  (the last one is wanted)
        pass
    return found
