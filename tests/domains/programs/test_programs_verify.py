"""The verifier, the gate and the step labels: golden vectors and properties."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_programs_language import programs

from gfcr.domains.programs.language import Program, final_pair, parse_prompt, reference_answer, trace_lines
from gfcr.domains.programs.verify import ExactVerifier, FormatGate, ProgramSteps, step_labels
from gfcr.errors import DataError
from gfcr.types import Status, StopReason, Task

EOS, CUT = StopReason.EOS, StopReason.MAX_TOKENS
VERIFIER, GATE = ExactVerifier(), FormatGate()


def task(prompt: str = "c-d*?65", final: object = "55") -> Task:
    return Task("programs", prompt, {"final": final})


@pytest.mark.parametrize(
    ("text", "stop", "right"),
    [
        ("c-15d*55#55", EOS, True),
        ("#55", EOS, True),  # a direct guess
        ("c-15c-15d*55#55", EOS, True),  # repeated lines
        ("c-25d*35#55", EOS, True),  # wrong on the way: the outcome does not read the trace
        ("+?zz#55", EOS, True),
        ("c-15d*55#54", EOS, False),
        ("c-15d*55#5", EOS, False),
        ("c-15d*55#555", EOS, False),
        ("c-15d*55#55#55", EOS, False),  # the text after the first mark is not the pair
        ("c-15d*5555", EOS, False),
        ("", EOS, False),
        ("c-15d*55#55", CUT, False),  # right so far, but the end was not emitted
        ("c-15d*55#55", StopReason.EARLY_EXIT, False),
    ],
)
def test_outcome(text: str, stop: StopReason, right: bool) -> None:
    verdict = VERIFIER.judge(task(), text, stop)
    assert (verdict.status, verdict.score, verdict.correct) == (Status.SCORED, float(right), right)
    assert verdict.evidence


def test_outcome_compares_with_the_reference_even_when_the_key_is_broken() -> None:
    broken = task(final="12")
    assert VERIFIER.judge(broken, "c-15d*55#55", EOS).correct is False
    assert VERIFIER.judge(broken, "#12", EOS).correct is True
    assert VERIFIER.judge(Task("programs", "c-d*?65", "55"), "#55", EOS).correct is True


@pytest.mark.parametrize("reference", [None, {}, {"final": None}, {"final": "5"}, {"final": "57"}, {"final": 55}, ["55"]])
def test_a_bad_reference_is_unscorable(reference: object) -> None:
    verdict = VERIFIER.judge(Task("programs", "c-d*?65", reference), "#55", EOS)
    assert (verdict.status, verdict.score, verdict.correct) == (Status.UNSCORABLE, None, None)


@pytest.mark.parametrize("stop", [StopReason.CANCELLED, StopReason.PARKED, StopReason.FAILED])
def test_an_answer_we_ended_is_unscorable(stop: StopReason) -> None:
    assert VERIFIER.judge(task(), "c-15", stop).status is Status.UNSCORABLE
    assert GATE.judge(task(), "c-15", stop).status is Status.UNSCORABLE


@given(programs())
def test_the_reference_answer_is_right_and_no_other_final_is(program: Program) -> None:
    subject, text = task(program.prompt, final_pair(program)), reference_answer(program)
    assert VERIFIER.judge(subject, text, EOS).correct is True
    finals = {f"{x}{y}" for x in range(7) for y in range(7)} - {final_pair(program)}
    assert not any(VERIFIER.judge(subject, f"{text[:-2]}{final}", EOS).correct for final in finals)


answers = st.text("cd+-*s#0156a?", max_size=30) | st.builds(
    "{}#{}".format, st.text("cd-*15#s", max_size=16), st.sampled_from(["55", "51", "5", "", "155", "55#55", "55 "])
)


@given(answers, st.sampled_from(list(StopReason)))
def test_the_gate_never_refuses_what_the_verifier_accepts(text: str, stop: StopReason) -> None:
    if VERIFIER.judge(task(), text, stop).correct:
        assert GATE.judge(task(), text, stop).status is Status.SCORED


@pytest.mark.parametrize(
    ("text", "stop", "status"),
    [
        ("c-15d*55#55", EOS, Status.SCORED),
        ("#12", EOS, Status.SCORED),
        ("c-15c-15d*55#51", EOS, Status.SCORED),
        ("c-15d*55", EOS, Status.INVALID),
        ("#5", EOS, Status.INVALID),
        ("#57", EOS, Status.INVALID),
        ("#555", EOS, Status.INVALID),
        ("", EOS, Status.INVALID),
        ("c-15d*", CUT, Status.SCORED),
        ("", CUT, Status.SCORED),
    ],
)
def test_gate(text: str, stop: StopReason, status: Status) -> None:
    verdict = GATE.judge(task(), text, stop)
    assert verdict.status is status and verdict.correct is None and verdict.evidence


@pytest.mark.parametrize(
    ("text", "truth", "previous"),
    [
        ("c-15d*55#55", [(0, 4, 1), (4, 8, 1)], [1, 1]),
        ("c-25d*35#35", [(0, 4, 0), (4, 8, 0)], [0, 1]),  # the second line follows from the first one's mistake
        ("c-25c-15d*55#55", [(0, 4, 0), (4, 8, 1), (8, 12, 1)], [0, 1, 1]),  # put right by writing the line again
        ("d*55#55", [(0, 4, 0)], [0]),  # a step left out
        ("c+45d*65#65", [(0, 4, 0), (4, 8, 0)], [0, 1]),  # another operator than the program's
        ("cc-15??d*55#55", [(0, 1, 0), (1, 5, 1), (5, 7, 0), (7, 11, 1)], [0, 1, 0, 1]),
        ("c-15d*55d*55e+10#10", [(0, 4, 1), (4, 8, 1), (8, 12, 1), (12, 16, 0)], [1, 1, 1, 0]),
        ("#55", [], []),
        ("c-15d*", [(0, 4, 1), (4, 6, 0)], [1, 0]),
    ],
)
def test_step_labels(text: str, truth: list[tuple[int, int, float]], previous: list[float]) -> None:
    program = parse_prompt("c-d*?65")
    assert list(step_labels(program, text)) == truth
    assert [value for *_, value in step_labels(program, text, "previous")] == previous


def test_a_line_that_a_limit_cut_has_no_label() -> None:
    assert ProgramSteps().score(task(), "c-15d*", CUT) == ((0, 4, 1.0), (4, 6, None))
    assert ProgramSteps().score(task(), "c-15?", CUT) == ((0, 4, 1.0), (4, 5, 0.0))


@given(programs(), st.data())
def test_steps_of_the_reference_are_right_until_a_line_is_changed(program: Program, data: st.DataObject) -> None:
    lines = list(trace_lines(program))
    assert [v for *_, v in ProgramSteps().score(task(program.prompt), reference_answer(program), EOS)] == [1.0] * len(lines)
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = lines[at][:3] + str((int(lines[at][3]) + 1) % 7)
    labels = ProgramSteps().score(task(program.prompt), "".join(lines) + "#00", EOS)
    assert [i for i, (*_, value) in enumerate(labels) if value == 0] == [at]


def test_steps_need_a_program() -> None:
    with pytest.raises(DataError, match="not a register program"):
        ProgramSteps().score(Task("x", "2+2"), "", EOS)


def test_judging_is_linear_in_the_answer() -> None:
    text = "c-15" * 30_000 + "c-" * 15_000 + "#55"
    start = time.perf_counter()
    assert VERIFIER.judge(task(), text, EOS).correct
    GATE.judge(task(), text, EOS)
    ProgramSteps().score(task(), text, EOS)
    assert time.perf_counter() - start < 5
