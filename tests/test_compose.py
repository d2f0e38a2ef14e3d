"""The composition check: one test per rule, with real methods where they exist and made ones where not.

Rules about rewards, losses, guidance, partial rollouts: test_compose_reward.py, test_compose_loss.py, test_compose_guidance.py,
test_compose_partial.py; whole recipes: test_compose_recipes.py.
"""

import pytest

import test_compose_engine
import test_compose_environment
import test_compose_guidance
import test_compose_loss
import test_compose_partial
import test_compose_reward
import test_compose_sampling
import test_compose_trees
from compose_cases import GRPO, INFORMATIVE, PLUS, SCORES, STORE, made, real, rules
from gfcr.compose import RULES, Facts, check
from gfcr.registry import Settings, Slot, find
from gfcr.types import Sampling


def test_two_difficulty_selectors():
    other = made(Slot.SELECT, "selects by difficulty")
    assert rules(INFORMATIVE, other) == ["two_difficulty_selectors"]
    assert rules(INFORMATIVE, real(Slot.ALLOCATE, "greedy")) == []


def test_damping_against_seeking():
    """SEED-GRPO beside a selector that seeks uncertainty."""
    damping = made(Slot.SHAPE, "damps uncertainty")
    assert rules(INFORMATIVE, damping) == ["damping_against_seeking"]
    assert rules(real(Slot.SELECT, "uniform"), damping) == []


@pytest.mark.parametrize("select", ["informative", "mopps"])
def test_seed_grpo_beside_a_selector_that_seeks_uncertainty(select):
    seed, seeking = real(Slot.CREDIT, "seed-grpo"), real(Slot.SELECT, select)
    assert rules(seed, seeking) == ["damping_against_seeking"]
    assert rules(seed, real(Slot.SELECT, "uniform")) == rules(GRPO, seeking) == []


def test_injection_without_off_policy_handling():
    injecting = made(Slot.AUGMENT, "injects")
    assert rules(injecting) == ["injection_without_off_policy"]
    assert rules(injecting, made(Slot.OFF_POLICY, "weighs off-policy")) == []
    assert rules(real(Slot.AUGMENT, "ar3po"), STORE, **SCORES) == []


def test_injection_without_a_store():
    assert rules(real(Slot.AUGMENT, "ar3po"), **SCORES) == ["injection_without_store"]


@pytest.mark.parametrize("law", [Sampling(top_p=0.9), Sampling(top_k=5), Sampling(min_p=0.1), Sampling(banned=(3,))], ids=repr)
def test_truncated_sampling_needs_processed_log_probabilities(law):
    assert rules(sampling=law) == ["truncated_without_processed"]
    assert rules(sampling=law, engine_features=frozenset({"processed_logprobs"})) == []


def test_a_temperature_alone_truncates_nothing():
    assert rules(sampling=Sampling(temperature=0.7)) == []


def test_a_length_reward_that_compares_within_groups_of_one():
    alone = real(Slot.SHAPE, "kimi-length", on="right")
    assert rules(*PLUS, alone, k=1, admission_zero_variance=False) == ["group_of_one"]
    assert rules(*PLUS, alone, k=2, admission_zero_variance=False) == []


@pytest.mark.parametrize("credit", ["maxrl", "pass-at-k"])
def test_estimators_over_independent_draws(credit):
    needing = real(Slot.CREDIT, credit)
    assert rules(needing, real(Slot.ALLOCATE, "staged")) == ["iid_broken"]
    assert rules(needing, real(Slot.AUGMENT, "ar3po"), STORE, **SCORES) == ["iid_broken"]
    assert rules(needing, real(Slot.ALLOCATE, "greedy")) == []


