"""The composition check: what losses ask of credit, trainer and batch."""

from compose_cases import CRITIC, DPO, GAE, GRPO, PAIRS, RFT, SCORES, SFT, STORE, WHOLE, made, real, rules
from gfcr.registry import Slot
from gfcr.train.settings import LossSettings, TrainSettings
from gfcr.types import Normalise, Sampling


def test_a_constant_that_nothing_divides_by():
    assert rules(constant=64.0) == ["constant_of_nothing"]
    assert rules(constant=64.0, normalise=Normalise.CONSTANT) == []


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


def test_an_injection_into_the_mean_alone_beside_credit_that_reads_no_mean():
    mean_only = real(Slot.AUGMENT, "ar3po", option=2)
    assert rules(PAIRS, mean_only, STORE, **DPO, **SCORES) == ["injected_without_loss"]
    assert rules(PAIRS, real(Slot.AUGMENT, "ar3po"), STORE, **DPO, **SCORES) == rules(GRPO, mean_only, STORE, **SCORES) == []


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
