"""Judging reasoning-gym answers, from a recipe through the cascade and the child process."""

import re

import numpy as np
import pytest

from gfcr.build import make_cascade
from gfcr.context import Build
from gfcr.domains.gym.source import GymTasks
from gfcr.errors import ConfigError
from gfcr.filter.killable import KillableVerifier
from gfcr.recipe import parse
from gfcr.types import Node, Rollout, Segment, SegmentKind, Status, StopReason, Task

pytest.importorskip("reasoning_gym")

COUNTING = {"name": "letter_counting"}
ONE_DIGIT = {"name": "chain_sum", "min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def cascade(*more, **filters):
    gym = {"datasets": [ONE_DIGIT, *more], "size": 3}
    recipe = parse({"tasks": {"source": "reasoning-gym", "gym": gym}, "filter": filters})
    tasks = GymTasks(recipe.tasks.gym).load()
    build = Build(0, tasks, 1, 2, 64, decode=lambda ids: bytes(ids.astype(np.uint8)).decode())
    return make_cascade(recipe, build), tasks


def said(task, text, stop=StopReason.EOS):
    ids = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
    prompt = Node("p", None, Segment(SegmentKind.PROMPT, np.array([1], np.int32)))
    answer = Node("a", "p", Segment(SegmentKind.ACTION, ids, np.zeros(len(ids), np.float32)))
    return Rollout("r", task.id, (prompt, answer), stop)


@pytest.fixture(scope="module")
def numbers():
    judge, tasks = cascade(verifiers=[{"name": "reasoning-gym"}])
    yield judge, tasks[0]  # 4 - 1 = 3
    judge.close()


@pytest.fixture(scope="module")
def tags():
    judge, tasks = cascade(gates=[{"name": "answer-tags"}], verifiers=[{"name": "reasoning-gym", "answer": "tags"}])
    yield judge, tasks[0]
    judge.close()


def test_a_scorer_that_nobody_vouches_for_runs_where_it_can_be_killed(numbers):
    assert not isinstance(numbers[0].verifiers[0], KillableVerifier)
    judge, tasks = cascade(COUNTING, verifiers=[{"name": "reasoning-gym"}])
    assert isinstance(judge.verifiers[0], KillableVerifier)
    task = next(t for t in tasks if t.meta["dataset"] == "letter_counting")
    try:
        assert judge.judge(task, said(task, f"There are {task.reference}.")).reward == 1.0
        assert judge.judge(task, said(task, f"There are 1{task.reference}.")).reward == 0.0
    finally:
        judge.close()


def test_it_refuses_tasks_of_another_source():
    build = Build(0, [Task("programs", "a+?12", {"final": "32"})], 1, 2, 64, decode=lambda ids: "")
    with pytest.raises(ConfigError, match=re.escape("tasks.source = 'reasoning-gym'")):
        make_cascade(parse({"filter": {"verifiers": [{"name": "reasoning-gym"}]}}), build)


@pytest.mark.parametrize(
    ("text", "stop", "reward"),
    [
        ("4 - 1 = 3", StopReason.EOS, 1.0),
        ("The answer is 3.", StopReason.EOS, 1.0),
        ("3.0", StopReason.EOS, 1.0),
        ("4 - 1 = \N{MINUS SIGN}3", StopReason.EOS, 0.0),
        ("4 - 1 = -3", StopReason.EOS, 0.0),
        ("3, or perhaps 4", StopReason.EOS, 0.0),
        ("three", StopReason.EOS, 0.0),
        ("", StopReason.EOS, 0.0),
        ("4 - 1 = 3", StopReason.MAX_TOKENS, 0.0),
    ],
)
def test_an_answer_is_worth_one_or_nothing(numbers, text, stop, reward):
    judge, task = numbers
    assert task.reference == "3"
    found = judge.judge(task, said(task, text, stop))
    assert found.verdict.status is Status.SCORED
    assert (found.reward, found.correct) == (reward, reward == 1.0)


def test_a_typographic_minus_is_a_minus(numbers):
    judge, task = numbers
    negative = Task(task.domain, task.prompt, "-3", meta=task.meta)
    assert judge.judge(negative, said(negative, "It is \N{MINUS SIGN}3")).reward == 1.0


def test_what_nobody_can_judge_is_unscorable_and_never_zero(numbers):
    judge, task = numbers
    broken = Task(task.domain, task.prompt, "three", meta={**task.meta, "dataset": "no such set"})
    foreign = Task("programs", "a+?12", {"final": "32"})
    for of, stop in ((task, StopReason.CANCELLED), (broken, StopReason.EOS), (foreign, StopReason.EOS)):
        found = judge.judge(of, said(of, "3", stop))
        assert found.verdict.status is Status.UNSCORABLE
        assert found.reward is None
        assert found.correct is None


@pytest.mark.parametrize(
    ("text", "status", "reward"),
    [
        ("<answer>3</answer>", Status.SCORED, 1.0),
        ("It is <answer> 3 </answer>.", Status.SCORED, 1.0),
        ("<answer>4</answer>", Status.SCORED, 0.0),
        ("3", Status.INVALID, 0.0),
        ("<answer>3</answer><answer>3</answer>", Status.INVALID, 0.0),
        ("</answer>3<answer>", Status.INVALID, 0.0),
        ("<answer> </answer>", Status.INVALID, 0.0),
        ("<answer>3", Status.INVALID, 0.0),
    ],
)
def test_the_formatting_task_wants_one_answer_in_tags(tags, text, status, reward):
    judge, task = tags
    found = judge.judge(task, said(task, text))
    assert found.verdict.status is status
    assert found.reward == reward


def test_text_outside_the_tags_can_be_refused():
    judge, tasks = cascade(
        gates=[{"name": "answer-tags", "alone": True}], verifiers=[{"name": "reasoning-gym", "answer": "tags"}]
    )
    try:
        assert judge.judge(tasks[0], said(tasks[0], "It is <answer>3</answer>")).verdict.status is Status.INVALID
        assert judge.judge(tasks[0], said(tasks[0], " <answer>3</answer>\n")).reward == 1.0
        cut = judge.judge(tasks[0], said(tasks[0], "It is <ans", StopReason.MAX_TOKENS))
        assert (cut.verdict.status, cut.reward) == (Status.SCORED, 0.0)
    finally:
        judge.close()
