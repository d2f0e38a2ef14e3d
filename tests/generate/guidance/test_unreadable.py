"""Guidance that cannot be written in the model's tokens, or has no room, is left out with a word in the record: it ends no run."""

import pytest

from gfcr.domains.programs.pools import task_of
from gfcr.errors import ConfigError
from gfcr.types import Role
from guidance_cases import FOUR, SOLUTION, STEPS, guided, guided_lab

UNKNOWN = SOLUTION.replace("b-23", "b-2é")
LONG = SOLUTION[:-3] * 60 + SOLUTION[-3:]


def wrong(prompt, n):
    return "=#00"


def task(solution):
    made = task_of(FOUR, "36", "test")
    made.meta["solution"] = solution
    return made


def reasons(round_, action):
    return {d.reason for d in round_.decisions if d.action == action}


@pytest.mark.parametrize("how", [{"form": "prefix"}, {"form": "text", "say": "{prompt}{hint}"}])
@pytest.mark.parametrize(("solution", "word"), [(UNKNOWN, "unreadable: "), (LONG, "too_long: ")])
def test_a_group_whose_hint_cannot_be_told_closes_with_its_plain_rollouts(how, solution, word):
    seed = {"name": "hint", "steps": STEPS, "strength": {"law": "range", "low": 0.9, "high": 0.94}, **how}
    made = guided_lab(wrong, tasks=[task(solution)], generate={"seed": seed})
    round_ = made.round()
    round_.settings = round_.settings.model_copy(update={"max_context": 96})
    from gfcr.drivers.wave import WaveDriver

    WaveDriver(made.engine, made.cascade).drive(round_)
    (group,) = round_.groups.values()
    assert len(group.members) == 4 and not guided(group), "no rollout is spent on help that is none"
    assert group.reason.startswith("no_help: ")
    assert any(reason.startswith(word) for reason in reasons(round_, "leave_out"))


@pytest.mark.parametrize(("solution", "word"), [(UNKNOWN, "unreadable: "), (LONG, "too_long: ")])
def test_a_solution_that_cannot_stand_in_a_context_is_not_injected(solution, word):
    made = guided_lab(wrong, tasks=[task(solution)], replay={"augment": [{"name": "reference"}]})
    round_ = made.round()
    round_.settings = round_.settings.model_copy(update={"max_context": 96})
    from gfcr.drivers.wave import WaveDriver

    WaveDriver(made.engine, made.cascade).drive(round_)
    (group,) = round_.groups.values()
    assert len(group.members) == 4 and {m.role for m in group.members.values()} == {Role.FRESH}
    assert any(reason.startswith(word) for reason in reasons(round_, "leave_out"))


def test_a_second_attempt_is_left_out_where_what_the_verifier_said_cannot_be_written():
    topology = {"name": "reflect", "k": 2, "feedback": "evidence", "again": "{feedback}", "wrong": "-"}
    round_ = guided_lab(wrong, k=2, generate={"topology": topology}).drive()
    (group,) = round_.groups.values()
    assert len(group.members) == 2 and not guided(group)
    assert any(reason.startswith("unreadable: no second attempt") for reason in reasons(round_, "leave_out"))


def test_a_mode_that_the_model_cannot_write_is_the_recipes_fault():
    with pytest.raises(ConfigError, match=r"generate\.seed.*quiet = '</think>'"):
        guided_lab(wrong, generate={"seed": {"name": "mode", "think": "a"}}).drive()
