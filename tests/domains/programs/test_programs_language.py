"""Golden vectors worked out by hand, and properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.domains.programs.language import (
    LETTERS,
    OPERATORS,
    Program,
    apply,
    final_pair,
    interpret,
    parse_answer,
    parse_prompt,
    reference_answer,
    sample_program,
)
from gfcr.errors import DataError
from gfcr.run.seeds import generator

GOLDEN = [
    ("c-d*?65", "c-15d*55#55"),  # the example of the task's definition
    ("a+?66", "a+56#56"),
    ("p-?01", "p-61#61"),
    ("h*?36", "h*46#46"),
    ("bscs?20", "bs02cs20#20"),
    ("e+f+g+?01", "e+11f+21g+31#31"),
    ("a*bsc-?35", "a*15bs51c-41#41"),
    ("i-j-k*?00", "i-00j-00k*00#00"),
]


@st.composite
def programs(draw: st.DrawFn, longest: int = 16) -> Program:
    operators = draw(st.text(OPERATORS, min_size=1, max_size=longest))
    return Program(draw(st.integers(0, 16 - len(operators))), operators, draw(st.integers(0, 6)), draw(st.integers(0, 6)))


@pytest.mark.parametrize(("prompt", "answer"), GOLDEN)
def test_golden_answers(prompt: str, answer: str) -> None:
    assert reference_answer(parse_prompt(prompt)) == answer


def test_operators_over_the_whole_table() -> None:
    for x in range(7):
        for y in range(7):
            assert apply("+", x, y) == ((x + y) % 7, y)
            assert apply("-", x, y) == ((x + 7 - y) % 7, y)
            assert apply("*", x, y) == (sum([x] * y) % 7, y)
            assert apply("s", x, y) == (y, x)
    with pytest.raises(ValueError, match="operator"):
        apply("/", 1, 1)


@given(programs())
def test_prompt_round_trip(program: Program) -> None:
    assert parse_prompt(program.prompt) == program


@given(programs())
def test_reference_is_well_formed_and_ends_in_the_final_state(program: Program) -> None:
    answer = parse_answer(reference_answer(program))
    x, y = interpret(program)[-1]
    assert answer.formed and answer.final == final_pair(program) == f"{x}{y}"
    assert len(answer.lines) == program.length


@given(st.text("abps+-*#0167?\n$", max_size=60))
def test_any_answer_is_taken_apart_without_loss(text: str) -> None:
    answer = parse_answer(text)
    body = "".join(line.text for line in answer.lines)
    assert body + ("" if answer.final is None else "#" + answer.final) == text
    assert all(text[line.start : line.end] == line.text for line in answer.lines)


@pytest.mark.parametrize("prompt", ["", "?12", "c-d*?6", "c-d*?67", "c-e*?65", "d-c*?65", "c/d*?65", "c-d*?65 ", "q+?11"])
def test_what_is_no_program_is_refused(prompt: str) -> None:
    with pytest.raises(DataError, match="not a register program"):
        parse_prompt(prompt)


@pytest.mark.parametrize("values", [(0, "", 1, 1), (15, "++", 1, 1), (-1, "+", 1, 1), (0, "+", 7, 1), (0, "/", 1, 1)])
def test_impossible_programs_are_refused(values: tuple[int, str, int, int]) -> None:
    with pytest.raises(ValueError):
        Program(*values)


def test_sampling_is_a_function_of_the_seed_and_covers_the_space() -> None:
    first = [sample_program(generator(1, "t"), 3) for _ in range(2)]
    assert first[0] == first[1]
    rng = generator(2, "t")
    seen = [sample_program(rng, 2) for _ in range(2000)]
    assert {p.letters[0] for p in seen} == set(LETTERS[:15])
    assert {(p.x, p.y) for p in seen} == {(x, y) for x in range(7) for y in range(7)}
    assert {p.operators for p in seen} == {a + b for a in OPERATORS for b in OPERATORS}
