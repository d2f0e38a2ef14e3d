"""Structured answers: JSON values, lists, patterns.

Invariants: correct only where everything is right, whatever share is; a reference that is no value, no list or no pattern is UNSCORABLE;
JSON and lists take bounded work, a pattern may not (`bounded` says so, and the verifier then runs where it can be killed).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from gfcr.context import Build
from gfcr.domains.answers import number
from gfcr.errors import ConfigError
from gfcr.filter.texts.spoken import spoken
from gfcr.filter.texts.stated import statements
from gfcr.filter.texts.values import NoValue, find, lenient, strict
from gfcr.filter.verdicts import cut, place, scored, short, unscorable
from gfcr.filter.verifiers.own import own_settings
from gfcr.filter.verifiers.structured.equal import WIDEST, Rules, canonical, difference, share
from gfcr.filter.verifiers.structured.items import SEPARATORS, items, split
from gfcr.registry import Faithfulness, Slot, method
from gfcr.types import Span, StopReason, Task, Verdict

OWN = "structured"
"""Column (`Task.meta`) with settings of a task's own, a mapping; they go before the recipe's."""


class Kinds(Rules):
    """What a structured answer is compared as."""

    kind: Literal["json", "list", "regex"] = "json"
    """`json`: the answer's JSON value equals the reference; `list`: its items do; `regex`: its final answer matches the reference, a
    pattern of Python's `re`."""
    lenient: bool = True
    """Read what people write in JSON's place: typographic or single quotes, commas before a bracket, comments, Python's words. False:
    strict JSON, the same as a parser would take."""
    separators: tuple[str, ...] = Field(SEPARATORS, min_length=1)
    """What stands between the items of a list in plain text."""
    match: Literal["full", "search"] = "full"
    """The pattern matches the whole final answer, or a part of it."""
    partial: bool = False
    """The score is the share of right leaves (fields, elements) among those of both; correct stays everything or nothing. False: 1 or
    0."""


@method(
    "structured",
    Slot.VERIFIER,
    title="structured answers: JSON, lists, patterns",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
)
class Structured:
    """Right iff the answer's JSON value, list or text is the reference (or matches it)."""

    class Settings(Kinds):
        accept_cut: bool = False
        """Judge an answer that the length limit cut by what it says. False: it is wrong."""

        def traits(self) -> frozenset[str]:
            return frozenset() if self.partial else frozenset({"binary correctness"})

    name, version = "structured", "1"

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings
        tasks = build.tasks if build else ()
        # a pattern may take for ever, and tasks that are not known yet, or bring settings, may bring one
        self.bounded = bool(tasks) and settings.kind != "regex" and not any(OWN in task.meta for task in tasks)
        for task in tasks:
            try:
                self._of(task)
            except ValueError as error:
                raise ConfigError(f"filter.verifiers 'structured': task {task.id}: {error}", "correct that column") from None

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if task.reference is None:
            return unscorable(self, "the task has no reference")
        if (ended := cut(self, stop, self.settings.accept_cut)) is not None:
            return ended
        try:
            kinds = self._of(task)
            judge = {"json": self._json, "list": self._list, "regex": self._regex}[kinds.kind]
            verdicts = [judge(zone, task.reference, kinds) for zone in _zones(text, kinds) if zone.strip()]
        except ValueError as error:
            return unscorable(self, str(error))
        if not verdicts:
            return scored(self, 0.0, False, "the answer is empty")
        return next((v for v in verdicts if v.answer is not None), verdicts[0])

    def _of(self, task: Task) -> Kinds:
        """The settings for a task. Raises ValueError."""
        if (own := task.meta.get(OWN)) is None:
            return self.settings
        return own_settings(OWN, own, Kinds, self.settings.model_dump(include=set(Kinds.model_fields)))

    def _json(self, zone: str, reference: Any, kinds: Kinds) -> Verdict:
        wanted = _value(reference)
        try:
            found, start, end = _stated_value(zone, kinds.lenient, type(wanted))
        except NoValue as error:
            return scored(self, 0.0, False, f"no JSON value: {error}")
        return self._compared(found, wanted, kinds, place(start, end))

    def _list(self, zone: str, reference: Any, kinds: Kinds) -> Verdict:
        if isinstance(reference, str):
            reference = split(reference, kinds.separators)
        if not isinstance(reference, (list, tuple)):
            raise ValueError(f"the reference {short(reference)} is no list")
        found = items(zone, kinds.separators)
        if found is None:
            return scored(self, 0.0, False, "no list")
        given, start, end = found
        return self._compared([_item(v) for v in given], [_item(v) for v in reference], kinds, place(start, end))

    def _compared(self, found: Any, wanted: Any, kinds: Kinds, spans: tuple[Span, ...]) -> Verdict:
        part = share(found, wanted, kinds)
        right = part == 1
        answer = canonical(found, kinds.ordered)
        why = "equals the reference" if right else difference(found, wanted, kinds)
        if kinds.partial and not right:
            why += f" ({part.numerator} of {part.denominator} right)"
        return scored(self, float(part) if kinds.partial else float(right), right, why, answer, spans)

    def _regex(self, zone: str, reference: Any, kinds: Kinds) -> Verdict:
        if not isinstance(reference, str):
            raise ValueError(f"the reference {short(reference)} is no pattern")
        try:
            pattern = re.compile(reference, re.IGNORECASE if kinds.ignore_case else 0)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"the reference {short(reference)} is no pattern: {error}") from None
        for start, end in _final(zone):
            words = zone[start:end].strip()
            if pattern.fullmatch(words) if kinds.match == "full" else pattern.search(words):
                return scored(self, 1.0, True, f"{short(words)} matches", words, place(start, end))
        start, end = _final(zone)[0]
        words = zone[start:end].strip()
        return scored(self, 0.0, False, f"{short(words)} does not match {short(reference)}", words, place(start, end))


