"""Tasks that an environment cannot judge, and tools of which no prompt tells, are said before the first token."""

import pytest

from gfcr.build import preflight
from gfcr.errors import ConfigError
from gfcr.recipe import parse

TURNS = {"name": "interactive", "k": 4}


def recipe(environment, tasks, verifiers=({"name": "environment"},), **prompt):
    generate = {"environment": environment, "topology": TURNS, "prompt": prompt}
    return parse({"generate": generate, "tasks": tasks, "filter": {"verifiers": list(verifiers)}, "budget": {"tokens": 10_000}})


@pytest.mark.parametrize("name", ["calculator", "python"])
def test_an_environment_that_can_judge_no_task_is_refused(name):
    environment = {"name": name, **({"sandbox": "weak"} if name == "python" else {})}
    with pytest.raises(ConfigError, match=rf"{name}' can judge none of the \d+ tasks.*its reference .* is not one number"):
        preflight(recipe(environment, {"pool": "D"}))
    assert preflight(recipe(environment, {"pool": "D"}, [{"name": "exact"}])).tasks  # somebody else judges
    assert preflight(recipe(environment, {"source": "tools", "pool": name})).tasks


def test_a_tool_that_no_prompt_tells_of_is_noted():
    (note,) = preflight(recipe({"name": "calculator"}, {"pool": "D"}, [{"name": "exact"}])).notes
    assert "the model is not told of calculator" in note and "generate.prompt.chat = true" in note
    assert not preflight(recipe({"name": "calculator"}, {"source": "tools", "pool": "calculator"})).notes
    assert not preflight(recipe({"name": "registers"}, {"pool": "D"})).notes
