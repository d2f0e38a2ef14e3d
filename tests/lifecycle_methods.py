"""Methods made for the tests: slots that record their calls, and rules' counterparts that no built-in method has yet."""

from __future__ import annotations

from gfcr.registry import Faithfulness, Slot, method
from gfcr.types import Credit, Status, Verdict


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
