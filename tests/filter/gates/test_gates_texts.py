"""Gates on the text itself: loops, language, length. Long, repetitive and mixed right answers pass."""

from __future__ import annotations

import time

import pytest
from gate_cases import judge, passes

from gfcr.errors import ConfigError
from gfcr.types import Status, StopReason

CUT = StopReason.MAX_TOKENS
ZEROS = r"\begin{pmatrix}" + r" 0 & 0 & 0 & 0 \\" * 60 + r"\end{pmatrix}"


@pytest.mark.parametrize(
    "text",
    [
        "42",
        "",
        "ha " * 20,
        "no " * 100,  # ended by itself: 300 characters
        "1" + "0" * 1000,
        "0." + "3" * 2000,
        "1, " * 400 + "1",
        ZEROS,
        ZEROS + "\n\n\n" + " " * 5000,
        "| yes | no |\n" * 120,
        "| item | price |\n|---|---|\n" + "| a | 1 |\n" * 300,
        "x = 1\n" * 40,
        "    a[i] = 0;\n" * 200,
        "=" * 2000,
        "wait, " * 300 + "no. The answer is 5.",  # it found its way out
        "I am stuck. " * 200 + r"\boxed{5}",
        "\n".join(f"Step {i}: add {i} to the sum." for i in range(500)),
        "la la la " * 100,
        "1 2 3 4 5 6 7 8 9 " * 100,
    ],
)
def test_right_texts_that_repeat_pass(text: str) -> None:
    verdict = judge("repetition", text)
    assert verdict.status is Status.SCORED, verdict.evidence


@pytest.mark.parametrize(
    ("text", "stop", "ok"),
    [
        ("So 5. " + "Wait, let me check. " * 40, CUT, False),
        ("So 5. " + "Wait, let me check. " * 40 + "Wait, le", CUT, False),
        ("So 5. " + "Wait, let me check. " * 10, CUT, True),
        ("So 5. " + "Wait, let me check. " * 200, StopReason.EOS, False),
        ("的" * 500, CUT, False),
        ("0" * 500, CUT, True),
        ("0" * 2000, CUT, False),
        ("| a | b |\n" * 50, CUT, True),
        ("| a | b |\n" * 200, CUT, False),
        ("word " * 4 + "\n" * 10_000, CUT, True),
        ("So 5. " + "I should check it again and again, very carefully this time. " * 7, CUT, True),  # fewer than 8 times
    ],
)
def test_a_loop_at_the_end_is_refused(text: str, stop: StopReason, ok: bool) -> None:
    verdict = judge("repetition", text, stop=stop)
    assert (verdict.status is Status.SCORED) is ok, verdict.evidence
    for span in verdict.spans:
        assert "check" in text[span.start : span.end] or len(set(text[span.start : span.end])) < 9


def test_loops_take_linear_time_and_ours_is_unscorable() -> None:
    for text in ("a" * 10**6, "ab" * 10**6, "a" * 10_000 + "b" + "a" * 10_000):
        began = time.process_time()
        judge("repetition", text, stop=CUT)
        assert time.process_time() - began < 1
    assert judge("repetition", "x", stop=StopReason.PARKED).status is Status.UNSCORABLE


