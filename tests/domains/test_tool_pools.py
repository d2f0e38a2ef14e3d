"""Pools for environments with tools: what this version gives, and that the references are right by another way."""

import re

import pytest

from gfcr.domains.tools import pools
from gfcr.domains.tools.pools import MAKERS, SIZES, load_heldout, load_pool
from gfcr.environments.arithmetic import evaluate
from gfcr.errors import ConfigError, DataError
from gfcr.filter.verifiers.code.reference import reference
from gfcr.recipe import TasksSection
from gfcr.task_sets import load_tasks
from gfcr.types import derive_id

DIGESTS = {
    "calculator": "9db62920024ac4dddb7d399b84ce22e0",
    "python": "96181f20e72e162bd788e68a4ee6a58c",
    "sqlite": "d8f4bfd0c6e3b3e88f4bba7c49585448",
    "repair": "ef0a3d20c0c4825d82cd054e75563679",
}
"""Ids of all tasks; another digest is another VERSION."""


@pytest.mark.parametrize("name", MAKERS)
def test_a_pool_is_what_its_version_says(name):
    tasks, held = load_pool(name), load_heldout(name)
    assert (len(tasks), len(held)) == SIZES[name]
    ids = [task.id for task in (*tasks, *held)]
    assert len(set(ids)) == len(ids) and derive_id(*ids) == DIGESTS[name]
    assert all(task.reference is not None and task.category and task.origin.version == pools.VERSION for task in tasks)
    assert len({task.category for task in held}) >= 6
    found = load_tasks(TasksSection(source="tools", pool=name))
    assert (len(found.tasks), len(found.heldout)) == SIZES[name]


def test_sums_are_right():
    for task in load_pool("calculator"):
        assert str(evaluate(task.prompt.removeprefix("What is ").partition("?")[0])) == task.reference


def test_puzzles_are_right_where_a_second_way_is_short():
    checked = 0
    for task in load_pool("python"):
        numbers = [int(n) for n in re.findall(r"\d+", task.prompt)]
        if task.category == "palindromes":
            a, b = numbers
            assert len([n for n in map(str, range(a, b + 1)) if list(n) == list(reversed(n))]) == int(task.reference)
        elif task.category == "primes between" and checked < 60:
            a, b = numbers
            count = sum(n > 1 and all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(a, b + 1))
            assert count == int(task.reference)
        elif task.category == "odd squares":
            n, m = numbers
            assert sum(i**2 for i in range(n) if i % 2 == 1 and i % m != 0) == int(task.reference)
        else:
            continue
        checked += 1
    assert checked > 90


def test_functions_have_tests_to_see_and_others_that_stay_hidden():
    for task in (*load_pool("repair"), *load_heldout("repair")):
        known = reference(task.reference)
        shown, hidden = known.sets
        assert len(shown.cases) == 3 and hidden.hidden and len(hidden.cases) >= 1
        seen = {repr(case.args) for case in shown.cases}
        assert not seen & {repr(case.args) for case in hidden.cases}
        assert repr(shown.cases[0].expected) in task.prompt


def test_an_unknown_pool_is_named():
    with pytest.raises(ConfigError, match="calculator, python, sqlite, repair"):
        load_tasks(TasksSection(source="tools"))
    assert not issubclass(ConfigError, DataError)
