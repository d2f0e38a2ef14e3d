"""The composition check: laws that change, and what reads them."""

from compose_cases import DPO, GRPO, PAIRS, RFT, SFT, STORE, WHOLE, made, real, rules
from gfcr.registry import Slot
from gfcr.train.settings import LossSettings
from gfcr.types import Sampling

LAWS = {"engine_features": frozenset({"laws", "processed_logprobs"})}
WITHIN = real(Slot.CONFIGURE, "within")
COOLING = real(Slot.CONFIGURE, "schedule", end=0.7)


def test_several_laws_are_laid_out_last_and_once():
    assert rules(WITHIN, COOLING, **LAWS) == rules(WITHIN, WITHIN, **LAWS) == ["laws_laid_out_last"]
    assert rules(COOLING, WITHIN, **LAWS) == rules(WITHIN, **LAWS) == []


def test_laws_by_turn_need_turns():
    by_turn = real(Slot.CONFIGURE, "by-turn", turns=({"turn": 1, "temperature": 0.7},))
    assert rules(by_turn) == ["turns_of_one"]
    assert rules(by_turn, made(Slot.TOPOLOGY, "interactive")) == []


def test_answers_of_earlier_stages_need_stages():
    asking = real(Slot.CONFIGURE, "uncertain", by="answers")
    assert rules(asking) == ["stages_of_one"]
    assert rules(asking, real(Slot.ALLOCATE, "staged")) == rules(asking, made(Slot.SEED)) == []
    assert rules(real(Slot.CONFIGURE, "uncertain")) == []


CUT = {"sampling": Sampling(top_p=0.9), "engine_features": frozenset({"processed_logprobs"})}
MASS = {"sampling": Sampling(top_p=0.9), "engine_features": frozenset({"processed_logprobs", "kept_mass"})}
PENALISED = {"sampling": Sampling(presence_penalty=0.5)}
BEHAVIOUR = {"loss": LossSettings(kind="dpo", pair_reference="behaviour")}


def test_a_truncated_law_is_compared_through_the_kept_mass():
    found = [rules(tis=True, **CUT), rules(ratio_base="behaviour", **CUT), rules(PAIRS, **BEHAVIOUR, **CUT)]
    assert found == [["truncated_without_mass"]] * 3
    assert rules(tis=True, **MASS) == rules(PAIRS, **BEHAVIOUR, **MASS) == rules(**CUT) == rules(PAIRS, **DPO, **CUT) == []


def test_a_penalised_law_is_compared_with_nothing():
    found = [rules(tis=True, **PENALISED), rules(ratio_base="behaviour", **PENALISED), rules(PAIRS, **BEHAVIOUR, **PENALISED)]
    assert found == [["penalised_with_importance"]] * 3
    assert rules(GRPO, **PENALISED) == rules(PAIRS, **DPO, **PENALISED) == []


def test_old_answers_scored_again_under_another_law_than_the_trainers():
    scored = {"engine_features": frozenset({"processed_logprobs", "score", "kept_mass"})}
    replay = (real(Slot.AUGMENT, "ar3po"), STORE)
    for law in (Sampling(top_p=0.9), Sampling(frequency_penalty=0.1)):
        assert rules(*replay, sampling=law, **scored) == ["rescored_under_another_law"]
    assert rules(*replay, sampling=Sampling(temperature=0.7), **scored) == []


POWER, BEST = real(Slot.TOPOLOGY, "power"), real(Slot.TOPOLOGY, "n-best")


def test_power_sampling_wants_one_plain_law():
    can = {"engine_features": LAWS["engine_features"] | {"score"}}
    for law in (Sampling(top_k=5), Sampling(banned=(3,)), Sampling(repetition_penalty=1.2)):
        assert rules(POWER, sampling=law, **can) == ["one_plain_law"]
    assert rules(POWER, WITHIN, **can) == ["one_plain_law"]
    assert rules(POWER, COOLING, **can) == rules(POWER, sampling=Sampling(temperature=0.7), **can) == []


def test_answers_of_a_law_that_nobody_can_write_down_have_no_importance_weight():
    can = {"engine_features": frozenset({"score"})}
    assert (
        rules(POWER, GRPO, tis=True, **can)
        == rules(POWER, GRPO, ratio_base="behaviour", **can)
        == ["importance_of_another_law"]
    )
    assert rules(POWER, GRPO, **can) == rules(POWER, RFT, **SFT, **WHOLE, **can) == []


def test_picked_answers_are_no_independent_draws():
    assert rules(BEST, real(Slot.CREDIT, "pass-at-k")) == ["picked_answers"]
    assert rules(BEST, GRPO) == []


def test_a_law_that_changes_within_needs_an_engine_that_can():
    assert rules(WITHIN) == ["engine_lacks"]


def test_a_configured_truncation_is_one():
    cut = real(Slot.CONFIGURE, "schedule", what="top_p", end=0.9)
    banned = real(Slot.CONFIGURE, "by-category", laws={"one": {"banned": (3,)}})
    assert rules(cut) == rules(banned) == ["truncated_without_processed"]
    assert rules(real(Slot.CONFIGURE, "schedule", what="top_p")) == rules(cut, **LAWS) == []


def test_a_configured_temperature_of_0_is_greedy():
    cooling = [
        real(Slot.CONFIGURE, "schedule", end=0.0),
        real(Slot.CONFIGURE, "by-category", laws={"one": {"temperature": 0}}),
        real(Slot.CONFIGURE, "uncertain", low=0.0),
    ]
    assert [rules(method) for method in cooling] == [["greedy_samples"]] * 3
    assert rules(real(Slot.CONFIGURE, "within", points=((0, 1.0), (9, 0.0))), **LAWS) == ["greedy_samples"]
    assert (
        rules(real(Slot.CONFIGURE, "schedule", what="min_p", start=0.0, end=0.0))
        == rules(real(Slot.CONFIGURE, "uncertain"))
        == []
    )