@pytest.mark.parametrize("credit", ["grpo", "dr-grpo", "rloo", "maxrl", "pass-at-k", "gdpo"])
def test_a_group_of_one_with_a_group_baseline(credit):
    one = real(Slot.CREDIT, credit)
    assert rules(one, k=1) == ["group_of_one"]
    assert rules(one, real(Slot.TOPOLOGY, "linear"), k=8) == ["group_of_one"]
    assert rules(one, k=2) == []


@pytest.mark.parametrize("bound", [0, -1, None])
def test_a_refill_without_a_bound(bound):
    refill = find(Slot.REFILL, "dynamic-sampling")
    assert rules((refill, refill.settings.model_construct(max_waves=bound))) == ["unbounded_refill"]
    assert rules(made(Slot.REFILL, "refills")) == ["unbounded_refill"]
    assert rules(real(Slot.REFILL, "dynamic-sampling", max_waves=1)) == []


def test_the_importance_ratio_counted_twice():
    weighing = made(Slot.OFF_POLICY, "weighs off-policy")
    assert rules(tis=True, ratio_base="behaviour") == ["importance_twice"]
    assert rules(weighing, tis=True) == rules(weighing, ratio_base="behaviour") == ["importance_twice"]
    assert rules(tis=True) == rules(ratio_base="behaviour") == rules(weighing) == []


def test_dropping_the_long_tail():
    assert rules(made(Slot.STOP, "drops long tail")) == ["long_tail_dropped"]


def test_training_on_unverified_data_needs_a_yes():
    class Opting(Settings):
        accept_unverified: bool = False

    method = made(Slot.VERIFIER, "trains on unverified")[0]
    assert rules((method, Settings())) == rules((method, Opting())) == ["unverified_training"]
    assert rules((method, Opting(accept_unverified=True))) == []


def test_a_method_that_needs_an_iid_group_beside_one_that_breaks_it():
    needing = made(Slot.CREDIT, "assumes: iid group")
    assert rules(real(Slot.ALLOCATE, "staged"), needing) == ["iid_broken"]
    assert rules(real(Slot.ALLOCATE, "greedy"), needing) == []


def test_an_engine_that_lacks_what_a_method_needs():
    assert rules(real(Slot.AUGMENT, "ar3po"), STORE) == ["engine_lacks"]
    assert rules(made(Slot.STOP, needs=("cancel",)), **SCORES) == ["engine_lacks"]


def test_refilling_beside_early_stopping():
    assert rules(real(Slot.REFILL, "dynamic-sampling"), real(Slot.ALLOCATE, "staged")) == ["refill_with_early_stop"]


def test_refilling_beside_injection():
    found = rules(real(Slot.REFILL, "dynamic-sampling"), real(Slot.AUGMENT, "ar3po"), STORE, **SCORES)
    assert found == ["refill_against_injection"]


def test_every_rule_is_under_test():
    seen = {
        rule
        for module in (
            globals(),
            *map(
                vars,
                (
                    test_compose_engine,
                    test_compose_environment,
                    test_compose_guidance,
                    test_compose_loss,
                    test_compose_partial,
                    test_compose_reward,
                    test_compose_sampling,
                    test_compose_trees,
                ),
            ),
        )
        for name, function in module.items()
        if name.startswith("test_") and hasattr(function, "__code__")
        for rule in map(str, _strings(function.__code__))
        if rule in _rule_names()
    }
    assert seen == _rule_names()


def _rule_names():
    """Rule ids as findings name them."""
    names = {constant for r in RULES for constant in r.__code__.co_consts if isinstance(constant, str)}
    return {
        n
        for n in names
        if n.isidentifier()
        and "_" in n
        and n not in {"engine_features", "max_waves", "accept_unverified", "token_ids", "text_only", "kept_mass"}
    }


def _strings(code):
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from (c for c in constant if isinstance(c, str))


def test_findings_say_who_why_and_what_to_do():
    (finding,) = check(Facts([real(Slot.CREDIT, "grpo")], 1))
    assert "filter.credit 'grpo'" in finding.why
    assert finding.remedy