def _zones(text: str, kinds: Kinds) -> tuple[str, ...]:
    """Where the answer is looked for; a text that is JSON as a whole may hold any words."""
    if kinds.kind == "json" and text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[", '"'):
        try:
            strict(text)
            return (text,)
        except NoValue:
            pass
    return spoken(text)


def _value(reference: Any) -> Any:
    """The JSON value a reference is: text that is JSON of an object or a list counts as that. Raises ValueError."""
    if isinstance(reference, str):
        if reference.lstrip()[:1] in ("{", "["):
            return strict(reference)
        try:
            return strict(reference)
        except NoValue:
            return reference
    return _listed(reference)


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _listed(v) for k, v in value.items()}
    return [_listed(v) for v in value] if isinstance(value, (list, tuple)) else value


def _stated_value(zone: str, mend: bool, want: type) -> tuple[Any, int, int]:
    """The JSON value of the last statement that holds one of the wanted type, else of the whole text."""
    for s in reversed(statements(zone)[-20:]):
        if s.kind in ("tags", "box"):
            try:
                value, start, end = find(zone[s.start : s.end], mend, want)
            except NoValue:
                continue
            return value, s.start + start, s.start + end
    try:
        return find(zone, mend, want if issubclass(want, (dict, list)) else None)
    except NoValue as error:
        if want is str and zone.strip():
            start, end = _final(zone)[0]
            return zone[start:end].strip(), start, end
        for start, end in _final(zone) if not issubclass(want, (dict, list)) else ():
            try:
                return strict(zone[start:end].strip().rstrip(".")), start, end
            except NoValue:
                pass
        raise error


def _final(zone: str) -> list[tuple[int, int]]:
    """Places of the final answer, best first: the last statement (without and with the stop at its end), else the whole text, then its
    last line."""
    stated = [s for s in statements(zone) if zone[s.start : s.end].strip(" \t*_$.:`")]
    if stated:
        last = stated[-1]
        words = zone[last.start : last.end]
        bare = words.strip().strip("*_$`").rstrip(".").strip("*_$` ")
        at = zone.find(bare, last.start) if bare else last.start
        return [(at, at + len(bare)), (last.start, last.end)]
    start = len(zone) - len(zone.lstrip())
    end = len(zone.rstrip())
    line = max(zone.rfind("\n", start, end) + 1, start)
    return [(start, end)] if line == start else [(start, end), (line, end)]


def _item(value: Any) -> Any:
    """An item for comparison: a number as an exact fraction, whether it came as text or as a number; text in brackets as what it
    holds."""
    if isinstance(value, str):
        read = number(value)
        if read is None and value.lstrip()[:1] in ("(", "[", "{"):
            try:
                return _item(lenient(value))
            except NoValue:
                pass
        return value.strip() if read is None else read
    if isinstance(value, list):
        return [_item(v) for v in value]
    if isinstance(value, Decimal) and abs(value.adjusted()) <= WIDEST:
        return Fraction(value)
    return Fraction(value) if isinstance(value, int) and not isinstance(value, bool) else value
