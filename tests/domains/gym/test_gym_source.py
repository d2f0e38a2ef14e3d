"""Tasks from reasoning-gym: frozen sets, determinism, what is refused and how."""

import re
import sys

import pytest

from gfcr.domains.gym import source
from gfcr.domains.gym.entries import draw, score
from gfcr.domains.gym.freeze import SETS
from gfcr.domains.gym.settings import GymSettings
from gfcr.domains.gym.source import HELDOUT, GymTasks, heldout_entries
from gfcr.errors import ConfigError, DataError, MissingExtra
from gfcr.recipe import parse
from gfcr.task_sets import load_tasks
from gfcr.types import PartKind

pytest.importorskip("reasoning_gym")

ONE_DIGIT = {"name": "chain_sum", "min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
SHOT = {"question": "3 + 4 =", "answer": "3 + 4 = 7"}


def settings(**values):
    return GymSettings.model_validate({"datasets": [ONE_DIGIT], "size": 30, "heldout": None} | values)


def refused(**values):
    with pytest.raises(ConfigError) as caught:
        GymTasks(settings(**values)).read()
    return caught.value


def test_the_same_seed_gives_the_same_tasks_and_another_seed_others():
    ids = [t.id for t in GymTasks(settings()).load()]
    assert ids == [t.id for t in GymTasks(settings()).load()]
    assert len(set(ids)) == 30
    assert set(ids) != {t.id for t in GymTasks(settings(seed=1000)).load()}


def test_a_prompt_is_chat_with_the_examples_and_the_filled_question():
    made = GymTasks(settings(system="Calculate.", shots=[SHOT], question="{expression} =", category=["num_terms"])).load()[0]
    turns = [(m.role, "".join(p.text for p in m.parts if p.kind is PartKind.TEXT)) for m in made.prompt]
    assert turns[:3] == [("system", "Calculate."), ("user", "3 + 4 ="), ("assistant", "3 + 4 = 7")]
    assert turns[3:] == [("user", made.meta["metadata"]["expression"] + " =")]
    assert made.category == "chain_sum num_terms=2"
    assert made.reference == str(eval(made.meta["metadata"]["expression"]))


def test_sets_alternate_and_share_the_size():
    other = {"name": "basic_arithmetic", "min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    names = [t.meta["dataset"] for t in GymTasks(settings(datasets=[ONE_DIGIT, other], size=7)).load()]
    assert names == ["chain_sum", "basic_arithmetic"] * 3 + ["chain_sum"]


def test_parameters_that_allow_few_tasks_say_so():
    tasks, notes = GymTasks(settings(size=300)).read()
    assert len(tasks) == 200  # two digits and two signs
    assert notes == ["chain_sum has 200 distinct tasks for these parameters, 300 were wanted"]


@pytest.mark.parametrize("name", HELDOUT)
def test_a_frozen_set_holds_100_distinct_tasks_that_their_scorer_accepts(name):
    entries = heldout_entries(name)
    dataset, parameters, _ = SETS[name]
    assert len({e["question"] for e in entries}) == len(entries) == 100
    assert {e["dataset"] for e in entries} == {dataset}
    assert all(e["parameters"] == parameters for e in entries)
    for e in entries:
        assert e["answer"] == str(eval(e["metadata"]["expression"]))  # an independent oracle: Python's own arithmetic
        assert score(e, e["answer"]) == 1.0
        assert score(e, str(int(e["answer"]) + 1)) < 1.0


def test_no_held_out_task_is_trained_on_whatever_the_seed():
    held = {e["question"] for e in heldout_entries("chain_sum")}
    _, parameters, seed = SETS["chain_sum"]
    drawn = {e["question"] for e in draw("chain_sum", parameters, seed, 100, ())}
    assert drawn == held  # with its own seed the set comes back: the frozen file is what the version pinned here makes
    made = GymTasks(settings(datasets=[{"name": "chain_sum", **parameters}], seed=seed, heldout="chain_sum"))
    tasks = made.load()
    assert len(tasks) == 30
    assert not held & {t.meta["question"] for t in tasks}
    assert not {t.id for t in made.heldout()} & {t.id for t in tasks}


def test_a_recipe_reaches_the_source_and_its_notes():
    gym = {"datasets": [ONE_DIGIT], "size": 180, "heldout": "chain_sum"}
    found = load_tasks(parse({"tasks": {"source": "reasoning-gym", "gym": gym}}).tasks)
    assert len(found.heldout) == 100
    assert 100 < len(found.tasks) < 180
    assert re.match(r"chain_sum has \d+ distinct tasks", found.notes[0])


def test_a_changed_frozen_file_is_refused(tmp_path, monkeypatch):
    data = tmp_path / "data"
    data.mkdir()
    original = source.resources.files("gfcr.domains.gym") / "data"
    for name in ("SHA256SUMS", "chain_sum.heldout.jsonl"):
        (data / name).write_bytes((original / name).read_bytes())
    monkeypatch.setattr(source.resources, "files", lambda package: tmp_path)
    assert len(heldout_entries("chain_sum")) == 100
    (data / "chain_sum.heldout.jsonl").write_bytes((data / "chain_sum.heldout.jsonl").read_bytes().replace(b'"3"', b'"4"', 1))
    with pytest.raises(DataError, match="SHA-256"):
        heldout_entries("chain_sum")


@pytest.mark.parametrize(
    ("values", "what", "remedy"),
    [
        ({"datasets": [{"name": "chain_sums"}]}, "no data set 'chain_sums'", "did you mean 'chain_sum'"),
        ({"datasets": [{**ONE_DIGIT, "max_terms": 1}]}, "max_terms must be >= min_terms", "its parameters are allow_negation"),
        ({"datasets": [{**ONE_DIGIT, "terms": 1}]}, "'terms'", "max_terms"),
        ({"datasets": [{**ONE_DIGIT, "seed": 1}]}, "names 'seed' itself", "set tasks.gym.seed"),
        ({"question": "{formula} ="}, "tasks.gym.question names 'formula'", "name one of these"),
        ({"category": ["level"]}, "tasks.gym.category names 'level'", "name one of these"),
        (
            {"heldout": "chain"},
            "tasks.gym.heldout = 'chain'",
            "choose one of answer_tags, basic_arithmetic, chain_sum, digit_sums",
        ),
    ],
)
def test_refusals_name_the_value_and_the_remedy(values, what, remedy):
    error = refused(**values)
    assert what in error.what
    assert remedy in error.remedy


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingExtra, match=re.escape('"gfcr[reasoning-gym]"')):
        list(draw("chain_sum", {"max_terms": 2, "seed_of_no_cache": 1}, 1, 1, ()))
