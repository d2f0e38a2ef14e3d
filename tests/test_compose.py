"""The composition check: one test per rule, with real methods where they exist and made ones where not."""

from pathlib import Path

import pytest

from gfcr.build import check_recipe, refuse
from gfcr.compose import RULES, Facts, check
from gfcr.errors import ConfigError
from gfcr.recipe import load, parse
from gfcr.registry import INDEX, Faithfulness, Method, Settings, Slot, find
from gfcr.train.settings import LossSettings, TrainSettings, ValueSettings
from gfcr.types import Normalise, Sampling

RECIPES = Path(__file__).parents[1] / "recipes"


def made(slot, *traits, needs=(), name="made"):
    return Method(name, slot, name, "cost", Faithfulness.OURS, needs=frozenset(needs), traits=frozenset(traits)), Settings()


def real(slot, name, **settings):
    found = find(slot, name)
    return found, found.settings(**settings)


def rules(*methods, k=8, **facts):
    return [f.rule for f in check(Facts(methods, k, engine="test", **facts))]


GRPO, DR = real(Slot.CREDIT, "grpo"), real(Slot.CREDIT, "dr-grpo")
INFORMATIVE = real(Slot.SELECT, "informative")
SCORES = {"engine_features": frozenset({"score"})}
STORE = real(Slot.STORE, "correct")


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


def test_injection_without_off_policy_handling():
    injecting = made(Slot.AUGMENT, "injects")
    assert rules(injecting) == ["injection_without_off_policy"]
    assert rules(injecting, made(Slot.OFF_POLICY, "weighs off-policy")) == []
    assert rules(real(Slot.AUGMENT, "ar3po"), STORE, **SCORES) == []


def test_injection_without_a_store():
    assert rules(real(Slot.AUGMENT, "ar3po"), **SCORES) == ["injection_without_store"]


def test_zero_variance_test_on_a_shaped_reward():
    testing, shaping = made(Slot.REFILL, "zero-variance on shaped reward"), made(Slot.SHAPE, "shapes reward")
    assert rules(testing, shaping) == ["zero_variance_on_shaped"]
    assert rules(testing) == rules(shaping, real(Slot.REFILL, "dynamic-sampling")) == []


def test_length_shaping_of_all_wrong_groups_under_std():
    shaping = made(Slot.SHAPE, "shapes length in all-wrong groups")
    assert rules(GRPO, shaping) == ["length_on_all_wrong"]
    assert rules(DR, shaping) == rules(GRPO, made(Slot.SHAPE, "shapes reward")) == []


@pytest.mark.parametrize("law", [Sampling(top_p=0.9), Sampling(top_k=5), Sampling(min_p=0.1), Sampling(banned=(3,))], ids=repr)
def test_truncated_sampling_needs_processed_log_probabilities(law):
    assert rules(sampling=law) == ["truncated_without_processed"]
    assert rules(sampling=law, engine_features=frozenset({"processed_logprobs"})) == []


def test_truncated_sampling_beside_importance_weights():
    processed = {"sampling": Sampling(top_p=0.9), "engine_features": frozenset({"processed_logprobs"})}
    assert rules(tis=True, **processed) == rules(ratio_base="behaviour", **processed) == ["truncated_with_importance"]


def test_old_answers_scored_again_under_a_truncated_law():
    scored = {"engine_features": frozenset({"processed_logprobs", "score"})}
    replay = (real(Slot.AUGMENT, "ar3po"), STORE)
    assert rules(*replay, sampling=Sampling(top_p=0.9), **scored) == ["truncated_injection"]
    assert rules(*replay, sampling=Sampling(temperature=0.7), **scored) == []


def test_a_constant_that_nothing_divides_by():
    assert rules(constant=64.0) == ["constant_of_nothing"]
    assert rules(constant=64.0, normalise=Normalise.CONSTANT) == []


def test_a_temperature_alone_truncates_nothing():
    assert rules(sampling=Sampling(temperature=0.7)) == []


@pytest.mark.parametrize("shape", ["soft-overlong", "kimi-length", "cosine-length"])
def test_length_rewards_of_all_wrong_groups_want_a_yes_and_no_std(shape):
    """The trap of length rewards, for every built-in one: as published it is refused, by default it cannot happen."""
    published = real(Slot.SHAPE, shape, on="all")
    assert rules(GRPO, published) == rules(real(Slot.CREDIT, "gdpo"), published)[:1] == ["length_on_all_wrong"]
    assert rules(DR, real(Slot.CREDIT_BATCH, "whiten"), published) == ["length_on_all_wrong"]
    assert rules(DR, published) == []
    assert rules(GRPO, real(Slot.SHAPE, shape)) == rules(GRPO, real(Slot.SHAPE, shape, on="right")) == []


PLUS = [real(Slot.CREDIT, "reinforce-pp"), real(Slot.CREDIT_BATCH, "whiten")]


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


