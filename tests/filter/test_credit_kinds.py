"""Credit that is no advantage, from recipe to `Batch`: cross-entropy weights, preference pairs, rewards for a critic."""

import json
from pathlib import Path

import numpy as np
import pytest

from gfcr.context import Build
from gfcr.filter.assemble import build_batch
from gfcr.filter.credit.gae import GAE
from gfcr.filter.credit.pairs import PreferencePairs
from gfcr.filter.credit.supervised import AdvantageWeighted, Rejection
from gfcr.run.metrics import step_metrics
from gfcr.types import Credit, Drop, LossRole, Normalise, Preference, SegmentKind, StepScore
from group_cases import action, group, member, plain, rollout
from lifecycle_cases import batch_of, lab

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "labels.json").read_text())
KEEP = {"drop_zero_variance": False}
BUILD = Build(0, (), 1, 4, 16)


def drive(answers, credit, **more):
    """A driven round of one group that gives these answers, and its members in the order they were asked for."""
    sections = {"filter": {"credit": credit, "admission": KEEP}} | more
    round_ = lab(lambda prompt, nth: f"={answers[nth]}", k=len(answers), **sections).drive()
    return round_, list(next(iter(round_.groups.values())).members.values())


@pytest.mark.parametrize("case", GOLDEN["cross_entropy"], ids=lambda c: c["name"])
def test_cross_entropy_weights_through_the_recipe_equal_the_golden_vector(case):
    round_, members = drive(case["answers"], case["credit"], loss={"kind": "sft"})
    batch = batch_of(round_)
    order = [m.rollout.id for m in members]
    found = {}
    for row, name in enumerate(batch.rollout_ids):
        span = slice(batch.offsets[row], batch.offsets[row + 1])
        own = batch.versions[span] >= 0
        assert not batch.ce_weights[span][~own].any()  # never on the prompt
        (weight,) = set(batch.ce_weights[span][own].tolist())
        found[str(order.index(name))] = weight
    assert found == pytest.approx(case["weights"], rel=1e-4)
    assert not batch.rl_mask.any() and batch.preferences == ()
    assert {m.drop for m in members if m.rollout.id not in batch.rollout_ids} <= {Drop.NO_LOSS}


@pytest.mark.parametrize("case", GOLDEN["pairs"], ids=lambda c: c["name"])
def test_pairs_through_the_recipe_equal_the_golden_vector(case):
    round_, members = drive(case["answers"], case["credit"], loss={"kind": "dpo"})
    batch = batch_of(round_)
    order = {m.rollout.id: i for i, m in enumerate(members)}
    found = [[order[batch.rollout_ids[p.chosen]], order[batch.rollout_ids[p.rejected]]] for p in batch.preferences]
    assert found == case["pairs"]
    used = {i for pair in found for i in pair}
    assert {order[name] for name in batch.rollout_ids} == used
    assert [m.drop for i, m in enumerate(members) if i not in used] == [Drop.NO_LOSS] * (len(members) - len(used))
    assert not batch.rl_mask.any() and not batch.ce_weights.any()
    if used:
        assert np.array_equal(batch.pair_mask, batch.versions >= 0)  # the answers whole, the prompts not


def test_chosen_answers_may_carry_a_cross_entropy_weight():
    round_, _ = drive(["#00", "#01", "#02", "#03"], {"name": "pairs", "nll": 0.2}, loss={"kind": "dpo"})
    batch = batch_of(round_)
    row = batch.row_of_token()
    chosen = {p.chosen for p in batch.preferences}
    assert set(batch.ce_weights[batch.pair_mask & np.isin(row, list(chosen))].tolist()) == {np.float32(0.2)}
    assert not batch.ce_weights[~np.isin(row, list(chosen))].any()


