"""Multiple choice: the final choice against the right one. Invariants: a text that chooses two options where one is right is wrong; an
answer whose choice cannot be found is wrong, a reference that means no option is UNSCORABLE; linear in the answer's length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gfcr.context import Build
from gfcr.domains.answers import Extract, extract
from gfcr.filter.texts.spoken import spoken
from gfcr.filter.texts.stated import statements
from gfcr.filter.verdicts import cut, place, scored, short, unscorable
from gfcr.filter.verifiers.choice.find import STATEMENTS, find
from gfcr.filter.verifiers.choice.find import Choice as Found
from gfcr.filter.verifiers.choice.options import Options, chosen, listed, options, words
from gfcr.filter.verifiers.choice.read import alike
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Span, StopReason, Task, Verdict


@method(
    "choice",
    Slot.VERIFIER,
    title="multiple choice and short words",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("binary correctness",),
)
class Choice:
    """Right iff the answer's last statement chooses exactly the right options. The reference is a label (`B`), labels (`A, C`), an option's
    text, or a list of which any may be met; options stand in the task's `choices`. A reference that is no label is compared as a
    word (`Yes`), exact number or text."""

    class Settings(FrozenModel):
        choices: str = "choices"
        """Column (`Task.meta`) with the options: texts in order, or label -> text. A task without it has the letters."""
        index: int | None = None
        """A reference that is a whole number counts options from here (0 or 1). None: such a reference is a label or a text."""
        accept_cut: bool = False
        """Judge an answer that the length limit cut by what it says. False: it is wrong."""

    name, version, bounded = "choice", "1", True

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if task.reference is None:
            return unscorable(self, "the task has no reference")
        if (ended := cut(self, stop, self.settings.accept_cut)) is not None:
            return ended
        choices = listed(task.meta.get(self.settings.choices))
        try:
            goals = self._goals(task.reference, choices)
        except ValueError as error:
            return unscorable(self, str(error))
        verdicts = [self._choice(text, known, wanted) if wanted else self._text(text, said) for said, known, wanted in goals]
        return next((v for v in verdicts if v.correct), verdicts[0])

    def _goals(self, reference: Any, choices: Any) -> list[tuple[str, Options, frozenset[str] | None]]:
        """(reference, options, right labels) of each reference that may be met; labels are None where it is a text of its own. Raises
        ValueError."""
        given = list(reference) if isinstance(reference, (list, tuple)) else [reference]
        if not given:
            raise ValueError("the reference is an empty list")
        out: list[tuple[str, Options, frozenset[str] | None]] = []
        for one in given:
            if isinstance(one, (Mapping, list, bool)) or one is None or not str(one).strip():
                raise ValueError(f"the reference {short(one)} is neither a label nor a text")
            said = str(one)
            if choices is None and said.strip().casefold() == "nan":  # as in `math`: a missing value that was made a text
                raise ValueError(f"the reference {short(one)} is no answer")
            known = options(choices, [words(said).strip("()[]")])
            if isinstance(one, int) and self.settings.index is not None:
                place = one - self.settings.index
                if not 0 <= place < len(known.labels):
                    raise ValueError(f"the reference {one} is the place of no option: there are {len(known.labels)}")
                out.append((said, known, frozenset([known.labels[place]])))
                continue
            wanted = chosen(said, known, choices is not None)
            if wanted is None and choices is not None:
                raise ValueError(f"the reference {short(said)} is no label and no text of the {len(known.labels)} choices")
            out.append((said, replace(known, several=wanted is not None and len(wanted) > 1), wanted))
        return out

    def _choice(self, text: str, known: Options, wanted: frozenset[str]) -> Verdict:
        goal = _shown(wanted, known)
        for zone in spoken(text):
            found = find(zone, known)
            if found is not None:
                break
        else:
            return scored(self, 0.0, False, f"no final choice found, wanted {goal}")
        said = _shown(found.labels, known) if found.labels else "none of the options"
        right = found.labels == wanted
        why = f"chose {said}, wanted {goal}" if not right else f"chose {said}"
        if not right and len(found.labels) > len(wanted):
            why += f" ({len(found.labels)} choices in one statement)"
        return scored(self, float(right), right, why, said, _span(found, text))

    def _text(self, text: str, wanted: str) -> Verdict:
        """A reference that is no label: the last statement's words, or the whole text where nothing is stated."""
        for zone in spoken(text):
            stated = [s for s in statements(zone)[-STATEMENTS:] if zone[s.start : s.end].strip(" \t*_$.:")]
            if stated:
                last = stated[-1]
                content, where = zone[last.start : last.end], (last.start, last.end)
            elif zone.strip():
                lines = zone.strip().splitlines()
                content = zone.strip() if alike(zone, wanted) else lines[-1].strip()
                where = (zone.rfind(content), zone.rfind(content) + len(content))
            else:
                continue
            inner = extract(content, Extract.BOXED)
            right = alike(content, wanted) or (inner is not None and alike(inner, wanted))
            said = words(inner or content)
            return scored(
                self,
                float(right),
                right,
                f"{short(said)} {'equals' if right else 'is not'} {short(words(wanted))}",
                said,
                place(*where),
            )
        return scored(self, 0.0, False, f"no final answer, wanted {short(wanted)}")


def _shown(labels: Iterable[str], known: Options) -> str:
    """Labels in the order of the options."""
    order = known.labels.index
    return ", ".join(sorted(labels, key=order))


def _span(found: Found, text: str) -> tuple[Span, ...]:
    return place(min(found.start, len(text)), min(found.end, len(text)))
