"""Whether an answer is as long as asked. Invariants: lengths are those of the text (a gate sees no tokens; limits on tokens are
`generate.max_tokens`); an answer cut by a limit is never called too short.
"""

from __future__ import annotations

from pydantic import Field

from gfcr.context import Build
from gfcr.errors import ConfigError
from gfcr.filter.verdicts import OURS, passes, refused, unscorable
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import StopReason, Task, Verdict


@method("length", Slot.GATE, title="length of the answer", criterion="reliability", faithfulness=Faithfulness.OURS)
class Length:
    """Refuses an answer that is too short or too long, in characters, words or lines, or that a limit cut."""

    class Settings(FrozenModel):
        min_chars: int = Field(0, ge=0)
        """Fewest characters, without the blanks at both ends."""
        max_chars: int | None = Field(None, ge=1)
        """Most characters. None: no limit."""
        min_words: int = Field(0, ge=0)
        """Fewest words: what stands between blanks."""
        max_words: int | None = Field(None, ge=1)
        """Most words. None: no limit."""
        min_lines: int = Field(0, ge=0)
        """Fewest lines with text on them."""
        max_lines: int | None = Field(None, ge=1)
        """Most lines with text on them. None: no limit."""
        refuse_cut: bool = False
        """Refuse what a limit cut (the token limit, the context, the turns, the clock) for that alone. False: the verifier says what it
        is worth."""

    name, version, bounded = "length", "1", True

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings
        for what in ("chars", "words", "lines"):
            low, high = getattr(settings, f"min_{what}"), getattr(settings, f"max_{what}")
            if high is not None and low > high:
                raise ConfigError(
                    f"filter.gates 'length': min_{what} = {low} is above max_{what} = {high}, so no answer passes", "swap them"
                )

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if stop in OURS:
            return unscorable(self, f"ended by us ({stop})")
        if not stop.finished and self.settings.refuse_cut:
            return refused(self, f"cut off ({stop})")
        bare = text.replace("\ufeff", "").strip()
        counts = {"chars": len(bare), "words": len(bare.split()), "lines": sum(1 for line in bare.splitlines() if line.strip())}
        for what, n in counts.items():
            low, high = getattr(self.settings, f"min_{what}"), getattr(self.settings, f"max_{what}")
            if high is not None and n > high:
                return refused(self, f"{n} {what}, more than {high}")
            if n < low and stop.finished:
                return refused(self, f"{n} {what}, fewer than {low}")
        return passes(self, f"{counts['chars']} characters, {counts['words']} words, {counts['lines']} lines")