def test_the_reward_lies_on_the_last_own_token_of_single_answers():
    run = lab(
        lambda prompt, nth: "r" if prompt.endswith("0") else "w",
        n_tasks=2,
        generate={"topology": {"name": "linear"}},
        filter={"credit": {"name": "gae"}, "admission": KEEP},
        train={"value": {}},
    )
    batch = batch_of(run.drive())
    assert sorted(batch.rewards["exact"]) == [0.0, 1.0] and batch.rl_mask.any() and np.isnan(batch.advantages).all()
    for row in range(len(batch)):
        span = slice(batch.offsets[row], batch.offsets[row + 1])
        own, rewards = batch.rl_mask[span], batch.token_rewards[span]
        assert np.isnan(rewards[~own]).all() and rewards[own][-1] == batch.rewards["exact"][row]
        assert not rewards[own][:-1].any()


def critic_group(*segments, reward=1.0, steps=(), train_path=None):
    made = group([])
    one = member("r", reward, True)
    one.rollout = rollout("r", *segments, train_path=train_path)
    one.signals = type(one.signals)(one.signals.verdicts, "v", {}, reward, steps=tuple(steps))
    made.members["r"] = one
    return made, one


def rewards_of(made, one, **settings):
    found = GAE(GAE.Settings(**settings), BUILD).credit(made, [one])["r"]
    return None if found is None else found.rewards.tolist()


def test_rewards_skip_observations_and_an_answer_without_tokens_leaves_the_loss():
    """verl#6476: an empty generation must not put its reward on somebody else's last token."""
    made, one = critic_group(plain(SegmentKind.PROMPT, 2), action(2), plain(SegmentKind.OBSERVATION, 3), reward=0.5)
    assert rewards_of(made, one) == [0, 0, 0, 0.5, 0, 0, 0]
    made, one = critic_group(plain(SegmentKind.PROMPT, 2), action(0))
    assert rewards_of(made, one) is None
    one.credit = None
    assert len(build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0)) == 0


def test_step_scores_become_rewards_at_their_ends():
    steps = [StepScore(2, 4, "step", 1.0), StepScore(4, 6, "step", None), StepScore(6, 9, "step", -1.0)]
    parts = (plain(SegmentKind.PROMPT, 2), action(7))
    made, one = critic_group(*parts, reward=1.0, steps=steps)
    assert rewards_of(made, one, steps=0.5) == [0, 0, 0, 0.5, 0, 0, 0, 0, 0.5]  # 1 - .5 on the last
    assert rewards_of(made, one) == [0] * 8 + [1.0]


def test_step_scores_follow_their_tokens_into_another_context():
    """Scores have offsets of the sampled path; the hint is gone from the trained one."""
    made, one = critic_group(
        plain(SegmentKind.PROMPT, 2), plain(SegmentKind.GUIDANCE, 3), action(4), steps=[StepScore(5, 7, "step", 1.0)]
    )
    path = one.rollout.path
    one.rollout = type(one.rollout)("r", "t", path, one.rollout.stop, train_path=(path[0], path[2]))
    assert rewards_of(made, one, steps=1.0) == [0, 0, 0, 1.0, 0, 1.0]


def test_pairs_take_graded_rewards_by_their_difference():
    made = group([0.1, 0.9, 0.5, 0.45])
    for i, one in enumerate(made.members.values()):
        one.rollout = rollout(one.rollout.id, plain(SegmentKind.PROMPT, 2), action(3 + i))
    credit = PreferencePairs(PreferencePairs.Settings(margin=0.1, most=3), BUILD)
    names = [(a.rollout.id, b.rollout.id) for a, b in credit.pairs(list(made.members.values()))]
    assert names == [("g1", "g0"), ("g1", "g3"), ("g2", "g0")]  # g2 - g3 = .05 is within the margin


def test_members_outside_the_loss_are_in_no_pair_and_not_imitated():
    made = group([1.0, 1.0, 0.0], binary=True)
    for i, one in enumerate(made.members.values()):
        one.rollout = rollout(one.rollout.id, plain(SegmentKind.PROMPT, 2), action(3 + i))
    made.members["g0"].in_loss = False
    PreferencePairs(PreferencePairs.Settings(), BUILD).credit(made, list(made.members.values()))
    assert [(p.chosen, p.rejected) for p in made.preferences] == [("g1", "g2")]
    kept = Rejection(Rejection.Settings(), BUILD).credit(made, list(made.members.values()))
    assert [name for name, credit in kept.items() if credit] == ["g1"]


