"""Multiple choice: the last statement that chooses counts, and a letter is a choice only where it stands as one."""

from __future__ import annotations

import time

import pytest

from gfcr.filter.verifiers.choice.verifier import Choice
from gfcr.types import Status, StopReason, Task, Verdict

CITIES = ["London", "Paris", "Rome", "New York"]


def judge(
    text: str, reference: object = "B", choices: object = None, stop: StopReason = StopReason.EOS, **settings: object
) -> Verdict:
    meta = {} if choices is None else {"choices": choices}
    return Choice(Choice.Settings.model_validate(settings)).judge(Task("t", "q", reference, meta=meta), text, stop)


RIGHT = [
    "B",
    "b",
    "(B)",
    "(b)",
    "B.",
    "B)",
    "**B**",
    "[B]",
    "`B`",
    r"\boxed{B}",
    r"$\boxed{\text{B}}$",
    r"\boxed{\text{(B)}}",
    r"\boxed{\mathrm{B}}.",
    r"The answer is $\text{B}$.",
    r"The answer is \textbf{(B)}.",
    "<answer>B</answer>",
    "<ANSWER> (b) </ANSWER>",
    "<think>A looks right. The answer is A.</think>\n<answer>B</answer>",
    "<think>hm, A\n<answer>B</answer>",
    "#### B",
    "Answer: B",
    "answer:b",
    "ANSWER : B",
    "**Answer:** B",
    "**Answer**: B",
    "Answer: **B**",
    "**Answer: B**",
    "Final Answer: (B)",
    "## Final answer\n\nB",
    "# Answer\n**(B)**",
    "The answer is:\n\n(B)",
    "The correct answer is B.",
    "The correct answer is (B) because A is too small.",
    "The correct option is B, not A.",
    "The best choice is option B.",
    "So the answer would be B",
    "The answer to the question is B.",
    "The answer must be (B).",
    "My answer is option (B)",
    "I choose B.",
    "I would go with option B",
    "I'd pick (B).",
    "Therefore, B.",
    "Hence option B is correct.",
    "So it must be B.",
    "A is wrong because it is too big. B is the correct answer.",
    "Option B is correct; option A is not.",
    "The answer is not A but B.",
    "The answer is A. Wait, that is wrong. The answer is B.",
    "If the answer is A then x = 1, which fails.\nAnswer: B",
    "Is the answer A? No. The answer is B.",
    "I don't think the answer is A. Answer: B",
    "Answer: A\n\nLet me check again.\n\nAnswer: B",
    "答案是B。",
    "答案：(B)",
    "正确答案为 B",
    "故选B",
    "因此选择 B。",
    "La respuesta correcta es B.",
    "Die Antwort ist B",
    "Ответ: B",
    "正解はB",
    "정답은 B",
    "\ufeffAnswer: B\r\n",
    "Answer: B<|im_end|>\n<|im_start|>user\nAnswer: A",
    "“B”",
    "The answer is “B”.",
    "Ｂ",
    "（Ｂ）",
    "B\n\nBecause the other ones are too small.",
    "B. It has the largest area.",
    "(B) is the only one that fits all the data, since A fails at zero.",
    "Let A be the area, so A = 9. A is larger than 8.\n\nThe answer is B",
    "<answer><b>B</b></answer>",
    "Answer: B - it fits",
    "Answer: B: it fits",
    "answer = B",
    "The answer is → B",
    "\\[ \\boxed{ B } \\]",
    "The right answer, after all, would be... Answer: B",
    "The answer is clearly B; A, C and D are wrong.",
    "Both A and C are wrong. Answer B",
    "B it is.",
    "B, final answer.",
    "Therefore, the answer is neither A nor C but B.",
    '```json\n{"answer": "B"}\n```',
    '{"reason": "A is small", "answer": "B"}',
    "A is incorrect, B is correct, C is incorrect.",
    "We can eliminate A. Between B and C, B is better. Hence B.",
    "Answer: B\n\nA: wrong\nC: wrong\nD: wrong",
    r"\boxed{\textbf{(B)}~\frac{1}{2}}",
]


@pytest.mark.parametrize("text", RIGHT)
def test_right_answers_in_odd_formats_pass(text: str) -> None:
    verdict = judge(text)
    assert verdict.correct is True, verdict.evidence
    assert verdict.answer == "B" and verdict.score == 1.0
    assert judge(text, "A").correct is False


