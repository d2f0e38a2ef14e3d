r"""The `math` verifier: the final answer of a text against a reference.

Invariants: what is compared is read in full (LaTeX, plain text, words) and never executed; every step is bounded beforehand (length,
nesting, terms, bits, operations), so it runs in the driver's process (`bounded`); the same text gets the same verdict. A reference
that says nothing, or is too large to compute, is UNSCORABLE; what the judged text does wrong is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from pydantic import Field

from gfcr.context import Build
from gfcr.filter.verifiers.math import prose
from gfcr.filter.verifiers.math.answers import Reading, Reference, read, references
from gfcr.filter.verifiers.math.canonical import canonical
from gfcr.filter.verifiers.math.choice import chosen, letter, only_letter
from gfcr.filter.verifiers.math.compare import Comparison
from gfcr.filter.verifiers.math.extract import Found, find, judged_span
from gfcr.filter.verifiers.math.normalise import text_key
from gfcr.filter.verifiers.math.tree import Node, TooBig, Undefined
from gfcr.filter.verifiers.math.values import Budget, exact
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Span, Status, StopReason, Task, Verdict

REMEMBERED = 500
"""Characters of the longest text whose reading is remembered."""
LONGEST = 1_000_000
"""Characters of the longest text that is judged."""
_HEAD = re.compile(r"[.!?;]\s|\s\(|\n|,\s(?=[a-z])|\s(?:because|since|-|–)\s|:\s")
_SHOUT = re.compile(r"\d[\d,.]*!")
_IN_WORDS = re.compile(r"(?:[A-Za-z]{2,}|^) (?:[A-Za-z]+ ){0,20}\d[\d,.]*!\W*$")
_BOLD_LETTER = re.compile(r"\s*\*\*\(?[A-Z]\)?[.:]?\*\*(?![\w*])")
_TURN = re.compile(r"\b(?:actually|wait|rather|instead|or|not|yes|no)\b", re.IGNORECASE)
_OURS = (StopReason.CANCELLED, StopReason.PARKED, StopReason.FAILED)
Mark = Literal["tags", "boxed", "hash", "final", "answer"]


@method(
    "math",
    Slot.VERIFIER,
    title="final answer in mathematics",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("binary correctness",),
)
class Math:
    """Right iff the text's final answer equals the reference: numbers in any way of writing, expressions, equations, intervals, sets,
    tuples, matrices, units, dates, words, choice letters. The reference is a text, a number, or a list of which any may match."""

    class Settings(FrozenModel):
        mode: Literal["lenient", "strict"] = "lenient"
        """`strict`: an answer counts only behind one of `marks`; `lenient`: without a mark the end of the text is read."""
        marks: tuple[Mark, ...] = Field(("tags", "boxed", "hash", "final", "answer"), min_length=1)
        r"""Where a final answer may stand: `tags` (`<answer>`), `boxed` (`\boxed{}`), `hash` (`####`), `final` ("final answer ..."),
        `answer` ("the answer is", "Answer:")."""
        digits: int = Field(6, ge=3, le=30)
        """Significant digits from which a decimal stands for a value that has no decimal (0.333333 for 1/3), if it is right to
        its last place. Two decimals must be equal."""
        accept_cut: bool = False
        """Judge an answer that the length limit cut by what it says, if its mark closes. False: such an answer is wrong."""

    name, version, bounded = "math", "1", True

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if stop in _OURS:
            return self._unscorable(f"ended by us ({stop})")
        golds = _golds(task.reference)
        usable = [g for g in golds if not g.fault]
        if not usable:
            return self._unscorable(golds[0].fault if golds else "the task has no reference")
        if not stop.finished and not self.settings.accept_cut:
            return self._wrong(f"cut off ({stop})")
        if len(text) > LONGEST:
            return self._wrong(f"{len(text)} characters are more than {LONGEST}")
        found = find(text, self.settings.marks)
        if found is None and self.settings.mode == "strict":
            return self._wrong("no final answer behind a mark")
        if not stop.finished and (found is None or found.end >= len(text.rstrip())):
            return self._wrong(f"cut off ({stop}) at or inside its final answer")
        return self._against(usable, text, found)

    def _against(self, golds: list[Reference], text: str, found: Found | None) -> Verdict:
        candidate: _Candidate | None = None
        trouble = ""
        for gold in golds:
            candidate = _candidate(gold, text, found)
            verdict = self._one(gold, candidate, found)
            if verdict.correct:
                return verdict
            if verdict.status is Status.UNSCORABLE:
                trouble = trouble or verdict.evidence
        if trouble and len(golds) == 1:
            return self._unscorable(trouble)
        return verdict

    def _one(self, gold: Reference, candidate: _Candidate, found: Found | None) -> Verdict:
        said = _short(candidate.text)
        wanted = _short(gold.text)
        spans = (Span(found.start, found.end, "answer"),) if found else ()
        if not candidate.text.strip():
            return self._wrong("no final answer", None, spans)
        if candidate.how:
            answer = canonical(gold.reading) if candidate.right else text_key(candidate.text)
            relation = "is" if candidate.right else "is not"
            return self._verdict(candidate.right, f"{said} {relation} {wanted}, {candidate.how}", answer, spans)
        reading = candidate.reading
        assert reading is not None
        if not gold.reading.nodes:
            if gold.is_text:
                return self._verdict(False, f"{said} is not {wanted}, compared as text", canonical(reading), spans)
            return self._unscorable(f"the reference {wanted} cannot be read ({gold.reading.why}), and the text differs")
        if not reading.nodes:
            return self._wrong(
                f"{said} cannot be read in full ({reading.why}); wanted {wanted}", text_key(candidate.text), spans
            )
        budget = Budget()
        comparison = Comparison(budget, self.settings.digits)
        try:
            right = any(comparison.same(g, a) for g in gold.reading.nodes for a in reading.nodes)
        except (TooBig, Undefined) as error:
            right, comparison.trouble = False, comparison.trouble or error
        except RecursionError:
            right, comparison.trouble = False, TooBig("nested too deeply")
        if right:
            how = "exact value" if _rational(gold.reading.nodes[0]) else "equal"
            return self._verdict(True, f"{said} = {wanted}, {how}", canonical(gold.reading), spans)
        if comparison.trouble is not None and (why := _fault(gold)):
            return self._unscorable(f"the reference {wanted} cannot be computed ({why}), and the text differs")
        because = f" ({comparison.trouble})" if comparison.trouble else ""
        return self._verdict(False, f"{said} is not {wanted}{because}", canonical(reading), spans)

    def _verdict(self, right: bool, why: str, answer: str | None, spans: tuple[Span, ...]) -> Verdict:
        return Verdict(self.name, self.version, Status.SCORED, float(right), right, why, answer=answer, spans=spans)

    def _wrong(self, why: str, answer: str | None = None, spans: tuple[Span, ...] = ()) -> Verdict:
        return self._verdict(False, why, answer, spans)

    def _unscorable(self, why: str) -> Verdict:
        return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=why)


class _Candidate:
    """The answer that a text gives to one reference. `how`: the way it was decided already (as text, as a letter), with `right`."""

    def __init__(self, text: str, reading: Reading | None = None, how: str = "", right: bool = False) -> None:
        self.text, self.reading, self.how, self.right = text, reading, how, right


def _candidate(gold: Reference, text: str, found: Found | None) -> _Candidate:
    start, end = judged_span(text)
    content = found.text if found else text[start:end]
    if found is None and len(content) <= prose.WINDOW and text_key(content) == gold.reading.key and content.strip():
        return _Candidate(content.strip(), how="the same text", right=True)
    if gold.letter and content.strip():
        named = letter(prose.bare(content)) if found else _bare_letter(content)
        if named:
            return _Candidate(named, how="compared as a letter", right=named == gold.letter)
    first = ""
    unread: Reading | None = None
    comma = any(n[0] == "d" for n in gold.reading.nodes)
    in_words = (
        (found is None or found.mark in ("final", "answer")) and "!" not in gold.text and _IN_WORDS.search(content[-200:])
    )
    for part in _parts(content, found):
        first = first or part
        if not part.strip():
            continue
        if text_key(part) == gold.reading.key:
            return _Candidate(part, how="the same text", right=True)
        if not gold.reading.nodes and not gold.is_text:
            continue
        reading = _read(part, comma) if len(part) <= REMEMBERED else read(part, comma, answer=True)
        if reading.nodes and in_words and _SHOUT.fullmatch(part):  # "There are 15!"
            return _Candidate(part, replace(reading, nodes=(*reading.nodes, *_read(part[:-1], comma).nodes)))
        if reading.nodes:
            return _Candidate(part, reading)
        unread = unread or reading
        if gold.is_text and any(text_key(c) == gold.reading.key for c in _heads(part)):
            return _Candidate(part, how="the same text", right=True)
    if found is None and not first:
        return _Candidate("")
    return _Candidate(first, unread or Reading(first, text_key(first), (), "no value in it"))


def _parts(content: str, found: Found | None) -> Iterator[str]:
    if found is None:
        return prose.plain(content)
    return iter((prose.bare(content),)) if found.mark == "boxed" else prose.cuts(content)


def _bare_letter(content: str) -> str | None:
    for part in prose.plain(content[-prose.WINDOW :]):
        if named := only_letter(part):
            return named
    if _BOLD_LETTER.match(content) and (named := letter(content)):
        return named
    return chosen(content[-prose.WINDOW :])


def _heads(part: str) -> Iterator[str]:
    """A text answer before what explains it."""
    part = part[:600]
    for match in _HEAD.finditer(part[:200]):
        if not _TURN.search(part, match.start()):
            yield part[: match.start()]


@lru_cache(maxsize=4096)
def _read(text: str, comma: bool) -> Reading:
    return read(text, comma, answer=True)


def _golds(reference: object) -> tuple[Reference, ...]:
    """The task's references, read once (long ones each time: what is remembered stays small)."""
    key = _hashable(reference)
    return _references(key) if len(repr(key)) <= REMEMBERED else tuple(references(key))


def _hashable(reference: object) -> object:
    if isinstance(reference, (list, tuple)):
        return tuple(map(_hashable, reference))
    return reference if isinstance(reference, (str, int, float)) else None


@lru_cache(maxsize=1024, typed=True)
def _references(gold: object) -> tuple[Reference, ...]:
    return tuple(references(gold))


def _fault(gold: Reference) -> str:
    """Why a reference has no value of its own; empty where the answer is at fault."""
    from gfcr.filter.verifiers.math.equality import points
    from gfcr.filter.verifiers.math.tree import variables
    from gfcr.filter.verifiers.math.values import Numbers

    for node in gold.reading.nodes:
        if node[0] in ("+", "*", "^", "f", "sum", "prod"):
            try:
                exact(node, Budget())
                names = variables(node)
                Numbers(90, points(names, 90)[0], Budget())(node)
            except TooBig as error:
                return str(error)
            except Undefined as error:
                if "division" in str(error):
                    return str(error)
    return ""


def _rational(node: Node) -> bool:
    try:
        return exact(node, Budget(200)) is not None
    except (TooBig, Undefined):
        return False


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."
