"""What users of such systems report about verifiers and judges: each kind of fault, by its smallest input.

The numbers are those of the project's list of user reports; the report each kind was first seen in stands in its docstring. What a
verifier of mathematics, code or queries must not do stands under its own tests (tests/filter).
"""

import json

import numpy as np
import pytest

from gfcr.filter.killable import contained
from gfcr.registry import Slot, find, settings_of
from gfcr.types import Segment, SegmentKind, Status, StopReason, Task, Verdict
from group_cases import plain, rollout
from lifecycle_cases import batch_of, lab, row_advantages

EOS = StopReason.EOS
_SAYS = {
    "nan": float("nan"),
    "inf": float("inf"),
    "missing": {},
    "none": None,
    "text": "1.0",
    "seven": {"score": 7},
    "ten": "10",
}


def says(text, reference=None):
    """Returns what the answer names."""
    if text == "broken":
        return json.loads("{'score': 1")
    return _SAYS[text]


@pytest.fixture(scope="module")
def function():
    found = find(Slot.VERIFIER, f"{__name__}:says")
    made = contained(found.cls(settings_of(found, {})), 20)
    yield made
    made.close()


@pytest.mark.parametrize("said", ["nan", "inf", "missing", "none", "text", "ten", "broken"])
def test_32_34_a_missing_or_broken_verdict_is_no_verdict(function, said):
    """huggingface/OpenEnv#1025, #1200: a missing verdict became 0.0, nan and inf were accepted. OpenPipe/ART#477: a judge's "10" and its
    broken JSON were taken."""
    verdict = function.judge(Task("t", "q"), said, EOS)
    assert (verdict.status, verdict.score, verdict.correct) == (Status.UNSCORABLE, None, None)
    assert verdict.evidence


def test_34_a_score_outside_the_unit_interval_is_what_it_is_and_never_cut(function):
    """OpenPipe/ART#477: a judge that answers 7 where 0 to 1 is meant: the number stands in the verdict for all to see."""
    verdict = function.judge(Task("t", "q"), "seven", EOS)
    assert (verdict.score, verdict.evidence) == (7.0, "returned 7")


def test_32_a_verdict_that_is_missing_leaves_the_group_instead_of_pulling_it():
    """huggingface/trl#5773: where every reward function abstains the sum became 0.0 and pulled mean and spread of the group."""
    made = lab({"a+?00": "rrwi"}, filter={"verifiers": [{"name": "exact"}]})
    broken = made.cascade.verifiers[0]

    class Abstains:
        name, version = "exact", "1"

        def judge(self, task, text, stop):
            if text == "a":
                return Verdict("exact", "1", Status.UNSCORABLE, evidence="abstains")
            return broken.judge(task, text, stop)

    made.cascade.verifiers = [Abstains()]
    round_ = made.drive()
    batch = batch_of(round_)
    assert len(batch) == 3
    assert sorted(row_advantages(batch)) == pytest.approx([-(2**0.5), 0.5**0.5, 0.5**0.5], abs=1e-3)


def test_the_answer_in_a_tools_output_pays_nothing():
    r"""verl-project/verl#6392: 'I will look' by the model, `\boxed{42}` by the tool, gold 42."""
    from gfcr.filter.cascade import Cascade

    texts = {1: "I will look", 2: r"\boxed{42}"}
    answer = find(Slot.VERIFIER, "answer")
    verifier = answer.cls(settings_of(answer, {"mode": "boxed"}), None)
    cascade = Cascade(lambda ids: "".join(texts[int(i)] for i in ids), [], [verifier])
    own, tool = Segment(SegmentKind.ACTION, [1], np.zeros(1)), Segment(SegmentKind.OBSERVATION, [2])
    signals = cascade.judge(Task("t", "q", "42"), rollout("r", plain(SegmentKind.PROMPT, 1), own, tool))
    assert (signals.reward, signals.correct) == (0.0, False)


@pytest.mark.parametrize(
    ("mode", "text", "gold", "right"),
    [
        (
            "hash",
            "#### 42\n" + "filler " * 80,
            "42",
            True,
        ),  # verl-project/verl#7274: only the last 300 characters were searched
        (
            "boxed",
            "I looked at 17 things and gave up.",
            "17",
            False,
        ),  # PrimeIntellect-ai/verifiers#1028: no box, all of it graded
        ("boxed", r"\boxed{1728}", "1331 and 1728", False),  # huggingface/Math-Verify#47: one of two values
    ],
)
def test_the_final_answer_is_where_the_recipe_says(mode, text, gold, right):
    answer = find(Slot.VERIFIER, "answer")
    verdict = answer.cls(settings_of(answer, {"mode": mode}), None).judge(Task("t", "q", gold), text, EOS)
    assert verdict.correct is right


def test_a_reference_that_cannot_be_read_is_unscorable_and_never_right():
    r"""huggingface/open-r1#293: gold 'forty two', answer `\boxed{7}`: every completion got reward 1."""
    answer = find(Slot.VERIFIER, "answer")
    verdict = answer.cls(settings_of(answer, {"mode": "last-number"}), None).judge(
        Task("t", "q", "forty two"), r"\boxed{7}", EOS
    )
    assert (verdict.status, verdict.score) == (Status.UNSCORABLE, None)
