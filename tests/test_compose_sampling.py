"""The composition check: laws that change, and what reads them."""

from compose_cases import made, real, rules
from gfcr.registry import Slot

LAWS = {"engine_features": frozenset({"laws", "processed_logprobs"})}
WITHIN = real(Slot.CONFIGURE, "within")
COOLING = real(Slot.CONFIGURE, "schedule", end=0.7)


def test_several_laws_are_laid_out_last_and_once():
    assert rules(WITHIN, COOLING, **LAWS) == rules(WITHIN, WITHIN, **LAWS) == ["laws_laid_out_last"]
    assert rules(COOLING, WITHIN, **LAWS) == rules(WITHIN, **LAWS) == []


def test_laws_by_turn_need_turns():
    by_turn = real(Slot.CONFIGURE, "by-turn", turns=({"turn": 1, "temperature": 0.7},))
    assert rules(by_turn) == ["turns_of_one"]
    assert rules(by_turn, made(Slot.TOPOLOGY, "takes turns")) == []


def test_answers_of_earlier_stages_need_stages():
    asking = real(Slot.CONFIGURE, "uncertain", by="answers")
    assert rules(asking) == ["stages_of_one"]
    assert rules(asking, real(Slot.ALLOCATE, "staged")) == rules(asking, made(Slot.SEED)) == []
    assert rules(real(Slot.CONFIGURE, "uncertain")) == []


def test_a_law_that_changes_within_needs_an_engine_that_can():
    assert rules(WITHIN) == ["engine_lacks"]


def test_a_configured_truncation_is_one():
    cut = real(Slot.CONFIGURE, "schedule", what="top_p", end=0.9)
    banned = real(Slot.CONFIGURE, "by-category", laws={"one": {"banned": (3,)}})
    assert rules(cut) == rules(banned) == ["truncated_without_processed"]
    assert rules(real(Slot.CONFIGURE, "schedule", what="top_p")) == rules(cut, **LAWS) == []
