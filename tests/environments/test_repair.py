"""Code repair: what is shown, what stays hidden, what is judged."""

import json
import random

import pytest

from environments.environment_cases import Played, same_after_restoring, told
from gfcr.context import Build
from gfcr.domains.tools.pools import load_pool
from gfcr.environments.acts import Reset
from gfcr.environments.host import Host
from gfcr.environments.repair import Repair
from gfcr.errors import ConfigError
from gfcr.types import Status, Task
from sandbox_cases import needs_sandbox

pytestmark = needs_sandbox
CASES = {"type": "call", "fn": "add", "cases": [{"args": [1, 2], "expected": 3}, {"args": [5, 5], "expected": 10}]}
HIDDEN = {"type": "call", "fn": "add", "cases": [{"args": [70707, 1], "expected": 70708}]}
TASK = Task("code", "Write add(a, b).", {"tests": {"public": CASES, "hidden": HIDDEN}})
RIGHT = "```python\ndef add(a, b):\n    return a + b\n```"


@pytest.fixture(scope="module")
def host():
    with Host(Repair.maker(Repair.Settings.model_validate({"code": {"limits": {"seconds": 1.0}}})), workers=2) as made:
        yield made


def test_errors_are_read_and_the_program_repaired(host):
    episode = Played(host, TASK)
    (text,) = told(episode.say("```python\ndef add(a, b):\n    return a + c\n```"))
    assert "NameError: name 'c' is not defined" in text and "line 2: return a + c" in text and "add(1, 2)" in text
    (text,) = told(episode.say("def add(a, b) return a"))
    assert "SyntaxError" in text and "line 1" in text
    (text,) = told(episode.say("def add(a, b):\n    while True: pass"))
    assert "not done after 1 s" in text
    last = episode.say(RIGHT)
    assert last.step.terminated and not last.step.truncated and not last.step.messages
    end = episode.end()
    assert end.verdict.correct and end.verdict.verifier == "repair"
    assert [f.kind for f in end.fragments] == ["failure", "failure", "failure", "patch"]
    assert [f.meta["fault"] for f in end.fragments] == ["runtime", "syntax", "time", ""]


def test_hidden_tests_decide_and_nothing_of_them_is_shown(host):
    episode = Played(host, TASK, "hidden")
    (text,) = told(episode.say("def add(a, b):\n    return {(1, 2): 3}[a, b]"))
    assert "(5, 5)" in text and "70707" not in text and "70708" not in text
    step = episode.say("def add(a, b):\n    return {(1, 2): 3, (5, 5): 10}[a, b]").step
    assert step.terminated and "7070" not in json.dumps(step.info)
    end = episode.end()
    assert end.verdict.correct is False
    assert all("7070" not in f.text + str(f.meta) for f in end.fragments)


def test_attempts_end(host):
    with Host(Repair.maker(Repair.Settings(attempts=2))) as two:
        episode = Played(two, TASK)
        assert not episode.say("def add(a, b): return 0").step.truncated
        step = episode.say("def add(a, b): return 1").step
        assert step.truncated and not step.terminated and step.messages == ()
        assert episode.end().verdict.correct is False
        assert episode.say(RIGHT).step.invalid.startswith("over")
    none = Played(host, TASK, "none")
    assert none.end().verdict.correct is False


def test_tasks_without_tests_to_see_are_refused(host):
    all_hidden = Task("code", "Write add(a, b).", {"tests": {"hidden": HIDDEN}})
    assert "no tests that may be seen" in host.run([Reset("x", all_hidden, 0)])[0].error
    assert "no tests that may be seen" in host.run([Reset("y", Task("code", "?"), 0)])[0].error
    with pytest.raises(ConfigError, match="no task has tests that may be seen"):
        Repair.maker(Repair.Settings(), Build(0, [all_hidden], 1, 1, 64))
    held = Repair.Settings.model_validate({"code": {"hold_back": 0.5}})
    with Host(Repair.maker(held)) as half:
        step = Played(half, Task("code", "Write add(a, b).", {"tests": CASES})).say("def add(a, b): return 3").step
        assert step.terminated or "0 of 1 cases passed" in step.messages[0].parts[0].text  # one of the two is held back


def test_tests_that_cannot_be_used_are_nobodys_fault(host):
    broken = {"type": "asserts", "code": "assert add(1, 2) == ="}
    episode = Played(host, Task("code", "Write add(a, b).", {"tests": broken}), "broken")
    assert episode.say(RIGHT).error.startswith("environment_fault: tests:")
    after = Played(host, Task("code", "Write add(a, b).", {"tests": {"public": CASES, "hidden": broken}}), "after")
    after.say(RIGHT)
    assert after.end().verdict.status is Status.UNSCORABLE


def test_a_restored_session_is_equal_to_the_bit(host):
    rng, pool = random.Random(3), load_pool("repair")
    for n in range(2):
        turns = ["def add(a, b): return a", RIGHT, "nothing"][: rng.randrange(2, 4)]
        same_after_restoring(host, TASK, turns, rng.randrange(-1, 1), n)
    make = host._maker
    for n in range(200):
        env, task = make(), pool[n]
        env.reset(task, n)
        env._tried = [
            {"text": f"x{i}\0", "right": i == 2, "words": "w", "fault": "", "turn": i} for i in range(rng.randrange(0, 3))
        ]
        env._over = rng.random() < 0.5
        other = make()
        other.restore(task, env.snapshot())
        assert other.snapshot() == env.snapshot() and other.fragments() == env.fragments() and other._key() == env._key()