ENGLISH = "The sum of the two numbers is twelve, because seven and five make twelve."
CHINESE = "两个数的和是十二，因为七加五等于十二。"
RUSSIAN = "Сумма двух чисел равна двенадцати, потому что семь плюс пять равно двенадцати."


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"),
        (CHINESE, "zh"),
        (RUSSIAN, "ru"),
        ("答えは十二です。七と五を足すと十二になるからです。", "ja"),
        ("두 수의 합은 십이입니다. 칠과 오를 더하면 십이가 됩니다.", "ko"),
        ("مجموع العددين اثنا عشر لأن سبعة زائد خمسة يساوي اثني عشر.", "ar"),
        ("Ｔｈｅ　ｓｕｍ　ｉｓ　ｔｗｅｌｖｅ，　ｂｅｃａｕｓｅ　ｓｅｖｅｎ　ａｎｄ　ｆｉｖｅ　ｍａｋｅ　ｔｗｅｌｖｅ．", "en"),
        ("42", "zh"),
        (r"\boxed{\frac{\alpha}{\beta}}", "zh"),
        ("α + β = γ, δ ≤ ε, and so on for all of the angles of the triangle", "en"),
        ("𝑥 + 𝑦 = 𝑧 𝐚𝐛𝐜𝐝𝐞𝐟𝐠𝐡𝐢𝐣𝐤𝐥𝐦𝐧𝐨𝐩 𝐚𝐛𝐜𝐝𝐞𝐟𝐠𝐡𝐢𝐣𝐤𝐥𝐦𝐧𝐨𝐩 𝐚𝐛𝐜𝐝𝐞𝐟𝐠𝐡𝐢𝐣𝐤𝐥𝐦𝐧", "ru"),
        ("```python\ndef a_long_function_name(argument):\n    return argument_of_the_function\n```\n答案是十二。", "zh"),
        (r"设 $f(x) = \text{some long english text inside mathematics here}$，则答案是十二。", "zh"),
        ("请看 https://example.com/a/very/long/link/with/many/latin/letters/in/it 答案是十二。", "zh"),
        ("The word for it is 你好 (hello), and that is all there is to say about it.", "en"),
        ("Die Lösung ist zwölf, weil sieben und fünf zusammen zwölf ergeben.", "de"),
        ("", "en"),
    ],
)
def test_answers_in_the_language_pass(text: str, language: str) -> None:
    verdict = judge("language", text, language=language)
    assert verdict.status is Status.SCORED, verdict.evidence


@pytest.mark.parametrize(
    ("text", "language"), [(ENGLISH, "zh"), (CHINESE * 2, "en"), (RUSSIAN, "en"), (ENGLISH, "ru"), (RUSSIAN, "el")]
)
def test_another_script_is_refused(text: str, language: str) -> None:
    verdict = judge("language", text, language=language)
    assert verdict.status is Status.INVALID and "%" in verdict.evidence


def test_mixed_text_by_share_and_unknown_languages() -> None:
    mixed = ENGLISH + CHINESE * 2
    assert passes("language", mixed, language="en", share=0.2) and not passes("language", mixed, language="en", share=0.8)
    assert passes("language", RUSSIAN, language="en", stop=CUT)
    with pytest.raises(ConfigError, match="'xx' are not known"):
        judge("language", "", language="xx")


@pytest.mark.parametrize(
    ("text", "limits", "ok"),
    [
        ("42", {}, True),
        ("", {}, True),
        ("", {"min_chars": 1}, False),
        ("\ufeff 42 \r\n\r\n", {"max_chars": 2, "max_lines": 1}, True),
        ("a b c", {"max_words": 3}, True),
        ("a b c d", {"max_words": 3}, False),
        ("a\n\n\nb", {"max_lines": 2}, True),
        ("a\nb\nc", {"max_lines": 2}, False),
        ("a b", {"min_words": 3}, False),
        ("x" * 101, {"max_chars": 100}, False),
        ("é" * 100, {"max_chars": 100}, True),
    ],
)
def test_lengths(text: str, limits: dict, ok: bool) -> None:
    assert passes("length", text, **limits) is ok


def test_a_cut_answer_is_never_too_short() -> None:
    assert passes("length", "a", stop=CUT, min_words=5) and not passes("length", "a b", stop=CUT, max_words=1)
    assert not passes("length", "a", stop=CUT, refuse_cut=True) and passes("length", "a", refuse_cut=True)
    with pytest.raises(ConfigError, match="no answer passes"):
        judge("length", "", min_words=5, max_words=4)
    assert judge("length", "", stop=StopReason.CANCELLED).status is Status.UNSCORABLE
