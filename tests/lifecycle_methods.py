"""Methods made for the tests: slots that record their calls, and rules' counterparts that no built-in method has yet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gfcr.domains.programs.verify import ExactVerifier
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.run.seeds import stream_key, uniforms
from gfcr.types import Credit, Span, Status, Verdict


def _about(name, slot, *traits):
    return method(name, slot, title=name, criterion="reliability", faithfulness=Faithfulness.OURS, traits=traits)


@_about("raw", Slot.CREDIT)
class RawReward:
    """The reward as advantage, for groups of one."""

    def __init__(self, settings, build):
        pass

    def credit(self, group, members):
        return {m.rollout.id: Credit(m.signals.reward) for m in members}


@_about("scored", Slot.VERIFIER)
class Scored:
    """A score in hundredths after `#`, without a word on correctness: `#35` is .35."""

    name, version, bounded = "scored", "1", True

    def __init__(self, settings, build):
        pass

    def judge(self, task, text, stop):
        number = text.partition("#")[2]
        if not number:
            return Verdict(self.name, self.version, Status.UNSCORABLE, evidence="no number")
        return Verdict(self.name, self.version, Status.SCORED, int(number) / 100)


@_about("wild", Slot.VERIFIER)
class Wild(Scored):
    """The same, from a third party that declares no bound."""

    name, bounded = "wild", False


@_about("traced", Slot.VERIFIER)
class Traced:
    """Scores whether a trace stands before the result, and says nothing about correctness."""

    name, version, bounded = "traced", "1", True

    def __init__(self, settings, build):
        pass

    def judge(self, task, text, stop):
        return Verdict(self.name, self.version, Status.SCORED, float(bool(text.partition("#")[0])))


@_about("flip", Slot.VERIFIER)
class Flip:
    """The exact verdict, flipped: a cheap verifier with known error rates. Its chance hangs on task and text alone."""

    class Settings(FrozenModel):
        negatives: float = 0.2
        """False negatives: chance that a right answer is called wrong."""
        positives: float = 0.05
        """False positives."""
        undecided: float = 0.0
        """Chance that it abstains."""

    name, version, bounded, cost = "flip", "1", True, 0.0001

    def __init__(self, settings, build):
        self.settings = settings

    def judge(self, task, text, stop):
        verdict = ExactVerifier().judge(task, text, stop)
        u = uniforms(np.array([stream_key(7, self.name, task.id, text)], np.uint64), np.array([0, 1]))
        if u[1] < self.settings.undecided:
            return Verdict(self.name, self.version, Status.UNSCORABLE, evidence="abstains")
        wrong = bool(u[0] < (self.settings.negatives if verdict.correct else self.settings.positives))
        right = verdict.correct != wrong
        return replace(verdict, verifier=self.name, score=float(right), correct=right, evidence="at a glance")


@_about("flip-more", Slot.VERIFIER)
class FlipMore(Flip):
    """Another one, for three in a row."""

    name, cost = "flip-more", 0.01


@_about("wild-exact", Slot.VERIFIER)
class WildExact:
    """The exact verdict from a third party that declares no bound, sooner or later; hangs on answers that begin with `p`."""

    name, version = "wild-exact", "1"

    def __init__(self, settings, build):
        pass

    def judge(self, task, text, stop):
        import time

        while text.startswith("p"):
            pass
        time.sleep(0.002 * (stream_key(1, text) % 5))
        return replace(ExactVerifier().judge(task, text, stop), verifier=self.name)


@_about("pointing", Slot.VERIFIER)
class Pointing:
    """Right iff the final pair is the reference; points at the first trace line of wrong answers, and at every `#`."""

    name, version, bounded = "pointing", "1", True

    def __init__(self, settings, build):
        pass

    def judge(self, task, text, stop):
        right = text.partition("#")[2] == task.reference["final"]
        spans = [Span(i, i + 1, "mark", 0.5) for i, c in enumerate(text) if c == "#"]
        return Verdict(
            self.name,
            self.version,
            Status.SCORED,
            float(right),
            right,
            spans=(*spans, *([] if right else [Span(0, text.find("#"), "line")])),
        )