WRONG = [
    "",
    "   ",
    "I do not know.",
    "The answer is a bee.",
    "Because of this, Bob wins.",
    "Vitamin B is good for you, and so is iron.",
    "A or B",
    "The answer is A or B.",
    "Answer: A, B",
    "Answer: B or C, I cannot decide",
    "Either A or B",
    r"\boxed{A} or \boxed{B}",
    r"\boxed{A}, \boxed{B}, \boxed{C}, \boxed{D}",
    "Answer: A/B",
    "Answer: A and B",
    "The answer is not B.",
    "The answer is definitely not B",
    "B is not correct.",
    "B is wrong.",
    "B is incorrect, so is C.",
    "The answer isn't B.",
    "Answer: B\nAnswer: C",
    "Answer: B. Wait, no, that is wrong.",
    "If the answer is B, then x = 3.",
    "Is the answer B?",
    "<think>The answer is B</think>",
    "<think>The answer is B",
    "Answer: None of the above",
    "B-cells make antibodies",
    "The answer is B = 7",
    "The answer is f(B)",
    "The answer is A",
    "A",
    "(A) not (B)",
    "Answer: [LETTER]",
    "I doubt that B is an answer at all.",
    "The answer is neither A nor B.",
    "B; A is right",
    "The answer is B (or C)",
    "Answer: B, possibly C",
    "Answer: B, or alternatively C",
    "B vs C",
    "(B)/(C)",
    "(B)(C)",
    "<answer>A</answer><answer>B</answer>",
    r"\boxed{A}\quad\boxed{B}",
    "A and B are both correct; answer A, B",
]


@pytest.mark.parametrize("text", WRONG)
def test_these_do_not_choose_b(text: str) -> None:
    verdict = judge(text)
    assert (verdict.status, verdict.correct, verdict.score) == (Status.SCORED, False, 0.0), verdict.evidence


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("Paris", "B"),
        ("The answer is Paris.", "B"),
        ("The answer is paris, the capital of France.", "B"),
        ("Answer: Paris because it is the capital", "B"),
        (r"\boxed{\text{Paris}}", "B"),
        ("B) Paris", "B"),
        ("(B) Paris", "B"),
        ("Answer: B. Paris", "B"),
        ("Answer: B (Paris)", "B"),
        ("The capital of France is Paris.", "B"),
        ("It is a well-known fact.\nThe capital is Paris.", "B"),
        ("Answer: New York", "D"),
        ("Answer: B) London", "A, B"),  # a label and another option's text
        ("Paris or London", "A, B"),
        ("The answer is Paris or London", "A, B"),
        ("The capital of France is not Paris.", None),
        ("Paris and London are both large.", None),
        ("A. London\nB. Paris\nC. Rome\nD. New York", None),
        ("A. London\nB. Paris\nC. Rome\nD. New York\n\nAnswer: C", "C"),
        ("Parisian", None),
        ("Answer: E", None),
    ],
)
def test_option_texts_count_as_their_labels(text: str, chosen: str | None) -> None:
    verdict = judge(text, "B", CITIES)
    assert verdict.answer == chosen, verdict.evidence
    assert verdict.correct is (chosen == "B")


@pytest.mark.parametrize(
    "choices",
    [
        CITIES,
        [f"{a}) {c}" for a, c in zip("ABCD", CITIES)],
        [f"({a}) {c}" for a, c in zip("abcd", CITIES)],
        dict(zip("ABCD", CITIES)),
        {"label": list("ABCD"), "text": CITIES},
    ],
)
@pytest.mark.parametrize("reference", ["B", "(B)", "b", "Paris", "B) Paris", r"\text{B}", "$\\text{(B)}$", ["X?", "B"][1:]])
def test_every_shape_of_options_and_references(choices: object, reference: object) -> None:
    assert judge("Answer: B", reference, choices).correct is True
    assert judge("Answer: Paris", reference, choices).correct is True
    assert judge("Answer: C", reference, choices).correct is False


@pytest.mark.parametrize(
    ("text", "reference", "right"),
    [
        ("Answer: A, C", "A, C", True),
        ("Answer: C and A", "A,C", True),
        ("Answer: A and C", "AC", True),
        ("Answer: AC", "A, C", True),
        ("Answer: A C", "A, C", True),
        ("A, C", "AC", True),
        (r"\boxed{A, C}", "A and C", True),
        (r"\boxed{A}, \boxed{C}", "AC", True),
        ("Options A and C are correct.\nAnswer: (A), (C)", "AC", True),
        ("答案：A、C", "AC", True),
        ("Answer: A", "AC", False),
        ("Answer: A, B, C", "AC", False),
        ("Answer: A or C", "B", False),
    ],
)
def test_several_labels(text: str, reference: str, right: bool) -> None:
    assert judge(text, reference).correct is right, judge(text, reference).evidence


