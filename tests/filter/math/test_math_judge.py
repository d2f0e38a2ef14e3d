"""What a verdict says, what the settings do, what nobody can judge, and a recipe with `math` down to its batch."""

from __future__ import annotations

from typing import Any

import pytest

from gfcr.filter.verifiers.math.verifier import Math
from gfcr.registry import Slot, find
from gfcr.types import Status, StopReason, Task, Verdict
from lifecycle_cases import batch_of, row_advantages
from text_cases import through


def judge(gold: Any, text: str, stop: StopReason = StopReason.EOS, **settings: Any) -> Verdict:
    return Math(Math.Settings(**settings)).judge(Task("math", "q", gold), text, stop)


def test_a_verdict_says_why_where_and_what() -> None:
    text = r"First \boxed{3}. No: \boxed{\frac{1}{2}}."
    verdict = judge("0.5", text)
    assert (verdict.correct, verdict.score, verdict.evidence) == (True, 1.0, r"\frac{1}{2} = 0.5, exact value")
    (span,) = verdict.spans
    assert text[span.start : span.end] == r"\frac{1}{2}" and span.kind == "answer"
    wrong = judge("0.5", r"\boxed{\frac{1}{3}}")
    assert (wrong.correct, wrong.score, wrong.answer) == (False, 0.0, "1/3") and "is not 0.5" in wrong.evidence


@pytest.mark.parametrize(
    "forms",
    [
        ["1/2", "0.5", r"\frac{2}{4}", r"50\%", "one half"],
        [r"\sqrt{8}", r"2\sqrt{2}", r"2^{3/2}"],
        ["(x+1)^2", "x^2+2x+1", "1+x(x+2)"],
        ["1, 2", "2, 1", r"\{1,2\}", r"x=1 \text{ or } x=2"],
        ["(1, 2)", r"\left(1,2\right)", "x=1, y=2"],
        ["Robin", r"\text{Robin}", "robin."],
    ],
)
def test_equal_answers_have_one_text(forms: list[str]) -> None:
    """Also where they are wrong: what votes and clusters count."""
    assert len({judge("77", rf"\boxed{{{form}}}").answer for form in forms}) == 1
    assert len({judge(forms[0], rf"\boxed{{{form}}}").answer for form in forms}) == 1


@pytest.mark.parametrize(
    "gold",
    [None, "", "  ", "$$", r"\boxed{}", "nan", [], {"a": 1}, [None], ["", r"\boxed{}"], True, r"\frac{1}{0}", r"\weird{x"],
)
def test_a_reference_that_says_nothing_judges_nobody(gold: Any) -> None:
    verdict = judge(gold, r"\boxed{7}")
    assert verdict.status is Status.UNSCORABLE and verdict.correct is None and verdict.evidence


def test_any_reference_of_a_list_may_match() -> None:
    assert judge(["0.5", "", "pi"], r"\boxed{\pi}").correct is True
    assert judge(["0.5", "", "pi"], r"\boxed{3}").correct is False
    assert judge(("5",), "5").correct is True and judge(5, "5").correct is True and judge(0.25, "1/4").correct is True


def test_strict_wants_a_mark() -> None:
    assert judge("17", "I looked at 17 things and gave up.", mode="strict").correct is False
    assert judge("17", "17", mode="strict").correct is False and judge("17", "17").correct is True
    assert judge("17", r"\boxed{17}", mode="strict").correct is True
    assert judge("17", "The answer is 17", mode="strict", marks=("boxed",)).correct is False
    assert judge("17", r"\boxed{16} #### 17", mode="strict", marks=("hash",)).correct is True


def test_digits_of_decimals() -> None:
    assert judge(r"\frac{1}{3}", "0.333333").correct is True and judge(r"\frac{1}{3}", "0.33333").correct is False
    assert judge(r"\frac{1}{3}", "0.33333", digits=5).correct is True and judge(r"\frac{1}{3}", "0.333334").correct is False
    assert judge("0.333333", "0.333334").correct is False and judge("0.125", "0.1250001").correct is False


def test_cut_answers() -> None:
    assert judge("4", r"\boxed{4}", StopReason.MAX_TOKENS).correct is False
    assert judge("4", r"so \boxed{4}. And more", StopReason.MAX_TOKENS, accept_cut=True).correct is True
    assert judge("4", "the answer is 4", StopReason.MAX_TOKENS, accept_cut=True).correct is False  # of 42, perhaps
    assert judge("4", r"\boxed{4}", StopReason.CANCELLED).status is Status.UNSCORABLE


@pytest.mark.parametrize(
    ("gold", "text", "right"),
    [
        (r"1-1/\mathrm{e}", r"1+1/\mathrm{e}", False),  # Math-Verify issues 14, 41, 64, 82: each was accepted
        ("1/2^99", "1/2^98", False),
        ("1/2004!", "1/2006!", False),
        ("4", r"4\sqrt(2)", False),
        (r"\sqrt{1/n}", r"1/\sqrt{n}", True),  # and this refused
        ("1331 and 1728", "1728", False),  # issue 47
        ("3x-y+13=0", "3x+4y+14=0", False),  # issue 60
        ("forty two", r"\boxed{7}", False),  # open-r1 293
        ("42", "#### 42" + " filler" * 100, True),  # verl 7274
        ("1", r"\boxed{5^{5^{5^{5^5}}}}", False),  # verl 5839
    ],
)
def test_reported_faults_of_other_graders(gold: str, text: str, right: bool) -> None:
    assert bool(judge(gold, text).correct) is right


def test_from_a_recipe_to_a_batch() -> None:
    assert find(Slot.VERIFIER, "math").cls is Math
    made, members = through(
        Task("math", "q", r"\frac{1}{2}"),
        [r"so \boxed{0.5}", "it is 1/3", "the answer is 50%", "I do not know"],
        verifiers=[{"name": "math"}],
    )
    assert [m.signals.correct for m in members] == [True, False, True, False]
    assert members[0].signals.verdict.answer == members[2].signals.verdict.answer == "1/2"
    advantages = dict(zip(batch_of(made).rollout_ids, row_advantages(batch_of(made))))
    assert [advantages[m.rollout.id] > 0 for m in members] == [True, False, True, False]
