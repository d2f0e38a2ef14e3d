"""Credit and loss weights from recipe to `Batch`, against published vectors."""

import json
from pathlib import Path

import numpy as np
import pytest

from gfcr.registry import INDEX, Slot
from lifecycle_cases import LENGTHS, batch_of, lab, row_advantages

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "credit.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda c: c["name"])
def test_advantages_through_the_recipe_equal_the_golden_vector(case):
    run = lab(case["answers"], k=len(case["answers"]), filter={"credit": case["credit"], **case.get("filter", {})})
    batch = batch_of(run.drive())
    assert row_advantages(batch) == pytest.approx(case["advantages"], abs=case.get("tolerance", GOLDEN["tolerance"]))


@pytest.mark.parametrize("case", GOLDEN["gdpo"]["cases"], ids=lambda c: c["name"])
def test_several_rewards_through_the_recipe_equal_the_golden_vector(case, monkeypatch):
    monkeypatch.setitem(INDEX[Slot.VERIFIER], "traced", "lifecycle_methods:Traced")
    said = {(1, 1): "=a+00#00", (1, 0): "=#00", (0, 0): "=#10"}
    run = lab(
        lambda prompt, nth: said[tuple(case["answers"][nth])],
        k=len(case["answers"]),
        filter={
            "verifiers": [{"name": "traced"}, {"name": "exact"}],
            "credit": {"name": "gdpo", **case["credit"]},
            **({"credit_batch": case["whiten"]} if "whiten" in case else {}),
        },
    )
    assert row_advantages(batch_of(run.drive())) == pytest.approx(case["advantages"], abs=1e-4)


@pytest.mark.parametrize("case", GOLDEN["weights"], ids=lambda c: c["name"])
def test_token_weights_through_the_recipe_equal_the_golden_vector(case):
    run = lab(case["answers"], loss=case["loss"])
    batch = batch_of(run.drive())
    weights = batch.token_weights()
    for row, (letter, expected) in enumerate(zip(case["answers"], case["weights"])):
        span = slice(batch.offsets[row], batch.offsets[row + 1])
        assert weights[span][batch.rl_mask[span]] == pytest.approx([expected] * LENGTHS[letter])
        assert not weights[span][~batch.rl_mask[span]].any()


def test_masks_cover_exactly_the_answer_and_its_end_token():
    batch = batch_of(lab("rw", k=2).drive())
    prompt = 6  # bos and `a+?00`
    for row, letter in enumerate("rw"):
        span = slice(batch.offsets[row], batch.offsets[row + 1])
        assert batch.rl_mask[span].tolist() == [False] * prompt + [True] * LENGTHS[letter]
        assert np.isnan(batch.advantages[span][:prompt]).all()
        assert np.isnan(batch.behaviour[span][:prompt]).all()
        assert batch.behaviour[span][prompt:] == pytest.approx(-0.1 * np.arange(1, LENGTHS[letter] + 1))
        assert batch.versions[span].tolist() == [-1] * prompt + [3] * LENGTHS[letter]
        assert batch.temperature[span][prompt:].tolist() == [1.0] * LENGTHS[letter]
    assert not batch.ce_weights.any()


def test_an_answer_that_the_gate_refuses_is_a_wrong_answer_in_the_baseline():
    batch = batch_of(lab("ri", k=2, filter={"gates": [{"name": "format"}], "credit": {"name": "dr-grpo"}}).drive())
    assert row_advantages(batch) == [0.5, -0.5]


def test_invalid_reward_is_a_setting():
    run = lab(
        "ri", k=2, filter={"gates": [{"name": "format"}], "credit": {"name": "dr-grpo"}, "admission": {"invalid_reward": -1.0}}
    )
    assert row_advantages(batch_of(run.drive())) == [1.0, -1.0]


def test_overlong_masking_leaves_baseline_loss_and_denominator():
    run = lab(
        "rwwt", filter={"credit": {"name": "dr-grpo"}, "admission": {"overlong": "mask"}}, loss={"normalise": "sequence-mean"}
    )
    batch = batch_of(run.drive())
    assert row_advantages(batch) == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert batch.token_weights()[batch.rl_mask].tolist() == pytest.approx([1 / 24] * 8 + [1 / 12] * 8)


def test_without_overlong_masking_a_cut_answer_is_wrong_and_trained():
    batch = batch_of(lab("rwwt", filter={"credit": {"name": "dr-grpo"}}).drive())
    assert row_advantages(batch) == pytest.approx([0.75, -0.25, -0.25, -0.25])
    assert int(batch.lengths[3]) == 6 + 16


def test_a_batch_whose_answers_are_all_masked_has_no_weights_and_no_division_by_zero():
    round_ = lab("tttt", filter={"admission": {"overlong": "mask"}}, loss={"normalise": "sequence-mean"}).drive()
    batch = batch_of(round_)
    assert len(batch) == 0
    assert batch.token_weights().shape == (0,)


def test_linear_topology_is_refused_with_a_group_baseline():
    from gfcr.build import check_recipe
    from gfcr.recipe import parse

    recipe = parse({"generate": {"topology": {"name": "linear"}}})
    assert recipe.k == 1
    assert [f.rule for f in check_recipe(recipe)] == ["group_of_one"]


def test_linear_topology_with_a_credit_of_its_own_trains_on_single_answers(monkeypatch):
    monkeypatch.setitem(INDEX[Slot.CREDIT], "raw", "lifecycle_methods:RawReward")
    run = lab(
        "r",
        n_tasks=2,
        generate={"topology": {"name": "linear"}},
        filter={"credit": {"name": "raw"}, "admission": {"drop_zero_variance": False}},
    )
    assert row_advantages(batch_of(run.drive())) == [1.0, 1.0]
