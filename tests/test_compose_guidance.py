"""The composition check about guidance and demonstrations: one test per rule."""

import pytest

from compose_cases import SCORES, STORE, made, real, rules
from gfcr.build import check_recipe
from gfcr.recipe import parse
from gfcr.registry import Slot
from gfcr.train.settings import LossSettings
from gfcr.types import Sampling

HINT = real(Slot.SEED, "hint")
REFERENCE = real(Slot.AUGMENT, "reference")
AR3PO = (real(Slot.AUGMENT, "ar3po"), STORE)


def test_two_remedies_for_one_group():
    blind = made(Slot.AUGMENT, "injects", "handles: off-policy")
    assert rules(HINT, blind) == rules(REFERENCE, blind) == ["two_remedies"]
    assert rules(HINT, REFERENCE) == rules(HINT, *AR3PO, **SCORES) == rules(REFERENCE, *AR3PO, **SCORES) == []
    assert rules(HINT) == rules(REFERENCE) == rules(*AR3PO, **SCORES) == []
    assert rules(real(Slot.SEED, "hint", strength={"law": "cosine"}), REFERENCE) == []


@pytest.mark.parametrize("credit", ["maxrl", "pass-at-k"])
def test_estimators_over_independent_draws_beside_guidance(credit):
    assert rules(HINT, real(Slot.CREDIT, credit)) == ["guidance_in_iid_group"]


def test_refill_drops_what_guidance_helps():
    refill = real(Slot.REFILL, "dynamic-sampling")
    assert rules(HINT, refill) == ["refill_against_guidance"]
    assert rules(REFERENCE, refill) == ["refill_against_injection"]
    assert rules(real(Slot.SEED, "hint", strength={"law": "cosine"}), refill) == []


def test_guided_log_probabilities_under_a_truncated_law():
    kept = real(Slot.SEED, "hint", form="text", context="plain", ratio="guided")
    truncated = {"sampling": Sampling(top_p=0.9), "engine_features": frozenset({"processed_logprobs"})}
    assert rules(kept, **truncated) == ["guided_ratio_truncated"]
    assert rules(kept, sampling=Sampling(temperature=0.7)) == []
    assert rules(real(Slot.SEED, "hint", form="text", context="plain"), **truncated) == []


def test_cross_entropy_on_hints_and_its_weight_go_together():
    marked, weight = real(Slot.SEED, "hint", learn="ce"), real(Slot.CREDIT_BATCH, "imitation")
    assert rules(marked) == ["imitation_without_weight"]
    assert rules(weight) == rules(weight, HINT) == ["weight_without_imitation"]
    assert rules(marked, weight) == []
    assert rules(marked, weight, packed=True) == ["packed_imitation"]


def test_shaping_is_for_demonstrations():
    shaped = {"loss": LossSettings(demo_shaping=0.1)}
    assert rules(HINT, **shaped) == ["shaping_without_demonstrations"]
    assert rules(REFERENCE, **shaped) == rules(real(Slot.SEED, "hint", learn="rl"), **shaped) == []


def test_a_third_partys_guidance_is_checked_alike():
    assert rules(made(Slot.SEED, "guides", "helps all-wrong groups"), REFERENCE) == []
    assert rules(made(Slot.SEED, "guides", "helps all-wrong groups"), made(Slot.AUGMENT, "injects", "handles: off-policy")) == [
        "two_remedies"
    ]


def test_luffys_recipe_composes():
    recipe = {
        "filter": {"credit": {"name": "dr-grpo"}},
        "replay": {"augment": [{"name": "reference", "when": "always", "replace": False}]},
        "loss": {"demo_shaping": 0.1, "normalise": "constant"},
    }
    assert check_recipe(parse(recipe)) == []