def test_an_unscorable_answer_is_in_no_pair_and_weighs_nothing():
    for credit, kind in (({"name": "pairs"}, "dpo"), ({"name": "rejection", "keep": "best"}, "sft")):
        round_ = lab(
            "rwf", k=3, filter={"credit": credit, "admission": KEEP}, loss={"kind": kind}, control={"retries": 0}
        ).drive()
        batch = batch_of(round_)
        assert len(batch) == (2 if kind == "dpo" else 1)


def test_a_demonstration_trained_by_cross_entropy_may_be_the_chosen_one():
    made = group([])
    for name, segment in (("demo", plain(SegmentKind.DEMO, 3, role=LossRole.CE)), ("own", action(2))):
        one = member(name, 1.0, True)
        one.rollout = rollout(name, plain(SegmentKind.PROMPT, 2), segment)
        one.credit = Credit(None, ce_weight=0.5 * (name == "demo"))
        made.members[name] = one
    made.preferences = [Preference("demo", "own")]
    batch = build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0)
    assert batch.pair_mask.tolist() == [False, False, True, True, True, False, False, True, True]
    assert batch.ce_weights.tolist() == [0, 0, 0.5, 0.5, 0.5, 0, 0, 0, 0]


def test_an_advantage_keeps_cross_entropy_off_the_policys_own_tokens():
    """`ce_weight` beside an advantage is for CE tokens (hints, demonstrations) only."""
    made = group([])
    one = member("r", 1.0, True)
    one.rollout = rollout("r", plain(SegmentKind.PROMPT, 1), plain(SegmentKind.DEMO, 2, role=LossRole.CE), action(2))
    one.credit = Credit(1.0, ce_weight=0.3)
    made.members["r"] = one
    batch = build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0)
    assert (
        batch.ce_weights.tolist() == pytest.approx([0, 0.3, 0.3, 0, 0]) and batch.rl_mask.tolist() == [False] * 3 + [True] * 2
    )


@pytest.mark.parametrize("credit", [Credit(None), Credit(None, rewards=np.ones(5, np.float32)), Credit(0.0, ce_weight=1.0)])
def test_packed_rows_refuse_what_they_cannot_carry(credit):
    made = group([1.0, 0.0])
    for one in made.members.values():
        one.credit = credit
    with pytest.raises(ValueError, match="one row per member"):
        build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0, packed=True)


def test_answers_nobody_trains_on_count_as_discarded_and_the_group_as_trained():
    round_, members = drive(["#00", "#01", "#02", "#03"], {"name": "rejection"}, loss={"kind": "sft"})
    assert [m.in_loss for m in members] == [True, False, False, False]
    assert step_metrics(list(round_.groups.values()), round_.decisions)["groups_trained"] == 1


@pytest.mark.parametrize("rewards", [[0.1] * 3, [0.2] * 8, [0.35] * 7], ids=str)
def test_float_noise_makes_no_pair_and_no_weight(rewards):
    """NousResearch/atropos#481, radixark/miles#701: equal rewards are equal, whatever their mean rounds to."""
    made = group(rewards)
    for i, one in enumerate(made.members.values()):
        one.rollout = rollout(one.rollout.id, plain(SegmentKind.PROMPT, 2), action(3 + i))
        one.signals = type(one.signals)(one.signals.verdicts, "v", {}, rewards[i] + (1e-9 if i == 1 else 0.0))
    members = list(made.members.values())
    assert PreferencePairs(PreferencePairs.Settings(), BUILD).pairs(members) == []
    weights = AdvantageWeighted(AdvantageWeighted.Settings(beta=0.01), BUILD).credit(made, members)
    assert {round(credit.ce_weight, 6) for credit in weights.values()} == {1.0}