def test_a_group_of_one_whose_only_reward_admission_would_drop():
    own, linear = made(Slot.CREDIT), real(Slot.TOPOLOGY, "linear")
    assert rules(own, k=1) == rules(own, linear, k=8) == ["one_reward_dropped"]
    assert rules(own, k=2) == rules(own, linear, admission_zero_variance=False) == []
    assert rules(own, made(Slot.AUGMENT, "injects", "handles: off-policy"), k=1) == []  # the injected answer is a second reward


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


GAE, PAIRS, RFT = real(Slot.CREDIT, "gae"), real(Slot.CREDIT, "pairs"), real(Slot.CREDIT, "rejection")
DPO, SFT = {"loss": LossSettings(kind="dpo")}, {"loss": LossSettings(kind="sft")}
CRITIC = {"train": TrainSettings(value=ValueSettings())}
WHOLE = {"admission_zero_variance": False}


def test_the_credit_feeds_the_loss():
    assert (
        rules(PAIRS) == rules(RFT) == rules(GRPO, **DPO) == rules(GRPO, **SFT) == rules(PAIRS, **SFT) == ["credit_against_loss"]
    )
    assert rules(PAIRS, **DPO) == rules(PAIRS, loss=LossSettings(kind="ipo")) == rules(RFT, **SFT) == []
    assert all(rules(GRPO, loss=LossSettings(kind=kind)) == [] for kind in ("ppo", "cispo", "gspo-token"))
    assert rules(real(Slot.CREDIT, "awr"), k=1, admission_zero_variance=False, **SFT) == ["group_of_one"]


def test_settings_of_the_trainer_against_the_loss():
    assert rules(PAIRS, train=TrainSettings(kl=0.1), **DPO) == ["loss_against_train"]
    assert rules(GRPO, train=TrainSettings(tis_cap=2.0), loss=LossSettings(kind="gspo-token")) == ["loss_against_train"]


def test_a_critic_and_rewards_for_it_belong_together():
    single = {"k": 1, "admission_zero_variance": False}
    assert rules(GAE, **single) == ["rewards_without_critic"]
    assert rules(GRPO, **CRITIC) == ["critic_without_rewards"]
    assert rules(GAE, **single, **CRITIC) == rules(GAE, loss=LossSettings(kind="gspo-token"), **WHOLE, **CRITIC) == []


def test_gspo_has_one_advantage_and_one_loss_per_answer():
    per_token = made(Slot.CREDIT, "per-token advantages")
    gspo = LossSettings(kind="gspo")
    assert rules(per_token, loss=gspo, normalise=Normalise.SEQUENCE_MEAN) == ["gspo_per_token"]
    assert rules(GRPO, loss=gspo) == ["gspo_by_tokens"]
    assert rules(GRPO, loss=gspo, normalise=Normalise.SEQUENCE_MEAN) == []
    assert rules(per_token, loss=LossSettings(kind="gspo-token")) == []


def test_pairs_need_two_answers():
    assert rules(PAIRS, k=1, admission_zero_variance=False, **DPO) == ["pairs_of_one"]


def test_methods_that_work_on_advantages_beside_credit_without_any():
    whitening, weighing = made(Slot.CREDIT_BATCH), made(Slot.OFF_POLICY)
    for credit, kind in ((PAIRS, DPO), (RFT, SFT)):
        assert rules(credit, whitening, **kind) == rules(credit, weighing, **kind) == ["advantages_that_are_not_there"]
    assert rules(GAE, whitening, **WHOLE, **CRITIC) == ["advantages_that_are_not_there"]
    assert rules(GAE, weighing, **WHOLE, **CRITIC) == []
    assert rules(GRPO, whitening) == rules(GRPO, weighing) == []


def test_truncated_sampling_beside_a_reference_of_behaviour():
    processed = {"sampling": Sampling(top_k=5), "engine_features": frozenset({"processed_logprobs"})}
    assert rules(PAIRS, loss=LossSettings(kind="dpo", pair_reference="behaviour"), **processed) == ["truncated_reference"]
    assert rules(PAIRS, **DPO, **processed) == []


def test_an_injection_into_the_mean_alone_beside_credit_that_reads_no_mean():
    mean_only = real(Slot.AUGMENT, "ar3po", option=2)
    assert rules(PAIRS, mean_only, STORE, **DPO, **SCORES) == ["injected_without_loss"]
    assert rules(PAIRS, real(Slot.AUGMENT, "ar3po"), STORE, **DPO, **SCORES) == rules(GRPO, mean_only, STORE, **SCORES) == []


def test_every_rule_is_under_test_here():
    seen = {
        rule
        for name, function in globals().items()
        if name.startswith("test_") and function.__code__.co_consts
        for rule in map(str, _strings(function.__code__))
        if rule in _rule_names()
    }
    assert seen == _rule_names()


