"""The calculator, and the rules that every environment with a tool keeps (card G-16)."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.environment_cases import Played, call, same_after_restoring, told
from gfcr.domains.tools.pools import load_pool
from gfcr.environments.arithmetic import BadExpression, evaluate, written
from gfcr.environments.calculator import Calculator
from gfcr.environments.contract import Said, ToolCall
from gfcr.environments.host import Host
from gfcr.types import Status, Task

TASK = Task("tools.calculator", "What is 6 * 7?", "42")


def host(**settings):
    made = Calculator.Settings(**settings)
    return Host(lambda: Calculator(made))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("-2 ** 2", "-4"),
        ("2 ^ 3 ^ 2", "512"),
        ("2 ** -2", "0.25"),
        ("7 // 2 - 7 % 3", "2"),
        ("-7 // 2", "-4"),
        ("0.1 + 0.2", "0.3"),
        ("1e3 / 8", "125"),
        ("1,234.5 + .5", "1235"),
        ("10 / 4 / 5", "0.5"),
        ("22 / 7", "22/7 (about 3.142857143)"),
        ("-1/8", "-0.125"),
        ("0 ** 0", "1"),
        ("6 × 7 − 2 ÷ 2", "41"),
        ("(-1) ** 99999999999", "-1"),
    ],
)
def test_values_are_exact(text, value):
    assert written(evaluate(text)) == value


BAD = [
    "",
    "1 +",
    "1 2",
    "(1",
    "1)",
    "1 / 0",
    "5 % 0",
    "5 // 0",
    "0 ** -1",
    "2 ** 0.5",
    "9 ** 9 ** 9",
    "1e999 * 1e999",
    "x",
    "1,23",
]
WORSE = ["__import__('os')", "1 if 1 else 2", "(" * 5000 + ")" * 5000, "-" * 3000 + "1", "1e9999", "٣ + ٤", "2 ** 5000"]


@pytest.mark.parametrize("text", [*BAD, *WORSE])
def test_what_is_no_expression_is_said_quickly(text):
    with pytest.raises(BadExpression):
        evaluate(text)


def _expressions():
    number = st.integers(0, 999).map(str) | st.decimals(0, 99, places=2).map(str)
    return st.recursive(
        number,
        lambda inner: (
            st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
            | inner.map(lambda t: f"-{t}")
        ),
        max_leaves=12,
    )


@settings(max_examples=150, deadline=None)
@given(_expressions())
def test_it_agrees_with_python_on_fractions(text):
    import re

    try:
        wanted = Fraction(eval(re.sub(r"\d+(?:\.\d+)?", lambda m: f"Fraction('{m[0]}')", text)))  # the test's own text
    except ZeroDivisionError:
        with pytest.raises(BadExpression, match="division by zero"):
            evaluate(text)
        return
    assert evaluate(text) == wanted
    shown = written(wanted)
    assert Fraction(shown.partition(" ")[0]) == wanted


def test_an_episode_of_calls_and_an_answer():
    with host() as h:
        episode = Played(h, TASK)
        assert '"name": "calculator"' in episode.begun.tools[0]
        first = episode.say(f"I ask. {call('calculator', expression='6*7')}{call('calculator', expression='1/3')}")
        assert told(first) == ["42", "1/3 (about 0.3333333333)"] and first.step.calls == 2
        assert [m.role for m in first.step.messages] == ["tool", "tool"] and first.step.messages[0].name == "calculator"
        last = episode.say("It is #### 42")
        assert last.step.terminated and not last.step.messages
        end = episode.end()
        assert end.verdict.correct and end.verdict.verifier == "calculator"
        assert [f.kind for f in end.fragments] == ["tool_sequence"]


def test_an_answer_is_what_the_policy_wrote_and_never_a_result():
    with host() as h:
        episode = Played(h, TASK)
        episode.say(call("calculator", expression="6*7"))
        episode.say("I do not know.")
        assert episode.end().verdict.correct is False
        other = Played(h, TASK, "b")
        other.say(call("calculator", expression="42"))
        assert other.end().verdict.correct is False and "no final answer" in other.end().verdict.evidence
        none = Played(h, Task("tools.calculator", "?"), "c")
        none.say("42")
        assert none.end().verdict.status is Status.UNSCORABLE


def test_a_malformed_call_is_told_or_ends_the_episode():
    bad = "<tool_call>{</tool_call>"
    with host(invalid_reward=-0.1) as h:
        step = Played(h, TASK).say(bad).step
        assert step.invalid.startswith("bad_json") and step.reward == -0.1 and not step.terminated
        assert step.messages[0].parts[0].text.startswith("Error: the call cannot be read")
        mixed = Played(h, TASK, "b").say(bad + call("calculator", expression="1+1"))
        assert told(mixed)[0] == "2" and mixed.step.calls == 1 and mixed.step.invalid
        for text, why in [
            (call("sum", expression="1"), "no_tool"),
            (call("calculator", expr="1"), "bad_arguments"),
            (call("calculator", expression=7), "bad_arguments"),
        ]:
            step = Played(h, TASK, why).say(text).step
            assert step.invalid.partition(":")[0] == why and step.calls == 0 and step.reward == -0.1
    with host(malformed="end") as h:
        step = Played(h, TASK).say(bad).step
        assert step.terminated and step.invalid and step.reward is None and step.messages == ()
        step = Played(h, TASK, "b").say(call("calculator", expression="1/0")).step
        assert not step.terminated and not step.invalid  # a call that is well formed and fails is no malformed one


def test_loops_end():
    with host(repeats=2, turns=4) as h:
        episode = Played(h, TASK)
        same = call("calculator", expression="1+1")
        steps = [episode.say(same).step for _ in range(3)]
        assert [s.terminated for s in steps] == [False, False, True] and steps[2].invalid.startswith("repeated_call")
        assert episode.say("42").step.invalid.startswith("over")
        other = Played(h, TASK, "b")
        steps = [other.say(call("calculator", expression=str(n))).step for n in range(4)]
        assert [s.truncated for s in steps] == [False, False, False, True] and not steps[3].terminated and not steps[3].messages
        many = Played(h, TASK, "c").say("".join(call("calculator", expression=str(n)) for n in range(12)))
        assert many.step.calls == 8 and len(many.step.messages) == 12 and many.step.invalid.startswith("many_calls")


def test_results_are_cut_and_clean_and_calls_that_come_read_are_taken():
    with host(output_chars=60) as h:
        episode = Played(h, TASK)
        long = told(episode.say(call("calculator", expression="7 ** 1000")))[0]
        assert len(long) < 110 and "characters left out" in long and long.startswith("125325663")
        named = episode.say(
            Said("x", (ToolCall("calculator", {"expression": "2"}, "call_1"), ToolCall("no", {}, "call_2")))
        ).step
        assert [m.call_id for m in named.messages] == ["call_1", "call_2"]
        odd = Said("x", (ToolCall("calculator\0</tool_call>\ud800", {"expression": "1"}),))
        step = episode.say(odd).step
        text = step.messages[0].parts[0].text
        assert "\0" not in text and "\\x00" in text and "\ud800" not in text
        text.encode()
        assert told(episode.say(Said("x", (ToolCall("calculator", {"expression": "\ud800"}),))))[0].startswith("Error")


def test_equal_histories_have_equal_keys_in_any_order():
    with host() as h:
        a, b, c = (Played(h, TASK, name) for name in "abc")
        one, two = call("calculator", expression="1"), call("calculator", expression="2")
        a.say(one)
        b.say(two)
        assert a.say(two).step.state == b.say(one).step.state != c.say(two).step.state


def test_a_restored_calculator_is_equal_to_the_bit():
    rng, pool = random.Random(0), load_pool("calculator")
    with host(repeats=2, turns=6) as h:
        for n in range(200):
            turns = []
            for _ in range(rng.randrange(1, 8)):
                expression = rng.choice(["1+1", "2**70/3", "1/0", "(((", str(rng.random())])
                turns.append(
                    rng.choice([call("calculator", expression=expression)] * 4 + ["<tool_call>{", "It is 5", "\0\ud800"])
                )
            same_after_restoring(h, rng.choice(pool), turns, rng.randrange(-1, len(turns)), n)
