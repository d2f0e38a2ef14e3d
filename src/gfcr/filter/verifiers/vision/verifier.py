"""Answers about images: boxes (IoU), measurements (mean relative accuracy), counts, text read off (edit distance).

Invariants: the score is in [0, 1], and `correct` says whether it reaches `right_at`; an empty answer is never right; what the task does not
tell (a size, a reference of the kind) is UNSCORABLE; bounded work.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from pydantic import Field

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.texts.spoken import spoken
from gfcr.filter.texts.stated import statements
from gfcr.filter.verdicts import cut, place, scored, short, unscorable
from gfcr.filter.verifiers.own import own_settings
from gfcr.filter.verifiers.vision import boxes as bx
from gfcr.filter.verifiers.vision import numbers as nu
from gfcr.filter.verifiers.vision import reading as rd
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Span, StopReason, Task, Verdict

OWN = "vision"
"""Column (`Task.meta`) with settings of a task's own, a mapping; they go before the recipe's."""
RIGHT_AT = {"iou": 0.5, "mra": 1.0, "count": 1.0, "ocr": 1.0}


class Kinds(FrozenModel):
    """What an answer is compared as."""

    kind: Literal["iou", "mra", "count", "ocr"]
    """`iou`: one or several boxes; `mra`: a measurement; `count`: a whole number; `ocr`: a text."""
    right_at: float | None = Field(None, gt=0, le=1)
    """Score from which an answer is right. None: IoU .5 for every box (the convention of referring expressions), all ten thresholds of
    the accuracy (within 5 %), else 1. UNCONFIRMED: the papers' rewards are the scores alone."""
    layout: bx.Layout = "xyxy"
    """Order of a box's numbers in the answer: corners, corner and size, centre and size, or corners with y first (Gemini)."""
    reference_layout: bx.Layout = "xyxy"
    """The same of the reference."""
    scale: bx.Scale = "pixel"
    """Coordinates of the answer: pixels (of the resized image where the task has the column `resized`), fractions of the image, or
    thousandths."""
    reference_scale: bx.Scale = "pixel"
    """The same of the reference; its pixels are those of the image as it is. Where the two differ, the task needs the column `size`."""
    inclusive: bool = False
    """The last pixel belongs to a box: widths are x2 - x1 + 1, in the intersection and in the areas."""
    metric: rd.Metric = "anls"
    """Of texts: `anls` (1 - normalised distance where that is below `tau`, else 0), `similarity` (without `tau`), `wer` (1 - word errors)."""
    tau: float = Field(0.5, gt=0, le=1)
    """Threshold of ANLS."""
    ignore_case: bool = True
    """Texts are compared in any case, as in ANLS."""
    answer: Literal["auto", "whole"] = "auto"
    """Where a text stands: in the last statement (`<answer>`, box, "the answer is") and in all of the answer where nothing is stated, or
    always in all of it."""