def _rule_names():
    """Rule ids as findings name them."""
    names = {constant for r in RULES for constant in r.__code__.co_consts if isinstance(constant, str)}
    return {
        n for n in names if n.isidentifier() and "_" in n and n not in {"engine_features", "max_waves", "accept_unverified"}
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


REAL_LIFE = {
    "plain GRPO": {},
    "Dr.GRPO": {"filter": {"credit": {"name": "dr-grpo"}}, "loss": {"normalise": "constant"}},
    "RLOO": {"filter": {"credit": {"name": "rloo"}}, "loss": {"normalise": "sequence-mean"}},
    "DAPO": {"control": {"refill": {"name": "dynamic-sampling"}}, "filter": {"shape": {"name": "soft-overlong"}}},
    "overlong filtering": {"filter": {"admission": {"overlong": "mask"}}},
    "Kimi k1.5's length penalty": {"filter": {"credit": {"name": "dr-grpo"}, "shape": {"name": "kimi-length", "on": "all"}}},
    "REINFORCE++ on single answers": {
        "generate": {"topology": {"name": "linear"}},
        "filter": {
            "credit": {"name": "reinforce-pp"},
            "credit_batch": {"name": "whiten"},
            "admission": {"drop_zero_variance": False},
        },
    },
    "GDPO": {
        "filter": {
            "credit": {"name": "gdpo"},
            "credit_batch": {"name": "whiten", "over": "answers", "eps": 1e-4, "eps_on": "std"},
        }
    },
    "TreePO": {"filter": {"credit": {"name": "treepo"}, "credit_batch": {"name": "whiten"}}},
    "XRPO's sharpening, evidence, whitening": {
        "filter": {"credit_batch": [{"name": "xrpo-sharpening"}, {"name": "evidence"}, {"name": "whiten"}]}
    },
    "noise that differs by verifier": {
        "filter": {
            "credit": {"name": "dr-grpo"},
            "shape": {"name": "noise-correction", "by": {"a": {"false_negative": 0.4}}},
            "verifiers": [{"name": "noisy", "label": "a", "share": 0.5, "false_negative": 0.4}, {"name": "exact"}],
        }
    },
    "pass@k with MoPPS": {"control": {"select": {"name": "mopps"}}, "filter": {"credit": {"name": "pass-at-k"}}},
    "AR3PO, both halves": {
        "control": {"allocate": {"name": "staged"}},
        "replay": {"store": [{"name": "correct"}], "augment": [{"name": "ar3po"}]},
    },
    "informative and greedy on one posterior": {"control": {"select": {"name": "informative"}, "allocate": {"name": "greedy"}}},
    "truncated importance sampling": {"train": {"tis_cap": 2.0}},
    "bypass": {"train": {"ratio_base": "behaviour"}},
    "top-p on the embedded engine": {"generate": {"sampling": {"top_p": 0.9}}},
}


@pytest.mark.parametrize("name", REAL_LIFE)
def test_recipes_of_real_life_compose(name):
    assert check_recipe(parse(REAL_LIFE[name])) == []


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_recipes_compose(path):
    assert check_recipe(load(path)) == []


@pytest.mark.parametrize(
    ("recipe", "rule"),
    [
        ({"budget": {"tokens": None}}, "no_budget"),
        ({"budget": {"tokens": 100}}, "budget_too_small"),
        ({"control": {"groups": 4, "min_groups": 5}}, "min_groups"),
        ({"generate": {"topology": {"name": "group", "k": 1}}}, "group_of_one"),
        (
            {
                "control": {
                    "select": {"name": "informative"},
                    "refill": {"name": "dynamic-sampling"},
                    "allocate": {"name": "staged"},
                }
            },
            "refill_with_early_stop",
        ),
    ],
)
def test_recipes_that_cannot_work_are_found_before_anything_is_loaded(recipe, rule):
    assert [f.rule for f in check_recipe(parse(recipe))] == [rule]


def test_metadata_of_every_method_is_complete():
    for slot, names in INDEX.items():
        for name in names:
            found = find(slot, name)
            assert (found.name, found.slot) == (name, slot)
            assert found.title
            assert found.criterion in {"reliability", "coverage", "cost"}
            assert found.cls is not None and found.cls.__doc__
            assert all(field.description for field in found.settings.model_fields.values()), name


def test_packed_rows():
    packed = {"packed": True}
    assert rules(GRPO, **packed) == []
    assert "packed_rows" in rules(real(Slot.CREDIT, "pairs"), loss=LossSettings(kind="dpo"), **packed)
    assert "packed_rows" in rules(real(Slot.CREDIT, "rejection"), loss=LossSettings(kind="sft"), **packed)
    assert "packed_rows" in rules(GRPO, loss=LossSettings(kind="gspo"), **packed)
    averaged = {"train": TrainSettings(kl=0.1), "normalise": Normalise.SEQUENCE_MEAN}
    assert rules(GRPO, **averaged, **packed) == ["packed_rows"]
    assert rules(GRPO, **averaged) == []


def test_greedy_samples():
    assert "greedy_samples" in rules(GRPO, sampling=Sampling(temperature=0))
