"""Nothing hangs, nothing raises, nothing is executed, and hostile text is never right."""

from __future__ import annotations

import pickle
import random
import threading
import time

import pytest

from gfcr.filter.verifiers.math.verifier import Math
from gfcr.types import Status, StopReason, Task

JUDGE = Math(Math.Settings())
HOSTILE = {
    "tower": "9^{9^{9^9}}",
    "negative tower": "2^{-10^{10}}",
    "factorials": "100000!! + 100000! + ((3!)!)!",
    "digits": "1" * 100_000,
    "decimals": "0." + "3" * 100_000,
    "sum": r"\sum_{k=1}^{100000000} k",
    "sum of sums": r"\sum_{k=1}^{1000}\sum_{j=1}^{1000} kj",
    "roots": r"\sum_{k=1}^{2000} \sqrt{k}",
    "binomial": r"\binom{1000000}{500000} + \Gamma(10^{10})",
    "brackets": "(" * 10_000 + "1" + ")" * 10_000,
    "braces": "{" * 10_000 + "1" + "}" * 10_000,
    "fractions": r"\frac{1}{" * 5_000 + "2" + "}" * 5_000,
    "powers": "(a+b+c+d+f+g+h+k+m+n)^{40}",
    "nested powers": "((((1+x)^9)^9)^9)^9",
    "exponential": r"\exp(\exp(\exp(50))) + \sin(10^{10000})",
    "boxes": r"\boxed{" * 5_000,
    "many boxes": r"\boxed{1}," * 5_000,
    "marks": "answer is " * 20_000,
    "marks and lines": "answer: \n" * 20_000,
    "tags": "<answer>" * 20_000 + "<think>" * 20_000,
    "spaces": "answer" + " " * 100_000 + "is",
    "thin spaces": r"\," * 20_000,
    "numbers": "1 " * 50_000,
    "list": "1," * 50_000,
    "bars": "|x" * 5_000,
    "dollars": "$" * 20_000,
    "hyphens": "- " * 30_000,
    "carets": "x^" * 20_000,
    "words": "one hundred " * 10_000,
    "fractions of unicode": "½²" * 10_000,
    "surrogate": "\ud800 \x00 5",
    "chains": "5 or " * 5_000 + "x=" * 5_000 + "1",
    "scientific": "1e999999",
    "undefined": r"\frac{1}{0} + 0^0 + \ln 0 + \log_1 2",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_wrong_and_quick(name: str) -> None:
    text = HOSTILE[name]
    for shape in ("{}", r"\boxed{{{}}}", "The answer is {}.", "${}$"):
        for gold in ("7", r"\sqrt{2}x + y", "C", "cat")[len(shape) % 2 :: 2]:
            start = time.process_time()
            verdict = JUDGE.judge(Task("math", "q", gold), shape.format(text), StopReason.EOS)
            assert time.process_time() - start < 3, (shape, gold)
            assert verdict.status is Status.SCORED and verdict.correct is False, (shape, gold, verdict)


@pytest.mark.parametrize("name", ["tower", "factorials", "digits", "sum", "binomial", "exponential"])
def test_a_reference_too_large_judges_by_its_text_only(name: str) -> None:
    task = Task("math", "q", HOSTILE[name])
    same = JUDGE.judge(task, rf"\boxed{{{HOSTILE[name]}}}", StopReason.EOS)
    other = JUDGE.judge(task, r"\boxed{7}", StopReason.EOS)
    assert same.correct is True
    assert other.correct is not True


def test_code_is_never_run_and_never_right(tmp_path) -> None:
    marker = tmp_path / "marker"
    for text in (
        f"open('{marker}', 'w') or 0",
        f"__import__('os').system('touch {marker}') or 0",
        rf"\boxed{{__import__('os').system('touch {marker}')\pi}}",
        f"[0 for _ in [open('{marker}', 'w')]][0]",
        f"(lambda: open('{marker}', 'w'))() or 0",
        f"0 if open('{marker}', 'w') else 0",
        f"The answer is open('{marker}', 'w') or 0",
    ):
        for gold in ("0", r"3\pi"):
            assert JUDGE.judge(Task("math", "q", gold), text, StopReason.EOS).correct is False, text
    assert not marker.exists()


def test_garbage_never_raises_and_is_judged_alike_twice() -> None:
    draw = random.Random(5)
    words = (
        r"\frac \sqrt { } ( ) [ ] ^ _ | + - * / = < > \le , ; : 1 2.5 x y \pi i e \sin \log \boxed{ $ \( \) \text{ and or % ! "
        r"\pm \cup \infty \{ \} & \\ ½ ² − 三 answer is the final <answer> #### \sum_{k=1}^{9} \begin{pmatrix} \end{pmatrix} cm 1,000"
    )
    pieces = words.split()
    golds = ["5", "x^2+1", "(1,2)", r"\{1,2\}", "[0,1)", "B", "cat", "x>3", r"\begin{pmatrix}1&2\end{pmatrix}", "3:4", "5 cm"]
    other = Math(Math.Settings())
    for _ in range(800):
        text = draw.choice(["", " "]).join(draw.choices(pieces, k=draw.randint(1, 14)))
        gold = draw.choice(golds)
        first = JUDGE.judge(Task("math", "q", gold), text, StopReason.EOS)
        again = other.judge(Task("math", "q", gold), text, StopReason.EOS)
        assert first == again and first.status is Status.SCORED


def test_threads_agree_with_one_thread() -> None:
    pairs = [(rf"\sqrt{{{4 * n}}}", rf"2\sqrt{{{n}}}") for n in range(2, 27)] + [(rf"\sin^2 x+{n}", "1") for n in range(5)]
    alone = [JUDGE.judge(Task("math", "q", g), p, StopReason.EOS).correct for g, p in pairs]
    seen: list[list[bool | None]] = []
    threads = [
        threading.Thread(
            target=lambda: seen.append([JUDGE.judge(Task("math", "q", g), p, StopReason.EOS).correct for g, p in pairs])
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8 and all(s == alone for s in seen) and alone[0] is True and alone[-1] is False


def test_it_travels_to_other_processes() -> None:
    again = pickle.loads(pickle.dumps(JUDGE))
    assert again.judge(Task("math", "q", "5"), r"\boxed{5}", StopReason.EOS).correct is True
    assert JUDGE.bounded


@pytest.mark.parametrize(
    "text",
    [
        "Answer: 5, no wait, 6",
        "Answer: 5? No, 6",
        "Answer: 5 (no, 6)",
        "Answer: 5, actually 6",
        "The answer is 5. Wait, it should be 6.",
    ],
)
def test_an_answer_that_is_taken_back_is_the_one_put_in_its_place(text: str) -> None:
    of = {gold: JUDGE.judge(Task("math", "?", gold), text, StopReason.EOS).correct for gold in ("5", "6")}
    assert of == {"5": False, "6": True}


@pytest.mark.parametrize(
    "text",
    [
        r"Not \boxed{5}",
        r"The answer is not $\boxed{5}$",
        r"It cannot be \boxed{5}.",
        r"\boxed{5} is wrong",
        r"\(\boxed{5}\) isn't right",
    ],
)
def test_a_box_that_is_denied_is_no_answer(text: str) -> None:
    assert JUDGE.judge(Task("math", "?", "5"), text, StopReason.EOS).correct is False


@pytest.mark.parametrize(
    "text",
    [
        r"It is not 6 but \boxed{5}",
        r"\boxed{5} is not surprising",
        "Answer: 5, no other solution",
        "Answer: 5, no 7s used",
        "The answer is 5. Wait, check: 2 + 3 = 5. Yes.",
    ],
)
def test_what_only_sounds_like_a_denial_is_none(text: str) -> None:
    assert JUDGE.judge(Task("math", "?", "5"), text, StopReason.EOS).correct is True
