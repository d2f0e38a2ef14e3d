"""The register machine, turn by turn; its figures with the shipped checkpoint are in docs/environments.md."""

import random

import pytest

from gfcr.context import Build
from gfcr.domains.programs.language import parse_prompt, trace_lines
from gfcr.domains.programs.pools import load_pool, task_of
from gfcr.environments.acts import Branch, Finish, Reset, Turn
from gfcr.environments.contract import Said
from gfcr.environments.host import Host
from gfcr.environments.registers import Registers
from gfcr.errors import ConfigError
from gfcr.types import Status, Task

TASK = task_of("c-d*?65", "55", "test")  # c-15 d*55 #55


def played(*texts, task=TASK, **settings):
    host = Host(Registers.maker(Registers.Settings(**settings)))
    out = host.run([Reset("a", task, 0), *(Turn("a", n, Said(text)) for n, text in enumerate(texts)), Finish("a")])
    assert not any(o.error for o in out)
    return [o.step for o in out[1:-1]], out[-1]


def shown(step):
    return "".join(part.text for message in step.messages for part in message.parts)


def test_a_right_answer_is_the_one_piece_answer_with_nothing_between():
    steps, end = played("c-15", "d*55", "#55")
    assert [shown(s) for s in steps] == ["", "", ""] and [s.reward for s in steps] == [0.1, 0.1, 1.0]
    assert [s.terminated for s in steps] == [False, False, True] and not any(s.truncated or s.invalid for s in steps)
    assert end.verdict.correct and end.verdict.score == 1.0 and end.verdict.answer == "55" and end.fragments == ()


@pytest.mark.parametrize(
    ("answer", "wrong", "next_"),
    [
        ("back", ["?65", "c-15"], ["c-15", "d*55"]),
        ("mark", ["/", "/"], ["c-15", "d*55"]),
        ("correct", ["c-15", "d*55"], ["d*55", "#55"]),
        ("silent", ["", ""], ["d*55", "#55"]),
    ],
)
def test_what_follows_a_wrong_line(answer, wrong, next_):
    steps, _ = played("c-26", next_[0], answer=answer)
    assert shown(steps[0]) == wrong[0] and steps[0].reward == 0.0 and not steps[0].invalid
    assert steps[1].reward == 0.1
    steps, end = played("c-15", "d*00", next_[1], answer=answer)
    assert shown(steps[1]) == wrong[1] and steps[2].reward == (1.0 if next_[1] == "#55" else 0.1)
    assert [(f.kind, f.text, f.turn, f.meta) for f in end.fragments] == [("failure", "d*00", 1, {"right": "d*55"})]
    alphabet = set("0123456789+-*s/#?:abcdefghijklmnop")
    assert set("".join(map(shown, steps))) <= alphabet


def test_a_line_may_be_tried_so_often_and_a_guess_is_allowed():
    steps, end = played("c-26", "c-00", "c-11", tries=3)
    assert [s.terminated for s in steps] == [False, False, True] and end.verdict.correct is False
    steps, end = played("#55")
    assert steps[0].terminated and end.verdict.correct
    steps, end = played("#54")
    assert steps[0].reward == 0.0 and end.verdict.correct is False
    steps, _ = played("#555", "c-1", "", invalid_reward=-0.1, tries=3)
    assert [s.invalid.partition(":")[0] for s in steps] == ["no_line"] * 3 and [s.reward for s in steps] == [-0.1] * 3
    steps, _ = played("#55", "c-15")
    assert steps[1].invalid.startswith("over") and steps[1].terminated


def test_the_key_is_the_reference_and_a_bad_one_is_nobodys_fault():
    broken = task_of("c-d*?65", "54", "test")
    assert played("c-15", "d*55", "#55", task=broken)[1].verdict.correct is False
    assert played("#54", task=broken)[1].verdict.correct
    bad = Task("programs", "c-d*?65", "seven")
    assert played("#55", task=bad)[1].verdict.status is Status.UNSCORABLE


def test_no_program_no_episode():
    host = Host(Registers.maker(Registers.Settings()))
    assert host.run([Reset("a", Task("programs", "what?"), 0)])[0].error.startswith("environment_fault: refused:")
    with pytest.raises(ConfigError, match="domain 'math'"):
        Registers.maker(Registers.Settings(), Build(0, [Task("math", "1+1?")], 1, 1, 4))


def test_a_restored_machine_is_equal_to_the_bit():
    """200 random episodes, each snapshot restored and played on as the original is: equal steps, verdicts, fragments, snapshots."""
    rng, pool = random.Random(0), load_pool("D")
    for n in range(200):
        task = rng.choice(pool)
        answer = rng.choice(["back", "mark", "correct", "silent"])
        lines = [*trace_lines(parse_prompt(task.prompt)), "#" + task.reference["final"]]
        said, at = [], 0
        while len(said) < 12 and at < len(lines):
            wrong = rng.random() < 0.3
            said.append(rng.choice(["c-00", "#77", "x", "", "p+66"]) if wrong else lines[at])
            at += not wrong
        make = Registers.maker(Registers.Settings(answer=answer, tries=4))
        with Host(make) as host:
            out = host.run([Reset("a", task, n, True), *(Turn("a", i, Said(text), True) for i, text in enumerate(said))])
            whole = host.run([Finish("a", end=False)])[0]
            cut = rng.randrange(-1, len(said))
            again = host.run(
                [
                    Branch("b", "a", cut),
                    *(Turn("b", i, Said(said[i]), True) for i in range(cut + 1, len(said))),
                    Finish("b", False),
                ]
            )
            assert [o.step for o in again[1:-1]] == [o.step for o in out[cut + 2 :]]
            assert again[-1].verdict == whole.verdict and again[-1].fragments == whole.fragments
            kept = [host._lines[name].session.kept for name in "ab"]
            assert kept[0] == kept[1]


def test_equal_states_have_equal_keys():
    one, _ = played("c-26", "c-15", answer="back")
    two, _ = played("c-15", answer="back")
    assert one[1].state == two[0].state != one[0].state
