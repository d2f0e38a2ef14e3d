"""Judging: what a verifier sees (invariant 9), and that its own faults never become rewards (invariant 3)."""

import threading

import numpy as np
import pytest

from gfcr.filter.cascade import Cascade
from gfcr.types import Segment, SegmentKind, Status, StopReason, Verdict
from group_cases import action, plain, rollout, task


def text_of(ids):
    return " ".join(map(str, ids))


class Saying:
    """Says what it is told and remembers what it saw."""

    version = "1"

    def __init__(self, name, says):
        self.name, self.says, self.saw = name, says, []

    def judge(self, task, text, stop):
        self.saw.append(text)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    score = judge


def scored(score, correct=None):
    return Verdict("v", "1", Status.SCORED, score, correct)


INVALID, UNSCORABLE = Verdict("v", "1", Status.INVALID), Verdict("v", "1", Status.UNSCORABLE)


def judge(gates, verifiers, steps=(), of=None, **more):
    return Cascade(text_of, gates, verifiers, steps, **more).judge(task(), of or rollout("r"))


def test_a_verifier_sees_the_policys_own_tokens_only():
    own = [Segment(SegmentKind.ACTION, ids, np.zeros(len(ids))) for ids in ([7, 8], [9])]
    strange = [
        plain(SegmentKind.GUIDANCE, 1),
        plain(SegmentKind.OBSERVATION, 3),
        plain(SegmentKind.FORCED, 2),
        plain(SegmentKind.DEMO, 2),
    ]
    seen, gate, steps = Saying("v", scored(1.0, True)), Saying("g", scored(1.0)), Saying("s", [])
    path = (plain(SegmentKind.PROMPT, 4), strange[0], own[0], strange[1], strange[2], own[1], strange[3])
    judge([gate], [seen], [steps], rollout("r", *path))
    assert seen.saw == gate.saw == steps.saw == ["7 8\n9"]


def test_parts_of_one_turn_stay_together_and_turns_do_not_run_into_one_word():
    parts = [action(2), action(1, version=1)]
    seen = Saying("v", scored(0.0, False))
    judge([], [seen], of=rollout("r", plain(SegmentKind.PROMPT, 1), *parts, plain(SegmentKind.OBSERVATION, 1), action(1)))
    assert seen.saw == ["10 11 10\n10"]


@pytest.mark.parametrize(("keep", "text"), [(True, "7 8"), (False, "7 ")])
def test_nothing_after_the_stop_string_is_judged(keep, text):
    """Only the turn that it ended; what is before it, in another turn, stays."""
    before = Segment(SegmentKind.ACTION, [8, 8, 1], np.zeros(3))
    last = Segment(SegmentKind.ACTION, [7, 8, 9, 8], np.zeros(4))
    path = (plain(SegmentKind.PROMPT, 1), before, plain(SegmentKind.OBSERVATION, 1), last)
    seen = Saying("v", scored(0.0, False))
    judge([], [seen], of=rollout("r", *path, stop=StopReason.STOP_STRING), stops=("9 8", "8"), keep_stop=keep)
    judge([], [seen], of=rollout("r", *path, stop=StopReason.EOS), stops=("9 8", "8"), keep_stop=keep)
    assert seen.saw == ["8 8 1\n" + text, "8 8 1\n7 8 9 8"]


def test_an_answer_without_own_tokens_is_empty_text():
    seen = Saying("v", scored(0.0, False))
    judge([], [seen], of=rollout("r", plain(SegmentKind.PROMPT, 4)))
    assert seen.saw == [""]


def test_the_first_gate_that_does_not_pass_ends_it():
    last, verifier = Saying("late", scored(1.0)), Saying("v", scored(1.0, True))
    signals = judge([Saying("g", INVALID), last], [verifier], invalid_reward=-0.5)
    assert (signals.status, signals.reward, signals.correct) == (Status.INVALID, -0.5, False)
    assert not last.saw and not verifier.saw


def test_a_broken_gate_is_unscorable_and_not_a_pass():
    signals = judge([Saying("g", RuntimeError("boom"))], [Saying("v", scored(1.0, True))])
    assert (signals.status, signals.reward, signals.correct) == (Status.UNSCORABLE, None, None)
    assert "RuntimeError: boom" in signals.verdict.evidence


@pytest.mark.parametrize("rubbish", [RuntimeError("boom"), None, 1.0, "right", {"score": 7}], ids=str)
def test_a_verifier_that_raises_or_returns_rubbish_is_unscorable_never_zero(rubbish):
    signals = judge([], [Saying("v", rubbish)])
    assert (signals.status, signals.reward, signals.correct) == (Status.UNSCORABLE, None, None)
    assert signals.verdict.evidence


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_no_number_cannot_be_a_verdict(score):
    with pytest.raises(ValueError, match="the score is"):
        scored(score)


