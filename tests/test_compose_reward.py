"""The composition check: what credit asks of rewards, shapes, steps and verifiers."""

import pytest

from compose_cases import CRITIC, DR, GAE, GRPO, PLUS, WHOLE, made, real, rules
from gfcr.build import check_recipe, refuse
from gfcr.compose import Facts, check
from gfcr.errors import ConfigError
from gfcr.recipe import parse
from gfcr.registry import Faithfulness, Method, Settings, Slot


def test_a_credit_that_takes_rewards_for_chances_and_rewards_beyond_them():
    bounded, free = real(Slot.CREDIT, "treerpo"), real(Slot.CREDIT, "treerpo", spread="none")
    overlong = real(Slot.SHAPE, "soft-overlong")
    assert rules(bounded, overlong) == rules(bounded, invalid_reward=-0.5) == ["rewards_out_of_range"]
    assert rules(bounded) == rules(free, overlong) == rules(free, invalid_reward=-0.5) == []


def test_a_correction_that_a_std_undoes():
    constant = real(Slot.SHAPE, "noise-correction", false_negative=0.2)
    assert rules(GRPO, constant) == rules(real(Slot.CREDIT, "tree-grpo"), constant) == ["correction_without_effect"]
    assert rules(DR, real(Slot.CREDIT_BATCH, "whiten"), constant) == ["correction_without_effect"]
    differing = [
        real(Slot.SHAPE, "noise-correction", by={"v": {"false_negative": 0.2}}),
        real(Slot.SHAPE, "noise-correction", measured=True),
    ]
    assert rules(GRPO, constant, real(Slot.GATE, "format")) == []  # what it refuses keeps its reward
    assert rules(DR, constant) == rules(GRPO, differing[0]) == rules(GRPO, differing[1]) == []


@pytest.mark.parametrize(
    "needing",
    [
        [real(Slot.CREDIT, "grpo-process")],
        [real(Slot.SHAPE, "step-score"), DR],
        [real(Slot.CREDIT_BATCH, "withhold-wrong-steps"), DR],
    ],
    ids=["credit", "shape", "batch"],
)
def test_methods_that_read_step_scores_want_a_scorer(needing):
    assert rules(*needing) == ["steps_without_scorer"]
    assert rules(*needing, real(Slot.STEPS, "program-steps")) == []


def test_a_critic_reads_step_scores_only_when_told_to():
    steps = real(Slot.CREDIT, "gae", steps=0.5)
    assert rules(steps, **CRITIC, admission_zero_variance=False) == ["steps_without_scorer"]
    assert (
        rules(GAE, **CRITIC, admission_zero_variance=False)
        == rules(steps, real(Slot.STEPS, "program-steps"), **CRITIC, admission_zero_variance=False)
        == []
    )


def test_zero_variance_test_on_a_shaped_reward():
    testing, shaping = made(Slot.REFILL, "zero-variance on shaped reward"), made(Slot.SHAPE, "shapes reward")
    assert rules(testing, shaping) == ["zero_variance_on_shaped"]
    assert rules(testing) == rules(shaping, real(Slot.REFILL, "dynamic-sampling")) == []


def test_length_shaping_of_all_wrong_groups_under_std():
    shaping = made(Slot.SHAPE, "shapes length in all-wrong groups")
    assert rules(GRPO, shaping) == ["length_on_all_wrong"]
    assert rules(DR, shaping) == rules(GRPO, made(Slot.SHAPE, "shapes reward")) == []


@pytest.mark.parametrize("shape", ["soft-overlong", "kimi-length", "cosine-length"])
def test_length_rewards_of_all_wrong_groups_want_a_yes_and_no_std(shape):
    """The trap of length rewards, for every built-in one: as published it is refused, by default it cannot happen."""
    published = real(Slot.SHAPE, shape, on="all")
    assert rules(GRPO, published) == rules(real(Slot.CREDIT, "gdpo"), published)[:1] == ["length_on_all_wrong"]
    assert rules(DR, real(Slot.CREDIT_BATCH, "whiten"), published) == ["length_on_all_wrong"]
    assert rules(DR, published) == []
    assert rules(GRPO, real(Slot.SHAPE, shape)) == rules(GRPO, real(Slot.SHAPE, shape, on="right")) == []


def test_a_shape_that_depends_on_the_group_under_a_baseline_over_the_batch():
    keep = {"admission_zero_variance": False}
    assert rules(*PLUS, real(Slot.SHAPE, "soft-overlong"), **keep) == ["shape_by_group"]
    assert rules(*PLUS, real(Slot.SHAPE, "soft-overlong", on="right"), **keep) == []


@pytest.mark.parametrize("credit", [real(Slot.CREDIT, "gdpo"), real(Slot.CREDIT, "pass-at-k", k=2)], ids=["gdpo", "pass-at-k"])
def test_a_shape_that_no_credit_reads(credit):
    assert rules(credit, real(Slot.SHAPE, "cosine-length")) == ["shape_without_readers"]


def test_a_credit_that_divides_by_the_mean_and_rewards_below_zero():
    credit = real(Slot.CREDIT, "maxrl")
    assert rules(credit, real(Slot.SHAPE, "soft-overlong")) == rules(credit, invalid_reward=-0.5) == ["negative_rewards"]
    assert rules(credit) == rules(DR, invalid_reward=-0.5) == []


@pytest.mark.parametrize("credit", ["reinforce-pp", "reinforce-pp-baseline"])
def test_half_a_method_without_its_normalisation(credit):
    half = real(Slot.CREDIT, credit)
    assert rules(half, admission_zero_variance=False) == ["unnormalised_batch"]
    assert rules(half, real(Slot.CREDIT_BATCH, "whiten"), admission_zero_variance=False) == []


