"""Composition rules about partial rollouts, one test each."""

from compose_cases import STORE, made, real, rules
from gfcr.build import check_recipe
from gfcr.engine import FEATURES
from gfcr.generate.settings import PartialSettings
from gfcr.recipe import parse
from gfcr.registry import Faithfulness, Method, Settings, Slot

ABLE = {"engine_features": frozenset({"resume", "versions"})}
ALL, NEWEST = {"partial": PartialSettings(tokens=9)}, {"partial": PartialSettings(tokens=9, train="newest")}


class Grows:
    def grow(self, group, bases, how, view):
        """A growth."""


GROWING = Method("tree", Slot.TOPOLOGY, "tree", "cost", Faithfulness.OURS, cls=Grows), Settings()


def test_partial_growths():
    assert rules(GROWING, **ALL, **ABLE) == ["partial_growths"]
    assert rules(GROWING, **ABLE) == rules(real(Slot.TOPOLOGY, "group"), **ALL, **ABLE) == []


def test_partial_without_resume():
    assert rules(**ALL, engine_features=frozenset({"versions"})) == ["partial_without_resume"]
    assert rules(**ALL, engine_features=frozenset({"resume"})) == ["partial_without_resume"]
    assert rules(**ALL, **ABLE) == rules() == []
    assert all(rules(**ALL, engine_features=FEATURES[name]) == [] for name in ("embedded", "scripted"))


def test_partial_masked_and_stored():
    assert rules(STORE, **NEWEST, **ABLE) == ["partial_masked_and_stored"]
    assert rules(STORE, **ALL, **ABLE) == rules(**NEWEST, **ABLE) == []
    assert rules(made(Slot.STORE, "stores: verified answers"), **NEWEST, **ABLE) == ["partial_masked_and_stored"]


def test_a_recipe_says_it_in_one_line():
    recipe = parse({"generate": {"partial": {"tokens": 24}}})
    assert check_recipe(recipe) == []
    assert recipe.frozen()["generate"]["partial"] == {"tokens": 24, "most_resumes": 3, "max_age": 4, "train": "all"}