@method(
    "vision",
    Slot.VERIFIER,
    title="answers about images",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    arxiv="2412.14171",
)
class Vision:
    """Boxes by IoU, measurements by mean relative accuracy, counts exactly, texts by edit distance; right from `right_at` on."""

    class Settings(Kinds):
        kind: Literal["iou", "mra", "count", "ocr"] | None = None  # type: ignore[assignment]
        """`iou`: one or several boxes; `mra`: a measurement; `count`: a whole number; `ocr`: a text. None: each task says it (column
        `vision`)."""
        accept_cut: bool = False
        """Judge an answer that the length limit cut by what it says. False: it is wrong."""

        def traits(self) -> frozenset[str]:
            return frozenset({"binary correctness"}) if self.kind == "count" else frozenset()

    name, version, bounded = "vision", "1", True

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings
        for task in build.tasks if build else ():
            try:
                self._of(task)
            except ValueError as error:
                raise ConfigError(
                    f"filter.verifiers 'vision': task {task.id}: {error}", "set `kind`, or correct the task's column 'vision'"
                ) from None

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if task.reference is None:
            return unscorable(self, "the task has no reference")
        if (ended := cut(self, stop, self.settings.accept_cut)) is not None:
            return ended
        try:
            kinds = self._of(task)
            judge = {"iou": self._boxes, "mra": self._measure, "count": self._count, "ocr": self._text}[kinds.kind]
            verdicts = [judge(task, zone, kinds) for zone in spoken(text)]
        except ValueError as error:
            return unscorable(self, str(error))
        return next((v for v in verdicts if v.answer is not None), verdicts[0])

    def _of(self, task: Task) -> Kinds:
        """The settings for a task. Raises ValueError."""
        base = self.settings.model_dump(include=set(Kinds.model_fields), exclude_none=True)
        return own_settings(OWN, task.meta.get(OWN) or {}, Kinds, base)

    def _graded(self, score: Fraction | float, kinds: Kinds, why: str, answer: str, spans: tuple[Span, ...]) -> Verdict:
        goal = RIGHT_AT[kinds.kind] if kinds.right_at is None else kinds.right_at
        return scored(self, float(score), float(score) >= goal, why, answer, spans)

    def _measure(self, task: Task, zone: str, kinds: Kinds) -> Verdict:
        wanted = nu.number(task.reference)
        if wanted is None:
            raise ValueError(f"the reference {short(task.reference)} is not one number")
        found = nu.given(zone)
        if isinstance(found, nu.NoNumber):
            return scored(self, 0.0, False, found.why)
        value = nu.in_unit(found, wanted.unit)
        span = place(found.start, found.end)
        said = f"{_shown(found.value)}{found.unit and ' ' + found.unit}"
        if value is None:
            return scored(self, 0.0, False, f"{said} is no {wanted.unit}", said, span)
        score = nu.accuracy(value, wanted.value)
        return self._graded(score, kinds, f"{said}, wanted {_shown(wanted.value)}: accuracy {float(score):g}", said, span)

    def _count(self, task: Task, zone: str, kinds: Kinds) -> Verdict:
        wanted = nu.number(task.reference)
        if wanted is None or wanted.value.denominator != 1 or wanted.value < 0:
            raise ValueError(f"the reference {short(task.reference)} is no count")
        found = nu.given(zone, none_is_zero=True)
        if isinstance(found, nu.NoNumber):
            return scored(self, 0.0, False, found.why)
        right, said = found.value == wanted.value, _shown(found.value)
        why = f"{said}" if right else f"{said}, wanted {_shown(wanted.value)}"
        return scored(self, float(right), right, why, said, place(found.start, found.end))

    def _text(self, task: Task, zone: str, kinds: Kinds) -> Verdict:
        given = list(task.reference) if isinstance(task.reference, (list, tuple)) else [task.reference]
        wanted = [rd.normal(str(one), kinds.ignore_case) for one in given if isinstance(one, (str, int, float))]
        if not wanted or not all(wanted) or len(wanted) < len(given):
            raise ValueError(f"the reference {short(task.reference)} is no text")
        if max(map(len, wanted)) > rd.LONGEST:
            raise ValueError(f"the reference is longer than {rd.LONGEST} characters")
        start, end = _place(zone, kinds.answer == "auto")
        found = rd.normal(zone[start:end], kinds.ignore_case)
        if not found:
            return scored(self, 0.0, False, "the answer is empty")
        bare = found[1:-1] if len(found) > 2 and found[0] == found[-1] and found[0] in "\"'`" else found
        said = found if found in wanted else bare
        score, best = max((rd.similarity(said, one, kinds.metric, kinds.tau), one) for one in wanted)
        why = (
            f"{short(said)} is {short(best)}"
            if score == 1
            else f"{short(said)}, wanted {short(best)}: {kinds.metric} {float(score):.3f}"
        )
        return self._graded(score, kinds, why, said, place(start, end))

    def _boxes(self, task: Task, zone: str, kinds: Kinds) -> Verdict:
        wanted = bx.read(task.reference)
        if wanted is None or len(wanted) > bx.MOST:
            raise ValueError(f"the reference {short(task.reference)} is no box and no list of at most {bx.MOST} boxes")
        size, resized = bx.sides(task.meta.get("size"), "size"), bx.sides(task.meta.get("resized"), "resized")
        pixels = kinds.inclusive or {kinds.scale, kinds.reference_scale} == {"pixel"}
        at = bx.factors(kinds.reference_scale, size, None, pixels)
        goals = [bx.corners(box, kinds.reference_layout, at) for box in wanted]
        if any(g is None or bx.iou(g, g, kinds.inclusive) == 0 for g in goals):
            raise ValueError(f"a box of the reference {short(task.reference)} has no area")
        by = bx.factors(kinds.scale, size, resized, pixels)
        found, start, end = _given_boxes(zone, len(wanted) != 1)
        if found is None:
            return scored(self, 0.0, False, "no box in it")
        said = "; ".join(",".join(f"{v:g}" for v in box.numbers) for box in found[: bx.MOST])
        span = place(start, end)
        if len(found) > bx.MOST:
            return scored(self, 0.0, False, f"more than {bx.MOST} boxes", said, span)
        if not wanted or not found:
            right = not wanted and not found
            return scored(self, float(right), right, f"{len(found)} boxes, wanted {len(wanted)}", said, span)
        placed = [bx.corners(box, kinds.layout, by) for box in found]
        gains = [
            [bx.iou(g, p, kinds.inclusive) if g and p and _labels(w.label, f.label) else 0.0 for p, f in zip(placed, found)]
            for g, w in zip(goals, wanted)
        ]
        overlaps = [gains[i][j] for i, j in bx.matched(gains)]
        score = min(1.0, sum(overlaps) / max(len(found), len(wanted)))
        goal = RIGHT_AT["iou"] if kinds.right_at is None else kinds.right_at
        right = len(found) == len(wanted) and min(overlaps) >= goal
        why = "an inverted box; " if None in placed else ""
        why += (
            f"IoU {overlaps[0]:.3f}"
            if len(wanted) == len(found) == 1
            else f"{len(found)} boxes for {len(wanted)}, mean IoU {score:.3f}"
        )
        return scored(self, score, right, why, said, span)