def test_a_baseline_over_the_batch_wants_groups_of_one_reward_in_it():
    assert rules(*PLUS, k=8) == rules(*PLUS, k=1) == ["one_reward_dropped"]
    assert rules(*PLUS, real(Slot.TOPOLOGY, "linear"), admission_zero_variance=False) == []


def test_a_critic_is_a_baseline_over_the_batch_too():
    """Its value head has seen neither what admission dropped nor which group an answer came from."""
    assert rules(GAE, **CRITIC) == ["one_reward_dropped"]
    assert rules(GAE, **WHOLE, **CRITIC) == rules(GAE, real(Slot.SHAPE, "soft-overlong", on="right"), **WHOLE, **CRITIC) == []
    assert rules(GAE, real(Slot.SHAPE, "soft-overlong"), **WHOLE, **CRITIC) == ["shape_by_group"]


def speaking(name, *traits):
    """A verifier whose class says under which name it speaks."""
    cls = type("Speaking", (), {"name": name})
    return Method(
        name or "made", Slot.VERIFIER, "made", "cost", Faithfulness.OURS, traits=frozenset(traits), cls=cls
    ), Settings()


def test_a_credit_that_weighs_verifiers_names_those_that_will_speak():
    def found(weights, *verifiers):
        return [
            (f.rule, f.why, f.remedy)
            for f in check(Facts([real(Slot.CREDIT, "gdpo", weights=weights), *verifiers], 8, engine="test"))
        ]

    length, exact = speaking("length"), real(Slot.VERIFIER, "exact")
    assert found({"length": 0.5, "exact": 1.0}, length, exact) == found({}, exact) == []
    ((name, why, remedy),) = found({"lenght": 0.5, "exact": 1.0}, length, exact)
    assert name == "weights_of_nobody" and "'lenght'" in why and "length, exact" in why and remedy == "did you mean 'length'?"
    assert "all 0" in found({"length": 0.0, "exact": 0.0}, length, exact)[0][1]
    ((_, why, remedy),) = found({"length": 0.5, "exact": 1.0}, exact, length)
    assert "behind 'exact'" in why and remedy == "move 'length' before 'exact'"
    answer = real(Slot.VERIFIER, "answer", mode="whole")
    assert found({"answer": 0.5, "exact": 1.0}, exact, answer)[0][2] == "weigh one of 'exact' and 'answer' only"
    assert found({"answer": 0.0, "exact": 1.0}, exact, answer) == []
    assert found({"anything": 1.0}, speaking(None)) == []  # nobody knows what it calls itself; the first round will tell
    with pytest.raises(ConfigError, match=r"weights has 'exat'(?s:.*)did you mean 'exact'"):
        refuse(parse({"filter": {"credit": {"name": "gdpo", "weights": {"exat": 1.0}}}}))


def test_functions_speak_under_their_short_names_and_decide_unless_told_not_to():
    def made(*settings, **weights):
        verifiers = [{"name": f"function_cases:{name}", **more} for name, more in settings]
        recipe = parse({"filter": {"verifiers": verifiers, "credit": {"name": "gdpo", "weights": weights}}})
        return [f.why for f in check_recipe(recipe)]

    never = {"right_at": "never"}
    both = {"function_cases:says": 1.0, "function_cases:right": 1.0}
    assert made(("says", never), ("right", {}), **both) == []
    assert "behind 'function_cases:says'" in made(("says", {}), ("right", never), **both)[0]
    (finding,) = check_recipe(
        parse(
            {
                "filter": {
                    "verifiers": [{"name": "exact"}, {"name": "function_cases:says"}],
                    "credit": {"name": "gdpo", "weights": {"function_cases:says": 1.0}},
                }
            }
        )
    )
    assert finding.remedy == "move 'function_cases:says' before 'exact' and set right_at = \"never\" on it"
    assert "nothing of that name" in made(("says", never), right=1.0)[0]


def test_a_group_of_one_whose_only_reward_admission_would_drop():
    own, linear = made(Slot.CREDIT), real(Slot.TOPOLOGY, "linear")
    assert rules(own, k=1) == rules(own, linear, k=8) == ["one_reward_dropped"]
    assert rules(own, k=2) == rules(own, linear, admission_zero_variance=False) == []
    assert rules(own, made(Slot.AUGMENT, "injects", "handles: off-policy"), k=1) == []  # the injected answer is a second reward


def test_turn_rewards_twice():
    summed, turns = real(Slot.SHAPE, "turn-rewards"), [real(Slot.TOPOLOGY, "interactive"), real(Slot.ENVIRONMENT, "calculator")]
    assert rules(summed, *turns, real(Slot.CREDIT, "gigpo")) == ["turn_rewards_twice"]
    assert rules(summed, *turns, real(Slot.CREDIT, "gae", steps=1.0), **WHOLE, **CRITIC) == ["turn_rewards_twice"]
    assert rules(summed, *turns, GRPO) == rules(*turns, real(Slot.CREDIT, "gigpo")) == []
    assert rules(summed, *turns, GAE, **WHOLE, **CRITIC) == []


def test_turn_rewards_of_an_environment_are_step_scores():
    turns = [real(Slot.TOPOLOGY, "interactive"), real(Slot.ENVIRONMENT, "calculator")]
    assert rules(*turns, real(Slot.CREDIT, "gae", steps=1.0), **WHOLE, **CRITIC) == []
    assert rules(real(Slot.TOPOLOGY, "group"), real(Slot.CREDIT, "gae", steps=1.0), **WHOLE, **CRITIC) == [
        "steps_without_scorer"
    ]
