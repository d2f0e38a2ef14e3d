"""Whether an answer ends in a loop. Invariants: only exact repetition at the very end counts, so a text that found its way out is never
refused; linear in the text's last WINDOW characters; blanks at the end are not looked at.
"""

from __future__ import annotations

from pydantic import Field

from gfcr.context import Build
from gfcr.filter.verdicts import OURS, passes, refused, short, unscorable
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Span, StopReason, Task, Verdict

WINDOW = 20_000
CAREFUL = 4
"""Factor on the length, once each, for an answer that ended by itself and for a unit that people repeat on purpose: rows of tables and
matrices, figures, rules without letters."""


@method("repetition", Slot.GATE, title="no loop at the end", criterion="reliability", faithfulness=Faithfulness.OURS)
class Repetition:
    """Refuses an answer that ends in the same words over and over, above all one that the length limit cut in the middle of them (such
    an answer is refused, not only judged as cut)."""

    class Settings(FrozenModel):
        repeats: int = Field(8, ge=3)
        """How often the unit must stand at the end. TreePO (arXiv:2508.17445) stops at 8 copies of 32 characters anywhere."""
        chars: int = Field(400, ge=32, le=WINDOW // (CAREFUL * CAREFUL))
        """Length of the loop from which it counts, in characters; 4 times this where the answer ended by itself, and 4 times where the unit
        has no word or is a row of a table or a matrix. UNCONFIRMED: our choice."""

    name, version, bounded = "repetition", "1", True

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if stop in OURS:
            return unscorable(self, f"ended by us ({stop})")
        trimmed = text.rstrip()
        tail = trimmed[-WINDOW:]
        found = loop(tail, self.settings.repeats, self.settings.chars)
        if found is None:
            return passes(self, "no loop at its end")
        period, length = found
        unit = tail[-period:]
        needed = self.settings.chars * (CAREFUL if stop.finished else 1) * (CAREFUL if _on_purpose(unit) else 1)
        if length < needed:
            return passes(self, f"its last {length} characters repeat {short(unit, 40)}; fewer than {needed} is no loop")
        place = Span(len(trimmed) - length, len(trimmed), "loop")
        return refused(self, f"ends in a loop: {short(unit, 60)} {length // period} times", (place,))


def loop(text: str, repeats: int, chars: int) -> tuple[int, int] | None:
    """(period, length) of the shortest unit that the text ends with at least `repeats` times over at least `chars` characters; None for
    none. The Z-function of the text read backwards: linear."""
    back = text[::-1]
    n = len(back)
    z = [0] * n
    left = right = 0
    for i in range(1, n):
        if i < right:
            z[i] = min(right - i, z[i - left])
        while i + z[i] < n and back[z[i]] == back[i + z[i]]:
            z[i] += 1
        if i + z[i] > right:
            left, right = i, i + z[i]
        length = i + z[i]
        if length >= chars and length >= repeats * i:
            return i, length
        if i * repeats > n:
            return None
    return None


def _on_purpose(unit: str) -> bool:
    """Whether people repeat such a unit: it has no word of two letters, or is a row of a table, a matrix or a program."""
    words = "".join(c if c.isalpha() else " " for c in unit).split()
    return not any(len(w) > 1 or ord(w[0]) > 0x2E80 for w in words) or any(
        mark in unit for mark in ("|", "&", "\\\\", "\t", ";\n", "{", "}")
    )
