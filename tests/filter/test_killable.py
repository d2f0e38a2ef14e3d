"""Invariant 8: no verifier makes a run hang, and none leaves a process behind."""

import gc
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gfcr.errors import ConfigError
from gfcr.filter.cascade import Cascade
from gfcr.filter.killable import KillableVerifier, contained
from gfcr.types import Status, StopReason, Task
from group_cases import rollout
from killable_cases import Bounded, Judge, Local, Steps


def ask(verifier, prompt, text="abc"):
    return verifier.judge(Task("test", prompt), text, StopReason.EOS)


def gone(pid):
    """Whether the process ends soon (a killed orphan may take init a moment)."""
    for _ in range(200):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture(scope="module")
def verifier():
    made = KillableVerifier(Judge(), seconds=0.3)
    yield made
    made.close()


def pid_of(verifier):
    return int(ask(verifier, "pid").evidence)


def test_a_verdict_comes_back_as_it_was_given(verifier):
    verdict = ask(verifier, "judge", "four")
    assert (verdict.status, verdict.score, verdict.correct, verdict.verifier, verdict.version) == (
        Status.SCORED,
        4.0,
        True,
        "judge",
        "3",
    )


@pytest.mark.parametrize(
    ("prompt", "evidence"),
    [
        ("loop", "no verdict within 0.3 s; killed"),
        ("sleep 60", "no verdict within 0.3 s; killed"),
        ("die", "killed by signal 9"),
        ("exit", "exit code 3"),
        ("quit", "exit code 5"),
        ("raise", "RuntimeError: the grader is broken"),
        ("rubbish", "returned dict, not a Verdict"),
        ("unpicklable", "Error"),
    ],
)
def test_a_verifier_that_misbehaves_is_unscorable_and_the_next_call_works(verifier, prompt, evidence):
    started = time.monotonic()
    verdict = ask(verifier, prompt)
    assert time.monotonic() - started < 10
    assert (verdict.status, verdict.score, verdict.correct) == (Status.UNSCORABLE, None, None)
    assert evidence in verdict.evidence
    assert ask(verifier, "judge", "four").score == 4.0


def test_a_child_serves_many_calls_and_is_replaced_only_after_it_was_killed(verifier):
    first = pid_of(verifier)
    assert pid_of(verifier) == first
    ask(verifier, "raise")
    assert pid_of(verifier) == first
    ask(verifier, "loop")
    assert pid_of(verifier) != first
    assert gone(first)


def test_what_a_verifier_prints_disturbs_nothing(verifier, capfd):
    assert ask(verifier, "print").score == 3.0
    assert capfd.readouterr().out == ""


def test_a_process_that_the_verifier_started_dies_with_it(verifier, tmp_path):
    assert ask(verifier, f"spawn {tmp_path}/pids").status is Status.UNSCORABLE
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    assert all(gone(int(pid)) for pid in pids)


def test_waiting_for_a_child_is_not_counted():
    """200 calls of 50 ms through 4 children: each is well within its .5 s, together they take five times that."""
    made = KillableVerifier(Judge(), seconds=0.5, workers=4)
    try:
        with ThreadPoolExecutor(32) as pool:
            verdicts = list(pool.map(lambda _: ask(made, "sleep 0.05"), range(200)))
        assert {v.status for v in verdicts} == {Status.SCORED}
    finally:
        made.close()


def test_no_process_is_left_after_close_or_when_the_verifier_is_forgotten():
    made = KillableVerifier(Judge(), seconds=5)
    first = pid_of(made)
    made.close()
    assert gone(first)
    second = pid_of(made)
    assert second != first
    del made
    gc.collect()
    assert gone(second)


def test_a_child_dies_with_its_parent_even_when_that_is_killed(tmp_path):
    import subprocess
    import sys

    code = (
        "import os, sys; from gfcr.filter.killable import KillableVerifier; from killable_cases import Judge\n"
        "from gfcr.types import Task, StopReason\n"
        "v = KillableVerifier(Judge(), 60)\n"
        "pid = v.judge(Task('t', 'pid'), '', StopReason.EOS).evidence\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(pid)\n"
        "os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == -9
    assert gone(int((tmp_path / "pid").read_text()))


def test_only_what_does_not_declare_itself_bounded_is_contained():
    assert isinstance(contained(Judge(), 1.0), KillableVerifier)
    bounded = Bounded()
    assert contained(bounded, 1.0) is bounded


def test_a_verifier_that_cannot_travel_is_refused_when_the_run_is_built():
    with pytest.raises(ConfigError, match="cannot be sent to a process of its own"):
        contained(Local(), 1.0)


def test_a_hanging_step_scorer_costs_its_steps_only():
    steps = contained(Steps(), 0.3)
    cascade = Cascade(lambda ids: "abc", [], [Bounded()], [steps])
    try:
        hung = cascade.judge(Task("test", "hang"), rollout("r"))
        fine = cascade.judge(Task("test", "judge"), rollout("r"))
    finally:
        cascade.close()
    assert (hung.reward, hung.steps) == (3.0, ())
    assert hung.verdicts["steps"].status is Status.UNSCORABLE
    assert "no verdict within 0.3 s" in hung.verdicts["steps"].evidence
    assert [(s.start, s.end) for s in fine.steps] == [(2, 3)]


def test_recipes_contain_third_party_verifiers_and_run_built_in_ones_in_process(monkeypatch):
    from gfcr.registry import INDEX, Slot
    from lifecycle_cases import lab

    monkeypatch.setitem(INDEX[Slot.VERIFIER], "wild", "lifecycle_methods:Wild")
    made = lab(
        "r",
        filter={
            "gates": [{"name": "format"}],
            "verifiers": [{"name": "exact"}, {"name": "wild"}],
            "steps": [{"name": "program-steps"}],
            "seconds": 0.7,
        },
    )
    gate, exact, wild, steps = *made.cascade.gates, *made.cascade.verifiers, *made.cascade.steps
    assert [isinstance(v, KillableVerifier) for v in (gate, exact, wild, steps)] == [False, False, True, False]
    assert wild.seconds == 0.7