def _labels(wanted: str, found: str) -> bool:
    """Whether two boxes may be of the same thing: labels count where both have one."""
    return not wanted or not found or wanted.strip().casefold() == found.strip().casefold()


def _given_boxes(zone: str, several: bool) -> tuple[list[bx.Box] | None, int, int]:
    """(boxes, start, end): of the last statement that has any, else of the whole text; None without any. "None" is no box."""
    for s in reversed(statements(zone)[-20:]):
        inside = zone[s.start : s.end]
        made = bx.written(inside, s.kind in ("tags", "box") or several)
        if made is not None:
            return made[0], s.start + made[1], s.start + made[2]
        if inside.strip(" .*_").casefold() in ("none", "no box", "no boxes", "nothing", "not present"):
            return [], s.start, s.end
    made = bx.written(zone, several)
    if made is not None:
        return made
    if zone.strip(" .*_\n").casefold() in ("none", "no box", "no boxes", "nothing", "not present"):
        return [], 0, len(zone)
    return None, 0, 0


def _place(zone: str, auto: bool) -> tuple[int, int]:
    """Where an answer's text stands."""
    stated = [s for s in statements(zone) if zone[s.start : s.end].strip()] if auto else []
    marked = [s for s in stated if s.kind in ("tags", "box")] or stated
    start, end = (marked[-1].start, marked[-1].end) if marked else (0, len(zone))
    inner = zone[start:end]
    return start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


def _shown(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"{float(value):g}" if abs(value) < 10**15 else str(value)[:40]