@pytest.mark.parametrize(
    ("text", "reference", "right"),
    [
        ("ANSWER: Yes", "Yes", True),
        ("yes, it is", "Yes", True),
        ("Answer: No, it does not.", "No", True),
        ("ANSWER: Yes", "No", False),
        ("Answer: Yes or No", "Yes", False),
        ("The statement holds.\n\nTrue", "True", True),
        ("The answer is false.", "True", False),
        ("The statement is false.", "False", True),
        ("The statement is not true.", "True", False),
        ("A:B=1", "A:B=1", True),
        ("A", "A:B=1", False),
        ("ANSWER: correct!", "correct", True),
        ("ANSWER: 42,\n", "42", True),
        ("ANSWER: 42.0", "42", True),
        ("ANSWER: 142", "42", False),
        ("ANSWER: .5", "5", False),
        ("ANSWER: ☆", "☆", True),
        ("ANSWER: ★", "☆", False),
        (r"\left( 3, \frac{\pi}{2} \right)", r"\left(3,\frac{\pi}{2}\right)", True),
        ("odd $n$", "odd $n$", True),
        ("$n$", "odd $n$", False),
        ("2*3", "23", False),
        ("x_1", "x1", False),
        ("The capital is\n\\boxed{\\text{Paris}}", "paris", True),
        ("<answer>cat or dog or bird</answer>", "cat", False),
        ("5!", "5", False),
    ],
)
def test_words_and_texts(text: str, reference: str, right: bool) -> None:
    assert judge(text, reference).correct is right, judge(text, reference).evidence


def test_numbers_among_the_options() -> None:
    choices = ["0.5", "2", "3", "4"]
    assert judge("The answer is 1/2.", "A", choices).correct is True
    assert judge("The answer is 2.5.", "B", choices).correct is False
    assert judge("So 1 + 1 = 2", "B", choices).correct is True
    assert judge("Answer: 2", 2, choices).correct is True  # no index given: the text 2


def test_what_the_reference_cannot_support_is_unscorable() -> None:
    for reference, choices in (
        (None, None),
        ([], None),
        ("Berlin", CITIES),
        ("E", CITIES),
        (1, CITIES),
        ({"a": 1}, None),
        ("B", 5),
    ):
        verdict = judge("Answer: B", reference, choices)
        assert (verdict.status, verdict.score) == (Status.UNSCORABLE, None), reference
    assert judge("Answer: B", 1, CITIES, index=0).correct is True
    assert judge("Answer: B", 2, CITIES, index=1).correct is True
    assert judge("Answer: B", 4, CITIES, index=0).status is Status.UNSCORABLE
    assert judge("Answer: B", stop=StopReason.CANCELLED).status is Status.UNSCORABLE


def test_a_cut_answer_and_the_place_of_the_choice() -> None:
    assert judge("Answer: B", stop=StopReason.MAX_TOKENS).correct is False
    assert judge("Answer: B", stop=StopReason.MAX_TOKENS, accept_cut=True).correct is True
    text = "<think>\r\nAnswer: A</think>\r\nThe answer is (B), surely."
    (span,) = judge(text).spans
    assert text[span.start : span.end].strip() == "(B), surely." and span.kind == "answer"


def test_any_of_several_references() -> None:
    assert judge("Answer: C", ["B", "C"]).correct is True and judge("Answer: D", ["B", "C"]).correct is False


def test_blanks_between_words_take_no_time() -> None:
    for text in ("not B" + "<think>" * 3000, "B" + " " * 50_000 + ",", "so" + "\n" * 50_000 + "B", "Answer: B" + "\n" * 50_000 + "x", "A is" + " " * 50_000, "B " * 20_000):  # fmt: skip
        began = time.process_time()
        judge(text), judge(text, "Yes"), judge(text, "B", CITIES), judge(text, "odd one")
        assert time.process_time() - began < 2, text[:9]


@pytest.mark.parametrize("choices", [[], {}, {"label": [], "text": []}])
def test_an_empty_list_of_choices_lists_none(choices: object) -> None:
    assert judge("The answer is (b).", "B", choices) == judge("The answer is (b).", "B")
    assert judge("odd $n$", "odd $n$", choices).correct is True


def test_a_missing_reference_that_was_made_a_text_judges_nobody() -> None:
    assert judge("nan", "nan").status is Status.UNSCORABLE
    assert judge("nan", "nan", ["nan", "inf"]).correct is True