@pytest.mark.parametrize(("status", "score"), [(Status.SCORED, None), (Status.INVALID, 0.0), (Status.UNSCORABLE, 0.0)])
def test_status_and_score_of_a_verdict_agree(status, score):
    with pytest.raises(ValueError, match="status"):
        Verdict("v", "1", status, score)


def test_the_first_that_decides_correctness_is_primary_and_the_dear_one_is_not_called():
    dear = Saying("dear", scored(0.0, False))
    signals = judge([], [Saying("cheap", scored(1.0, True)), dear])
    assert (signals.primary, signals.reward, signals.correct, dear.saw) == ("cheap", 1.0, True, [])


def test_an_unscorable_or_undecided_verdict_goes_on_to_the_next():
    signals = judge([], [Saying("broken", UNSCORABLE), Saying("model", scored(0.3)), Saying("program", scored(1.0, True))])
    assert (signals.primary, signals.reward, signals.correct) == ("program", 1.0, True)
    assert signals.rewards == {"model": 0.3, "program": 1.0}


def test_a_score_without_correctness_counts_when_nobody_decides():
    signals = judge([], [Saying("model", scored(0.3)), Saying("program", UNSCORABLE)])
    assert (signals.primary, signals.reward, signals.correct, signals.status) == ("model", 0.3, None, Status.SCORED)


def test_all_unscorable_is_unscorable():
    signals = judge([], [Saying("a", UNSCORABLE), Saying("b", UNSCORABLE)])
    assert (signals.reward, signals.status) == (None, Status.UNSCORABLE)


def test_without_a_verifier_nothing_is_known():
    signals = judge([], [])
    assert (signals.reward, signals.correct, signals.status) == (None, None, Status.UNSCORABLE)


def test_step_scores_stand_at_flat_offsets_of_the_path():
    """Two turns: own tokens at 2..4 and 7..8 of the path; offsets outside the answer are no scores."""
    path = (plain(SegmentKind.PROMPT, 2), action(3), plain(SegmentKind.OBSERVATION, 2), action(2))
    found = [(0, 2, 1.0), (2, 4, 0.0), (4, 5, None), (-1, 1, 1.0), (3, 9, 1.0), (2, 2, 1.0)]
    signals = judge([], [Saying("v", scored(1.0, True))], [Saying("s", found)], rollout("r", *path))
    assert [(s.start, s.end, s.value) for s in signals.steps] == [(2, 4, 1.0), (4, 8, 0.0), (8, 9, None)]


def test_a_failing_step_scorer_costs_its_steps_only():
    signals = judge([], [Saying("v", scored(1.0, True))], [Saying("s", ValueError("bad step"))])
    assert (signals.reward, signals.steps) == (1.0, ())
    assert signals.verdicts["s"].evidence == "ValueError: bad step"


def test_stop_reason_reaches_the_verifier():
    seen = []
    verifier = Saying("v", scored(0.0, False))
    verifier.judge = lambda task, text, stop: seen.append(stop) or scored(0.0, False)
    judge([], [verifier], of=rollout("r", stop=StopReason.MAX_TOKENS))
    assert seen == [StopReason.MAX_TOKENS]


class Together:
    """Judges only while as many as its barrier wants are at it."""

    name, version, bounded, parallel = "together", "1", True, True

    def __init__(self, many):
        self.barrier = threading.Barrier(many)

    def judge(self, task, text, stop):
        self.barrier.wait(10)
        if text == "boom":
            raise RuntimeError("boom")
        return Verdict(self.name, self.version, Status.SCORED, float(len(text)), True)


def test_a_judge_that_may_be_called_from_several_threads_is_and_its_verdicts_stay_in_order():
    from gfcr.filter.asking import InProcess, ask

    items = [(task(), text, StopReason.EOS) for text in ("a", "boom", "ccc", "dddd", "", "bb")]
    scores = [1.0, None, 3.0, 4.0, 0.0, 2.0]
    assert [v.score for v in ask(Together(3), items, 3)] == scores
    known = Verdict("v", "1", Status.SCORED, 9.0)
    assert [v.score for v in InProcess(Together(2), 2).stream([known, *items])] == [9.0, *scores]
    assert [v.score for v in ask(Together(1), items, 1)] == scores


@pytest.mark.parametrize("fault", ["raises", "too few", "rubbish"])
def test_many_verdicts_that_are_none_are_unscorable_each(fault):
    from gfcr.filter.asking import ask

    class Many:
        name, version = "many", "1"

        def judge_many(self, items):
            if fault == "raises":
                raise OSError("no route to the grader")
            return [7] * (len(items) - (fault == "too few"))

    found = ask(Many(), [(task(), "a", StopReason.EOS)] * 3)
    assert [v.status for v in found] == [Status.UNSCORABLE] * 3
    assert {v.evidence for v in found} == {
        {
            "raises": "OSError: no route to the grader",
            "too few": "ValueError: gave 2 verdicts for 3 answers",
            "rubbish": "returned int, not a Verdict",
        }[fault]
    }
