"""What an environment answers is checked where it makes it: no wrong type, NaN or half character comes as far as credit or the record."""

import math

import numpy as np
import pytest
from host_cases import TASK, Echo

from gfcr.environments.acts import Reset, Turn
from gfcr.environments.contract import EnvironmentFault, Said, Step
from gfcr.environments.host import Host
from gfcr.registry import Faithfulness, Slot, method
from gfcr.types import Message, Part, PartKind, Span, Status, Verdict
from interactive_cases import Talker, turns
from lifecycle_cases import tasks


def text(value="x", role="tool"):
    return Message(role, (Part(PartKind.TEXT, value),))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reward", "1"),
        ("reward", [1]),
        ("reward", math.nan),
        ("reward", np.float64("nan")),
        ("reward", math.inf),
        ("reward", 1e300),
        ("reward", 10**400),
        ("messages", None),
        ("messages", "hello"),
        ("messages", ("hello",)),
        ("messages", ({"role": "tool", "content": "hello"},)),
        ("messages", (text(5),)),
        ("messages", (text(role=5),)),
        ("calls", "2"),
        ("calls", None),
        ("calls", 1.5),
        ("calls", -1),
        ("terminated", "yes"),
        ("truncated", 1),
        ("state", 5),
        ("state", None),
        ("invalid", 7),
        ("agent", 3),
    ],
)
def test_a_step_that_is_none_is_refused_with_the_field(field, value):
    with pytest.raises((TypeError, ValueError), match=rf"Step\.{field}"):
        Step(**{field: value})


def test_numpy_scalars_and_lists_are_taken():
    step = Step([text()], np.float32(0.5), np.bool_(True), calls=np.int64(2))
    assert step.messages == (text(),) and type(step.reward) is float and step.reward == 0.5
    assert step.terminated is True and step.calls == 2 and type(step.calls) is int
    assert Step(invalid="bad_json: \ud800", agent="\ud800", state="é").invalid == "bad_json: \\ud800"
    assert type(Step(reward=1).reward) is float and Step().reward is None
    verdict = Verdict("v", "1", Status.SCORED, np.float32(0.5), np.bool_(True), spans=[Span(0, 1)])
    assert (type(verdict.score), verdict.correct, verdict.spans) == (float, True, (Span(0, 1),))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("verifier", 7),
        ("status", "right"),
        ("score", "1"),
        ("score", True),
        ("score", 1e300),
        ("score", math.nan),
        ("correct", "yes"),
        ("correct", 1),
        ("evidence", b"x"),
        ("answer", 5),
        ("tokens", -5),
        ("tokens", "a"),
        ("seconds", "x"),
        ("spans", ((0, 1),)),
    ],
)
def test_a_verdict_that_is_none_is_refused(field, value):
    with pytest.raises((TypeError, ValueError), match=field):
        Verdict(**{"verifier": "v", "version": "1", "status": Status.SCORED, "score": 1.0, field: value})


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not even that")


class Stop(BaseException):
    pass


class Harmful(Echo):
    """Raises what its turn names, in the caller's thread."""

    quick = True
    errors = {  # noqa: RUF012
        "mute": Mute(),
        "stop": Stop("now"),
        "left": GeneratorExit(),
        "half": ValueError("\ud800"),
        "fault": EnvironmentFault("\ud800", "x"),
    }

    def step(self, said):
        raise self.errors[said.text]


class HarmfulThread(Harmful):
    quick = False


@pytest.mark.parametrize("kind", [Harmful, HarmfulThread])
def test_whatever_is_raised_is_an_outcome_that_a_database_takes(kind):
    with Host(kind, seconds=20, workers=2) as host:
        host.run([Reset(name, TASK, 0) for name in kind.errors])
        out = host.run([Turn(name, 0, Said(name)) for name in kind.errors])
    told = [o.error for o in out]
    assert told == [
        "environment_raised: Mute: it does not say what",
        "environment_raised: Stop: now",
        "environment_raised: GeneratorExit: ",
        r"environment_raised: ValueError: \ud800",
        r"environment_fault: \ud800: x",
    ]
    assert all(error.encode() for error in told)


@method("silent", Slot.ENVIRONMENT, title="for tests", criterion="reliability", faithfulness=Faithfulness.OURS)
class Silent(Talker):
    """Its reset gives no state to play from."""

    def reset(self, task, seed):
        return Step(terminated=True)


def test_a_reset_that_cannot_be_played_from_is_told_in_the_record():
    round_ = turns({}, tasks(1), {"name": f"{__file__}:Silent"}, {"k": 1}).drive()
    assert "environment_fault: a reset gave no state to play from" in {
        d.reason for d in round_.decisions if d.action == "fault"
    }
