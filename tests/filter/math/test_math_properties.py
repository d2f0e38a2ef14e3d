"""A value printed in many ways is right, another value in the same ways is wrong, and the two sides may change places."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from gfcr.filter.verifiers.math.verifier import Math
from gfcr.types import StopReason, Task

JUDGE = Math(Math.Settings())
WHOLE = st.integers(-(10**9), 10**9)
SMALL = st.integers(-99, 99)
quick = settings(max_examples=60, deadline=None)


def right(gold: str, text: str) -> bool:
    return bool(JUDGE.judge(Task("math", "q", gold), text, StopReason.EOS).correct)


def integer_forms(n: int) -> list[str]:
    return [
        str(n), f"{n:,}", f"{n}.0", f"${n}$", rf"\boxed{{{n}}}", f"The answer is {n}.", f"#### {n:,}", f"<answer>{n}</answer>",
        f"**Final answer:** {n}", f"x = {n}", f"{n:,}".replace(",", r"\,"), f"{n:,}".replace(",", "{,}"), str(n).replace("-", "−"),
        rf"\frac{{{2 * n}}}{{2}}", f"So in all we get $3 + {n - 3} = {n}$ apples.", f"{n} apples", rf"\text{{{n}}}",
    ]  # fmt: skip


@quick
@given(WHOLE)
def test_whole_numbers(n: int) -> None:
    for form in integer_forms(n):
        assert right(str(n), form), form
    for form in integer_forms(n + 1) + integer_forms(-n if n else 7):
        assert not right(str(n), form), form


def fraction_forms(value: Fraction) -> list[str]:
    a, b = value.numerator, value.denominator
    sign, size = ("-" if a < 0 else ""), abs(a)
    forms = [
        f"{a}/{b}", rf"\frac{{{a}}}{{{b}}}", rf"{sign}\dfrac{{{size}}}{{{b}}}", rf"\frac{{{3 * a}}}{{{3 * b}}}", rf"\boxed{{{sign}\tfrac{{{size}}}{{{b}}}}}",
        f"The answer is {a}/{b}.", rf"Answer: $x=\frac{{{a}}}{{{b}}}$", rf"{a}\cdot\frac{{1}}{{{b}}}", rf"\frac{{{100 * a}}}{{{b}}}\%",
    ]  # fmt: skip
    if size > b > 1:
        forms += [rf"{sign}{size // b}\frac{{{size % b}}}{{{b}}}", f"{sign}{size // b} {size % b}/{b}"]
    return forms


@quick
@given(st.integers(-400, 400), st.integers(2, 60))
def test_fractions(a: int, b: int) -> None:
    value = Fraction(a, b)
    gold = rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    for form in fraction_forms(value):
        assert right(gold, form), form
    for other in (value + Fraction(1, b), -value if a else Fraction(1, 7), value + 1):
        for form in fraction_forms(other):
            assert not right(gold, form), form


@quick
@given(st.integers(1, 10**6), st.integers(-9, 9))
def test_scientific(n: int, power: int) -> None:
    value = Fraction(n) * Fraction(10) ** power
    gold = f"{value.numerator}/{value.denominator}"
    assert (
        right(gold, f"{n}e{power}")
        and right(gold, rf"${n} \times 10^{{{power}}}$")
        and right(gold, rf"{n}\cdot 10^{{{power}}}")
    )
    assert not right(gold, f"{n}e{power + 1}") and not right(gold, rf"${n} \times 10^{{{power - 1}}}$")


@quick
@given(st.lists(SMALL, min_size=2, max_size=5, unique=True), st.randoms(use_true_random=False))
def test_lists_sets_and_tuples(values: list[int], draw) -> None:
    shuffled = draw.sample(values, len(values))
    text = ", ".join(map(str, values))
    other = ", ".join(map(str, shuffled))
    for form in (
        other,
        rf"\{{{other}\}}",
        rf"\boxed{{{other}}}",
        " and ".join(map(str, shuffled)),
        ", ".join(f"x={v}" for v in shuffled),
    ):
        assert right(rf"\{{{text}\}}", form), form
    assert right(f"({text})", rf"\boxed{{\left({text}\right)}}")
    assert right(f"({text})", f"({other})") is (values == shuffled)
    for fewer in (values[1:], [*values, 100]):
        form = ", ".join(map(str, fewer))
        assert not right(rf"\{{{text}\}}", rf"\{{{form}\}}") and not right(f"({text})", f"({form})")


@quick
@given(SMALL, st.integers(1, 50), st.booleans(), st.booleans())
def test_intervals_and_inequalities(low: int, width: int, left: bool, right_closed: bool) -> None:
    high = low + width
    gold = f"{'[' if left else '('}{low},{high}{']' if right_closed else ')'}"
    below, above = (r"\le" if closed else "<" for closed in (left, right_closed))
    chain = f"{low} {below} x {above} {high}"
    turned = f"{high} {'>=' if right_closed else '>'} x {'>=' if left else '>'} {low}"
    assert right(gold, chain) and right(gold, rf"\boxed{{x \in {gold}}}") and right(chain, turned) and right(chain, gold)
    assert not right(gold, f"{'(' if left else '['}{low},{high}{']' if right_closed else ')'}")
    assert not right(gold, f"{'[' if left else '('}{low},{high + 1}{']' if right_closed else ')'}")


@quick
@given(SMALL, SMALL, st.integers(1, 9))
def test_polynomials_and_equations(a: int, b: int, c: int) -> None:
    factored, expanded = f"(x-({a}))(x-({b}))", f"x^2 - ({a + b})x + ({a * b})"
    assert right(factored, expanded) and right(expanded, rf"\boxed{{{factored}}}") and right(f"f(x)={expanded}", factored)
    assert not right(factored, f"x^2 - ({a + b})x + ({a * b + c})") and not right(factored, f"{c + 1}({expanded})")
    line, scaled = f"y = {c}x + {a}", f"{2 * c}x - 2y + {2 * a} = 0"
    assert right(line, scaled) and right(scaled, line)
    assert not right(line, f"{2 * c}x - 2y + {2 * a + 1} = 0") and not right(scaled, "0")


@quick
@given(st.integers(2, 60), st.integers(2, 12))
def test_roots(n: int, k: int) -> None:
    assert right(rf"{k}\sqrt{{{n}}}", rf"\sqrt{{{k * k * n}}}") and right(
        rf"\frac{{{k}}}{{\sqrt{{{n}}}}}", rf"\frac{{{k}\sqrt{{{n}}}}}{{{n}}}"
    )
    assert not right(rf"{k}\sqrt{{{n}}}", rf"\sqrt{{{k * k * n + 1}}}") and not right(rf"{k}\sqrt{{{n * n + 1}}}", f"{k}")


@quick
@given(st.integers(0, 60), st.integers(2, 16))
def test_bases(n: int, base: int) -> None:
    digits, rest = "", n
    while rest or not digits:
        digits, rest = "0123456789ABCDEF"[rest % base] + digits, rest // base
    if not digits[0].isdigit():
        return
    assert right(f"{digits}_{base}" if base < 10 else f"{digits}_{{{base}}}", rf"\boxed{{{digits}_{{{base}}}}}")
    assert not right(f"{digits}_{{{base}}}", rf"{digits}_{{{base + 1}}}")
