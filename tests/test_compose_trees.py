"""Rules of the composition check about trees."""

import pytest

from compose_cases import SCORES, STORE, made, real, rules
from gfcr.build import check_recipe
from gfcr.recipe import parse
from gfcr.registry import Slot

TREES = [real(Slot.TOPOLOGY, name) for name in ("treepo", "treerl", "treerpo")]
TURNS = [real(Slot.TOPOLOGY, "tree-grpo"), real(Slot.ENVIRONMENT, "registers")]
each = pytest.mark.parametrize("tree", TREES, ids=lambda t: t[0].name)


@each
def test_estimators_over_independent_draws_refuse_trees(tree):
    for credit in ("maxrl", "pass-at-k"):
        assert rules(tree, real(Slot.CREDIT, credit)) == ["iid_broken"]
    recipe = parse({"generate": {"topology": {"name": "treepo", "k": 8}}, "filter": {"credit": {"name": "pass-at-k"}}})
    (finding,) = check_recipe(recipe)
    assert "grows them from shared beginnings" in finding.why and "stops on outcomes" not in finding.why


@each
def test_what_counts_answers_as_independent_refuses_trees(tree):
    assert rules(tree, real(Slot.CREDIT, "seed-grpo")) == ["answers_not_independent"]
    assert "answers_not_independent" in rules(tree, real(Slot.ALLOCATE, "greedy"))
    assert rules(real(Slot.TOPOLOGY, "group"), real(Slot.CREDIT, "seed-grpo"), real(Slot.ALLOCATE, "greedy")) == []


def test_trees_of_a_fixed_shape_want_their_own_number_of_rollouts():
    uneven = made(Slot.ALLOCATE, "uneven groups")
    assert rules(TREES[0], uneven) == rules(TREES[0], real(Slot.ALLOCATE, "staged")) == []
    for tree in TREES[1:]:
        assert rules(tree, uneven) == rules(tree, real(Slot.ALLOCATE, "staged")) == ["fixed_shape"]


def test_trees_of_turns_are_trees_and_want_an_environment():
    assert rules(*TURNS) == rules(*TURNS, real(Slot.CREDIT, "tree-grpo")) == rules(*TURNS, real(Slot.CREDIT, "treerl")) == []
    assert rules(TURNS[0]) == ["environment_missing"]
    assert rules(*TURNS, real(Slot.CREDIT, "seed-grpo")) == ["answers_not_independent"]
    assert rules(*TURNS, real(Slot.CREDIT, "pass-at-k")) == ["iid_broken"]
    assert rules(*TURNS, real(Slot.ALLOCATE, "staged")) == ["fixed_shape"]


@each
def test_a_stopper_would_take_a_piece_for_an_answer(tree):
    assert rules(tree, made(Slot.STOP)) == ["stopper_on_pieces"]
    assert rules(tree, made(Slot.STOP, "handles: pieces")) == rules(real(Slot.TOPOLOGY, "group"), made(Slot.STOP)) == []


@each
def test_dynamic_sampling_and_injection_compose_with_trees(tree):
    assert rules(tree, real(Slot.REFILL, "dynamic-sampling"), real(Slot.CREDIT, "treerpo")) == []
    assert rules(tree, real(Slot.AUGMENT, "ar3po"), STORE, **SCORES) == []
    assert rules(real(Slot.TOPOLOGY, "group"), real(Slot.CREDIT, "treerl")) == []


@each
def test_a_stop_string_could_lie_across_two_pieces(tree):
    assert rules(tree, stop_strings=("#", "</s>")) == ["stop_string_over_pieces"]
    assert rules(tree, stop_strings=("#",)) == rules(real(Slot.TOPOLOGY, "group"), stop_strings=("</s>",)) == []
    recipe = parse({"generate": {"topology": {"name": "treepo", "k": 8}, "stop_strings": ["ab"]}})
    assert [f.rule for f in check_recipe(recipe)] == ["stop_string_over_pieces"]
