"""One hand-built example of every shape of data a rollout can have, into a `Batch` with the right masks (invariant 2)."""

import numpy as np
import pytest

from gfcr.filter.assemble import build_batch, rescored, score_item
from gfcr.types import (
    Credit,
    LossRole,
    Message,
    Normalise,
    Part,
    PartKind,
    Preference,
    Role,
    Sampling,
    Segment,
    SegmentKind,
    Signals,
    Task,
    TokenSource,
)
from group_cases import LAW, action, group, member, plain, rollout, signals

P = SegmentKind.PROMPT


def batch_with(*members, of=None, preferences=(), packed=False, normalise=Normalise.TOKEN_MEAN):
    made = group([], of=of)
    made.members = {m.rollout.id: m for m in members}
    made.preferences = list(preferences)
    return build_batch([made], normalise, None, 5, 9, packed=packed)


def credited(*segments, advantage=1.0, name="r", train_path=None, **credit):
    made = member(name, 1.0, True)
    made.rollout = rollout(name, *segments, train_path=train_path)
    made.credit = Credit(advantage, **credit)
    return made


def mask(batch, row=0):
    return "".join("#" if m else "." for m in batch.rl_mask[batch.offsets[row] : batch.offsets[row + 1]])


def test_several_turns_with_a_tool_and_forced_tokens():
    batch = batch_with(
        credited(
            plain(P, 3),
            plain(SegmentKind.GUIDANCE, 2),
            action(2),
            plain(SegmentKind.OBSERVATION, 3, turn=0, author="tool:search"),
            plain(SegmentKind.FORCED, 1),
            action(4, turn=1),
            advantage=-0.5,
        )
    )
    assert mask(batch) == "....." + "##" + "...." + "####"
    assert np.isnan(batch.advantages[~batch.rl_mask]).all()
    assert set(batch.advantages[batch.rl_mask]) == {-0.5}
    assert batch.token_weights()[batch.rl_mask] == pytest.approx([1 / 6] * 6)
    assert not batch.ce_weights.any()


def test_several_agents_in_one_rollout_may_differ_in_loss():
    """The other policy's tokens are actions of the rollout without a loss of ours."""
    batch = batch_with(
        credited(
            plain(P, 1),
            action(2, author="planner"),
            action(3, author="solver", role=LossRole.NONE),
            action(1, author="planner"),
        )
    )
    assert mask(batch) == ".##...#"
    assert not np.isnan(batch.behaviour[1:]).any()


def test_several_weight_versions_in_one_rollout():
    batch = batch_with(credited(plain(P, 1), action(2, version=4), action(2, version=5)))
    assert batch.versions.tolist() == [-1, 4, 4, 5, 5]
    assert batch.version == 9


def test_per_token_advantages_land_on_their_tokens():
    values = np.array([9, 1, 2, 9, 3], np.float32)
    batch = batch_with(credited(plain(P, 1), action(2), plain(SegmentKind.OBSERVATION, 1), action(1), advantage=values))
    assert batch.advantages[batch.rl_mask].tolist() == [1, 2, 3]


def test_an_injected_answer_trains_on_recomputed_log_probabilities_only():
    made = credited(plain(P, 2), action(3))
    made.role = Role.INJECTED
    item = score_item(made.rollout)
    assert (item.spans, item.ids.tolist()) == (((2, 5, LAW),), [0, 1, 10, 11, 12])
    made.rollout = rescored(made.rollout, np.array([np.nan, np.nan, -1, -2, -3], np.float32))
    batch = batch_with(made)
    assert batch.behaviour[2:].tolist() == batch.proximal[2:].tolist() == [-1, -2, -3]
    assert np.isnan(batch.behaviour[:2]).all()


def test_a_guided_answer_is_trained_without_its_hint_and_keeps_no_log_probability_of_the_other_context():
    whole = rollout("r", plain(P, 2), plain(SegmentKind.GUIDANCE, 3), action(4))
    made = credited()
    made.rollout = type(whole)("r", "t", whole.path, whole.stop, train_path=(whole.path[0], whole.path[2]))
    batch = batch_with(made)
    assert mask(batch) == "..####"
    assert np.isnan(batch.behaviour).all()
    assert score_item(made.rollout).spans == ((2, 6, LAW),)
    made.rollout = rescored(made.rollout, np.array([np.nan] * 2 + [-1] * 4, np.float32))
    assert batch_with(made).behaviour[2:].tolist() == [-1] * 4


def test_a_teachers_demonstration_may_carry_a_cross_entropy_or_an_rl_loss():
    ce = Segment(SegmentKind.DEMO, [5, 6], role=LossRole.CE, author="teacher")
    rl = Segment(SegmentKind.DEMO, [5, 6], role=LossRole.RL, author="teacher")
    batch = batch_with(credited(plain(P, 1), ce, name="a", ce_weight=0.5), credited(plain(P, 1), rl, name="b"))
    assert (mask(batch, 0), mask(batch, 1)) == ("...", ".##")
    assert batch.ce_weights.tolist() == [0, 0.5, 0.5, 0, 0, 0]
    assert batch.token_weights(ce=True).tolist() == [0, 0.5, 0.5, 0, 0, 0]
    assert np.isnan(batch.behaviour).all()


@pytest.mark.parametrize("kind", [P, SegmentKind.OBSERVATION, SegmentKind.GUIDANCE, SegmentKind.FORCED])
@pytest.mark.parametrize("role", [LossRole.RL, LossRole.CE])
def test_no_other_kind_of_token_can_carry_a_loss(kind, role):
    with pytest.raises(ValueError, match="loss needs ACTION"):
        Segment(kind, [1, 2], role=role)


def test_media_parts_of_the_prompt_are_named_per_row_and_follow_it():
    picture = Part(PartKind.IMAGE, uri="file:a.png", sha256="00")
    task = Task("t", (Message("user", (Part(PartKind.TEXT, "what is"), picture, Part(PartKind.VIDEO, uri="file:b.mp4"))),))
    batch = batch_with(credited(name="a"), credited(name="b"), of=task)
    assert batch.media == {0: ("file:a.png", "file:b.mp4"), 1: ("file:a.png", "file:b.mp4")}
    assert batch.rows([1]).media == {0: ("file:a.png", "file:b.mp4")}


def test_several_rewards_stand_beside_each_row_and_an_abstention_is_not_zero():
    one, two = credited(name="a"), credited(name="b")
    one.signals = Signals(signals(1.0).verdicts, "v", {"correct": 1.0, "format": 0.5}, 1.5)
    two.signals = Signals(signals(1.0).verdicts, "v", {"correct": 0.0, "format": None}, 0.0)
    batch = batch_with(one, two)
    assert batch.rewards["correct"].tolist() == [1.0, 0.0]
    assert batch.rewards["format"][0] == 0.5
    assert np.isnan(batch.rewards["format"][1])


def test_preference_labels_name_rows_and_leave_with_a_missing_row():
    out = credited(name="c")
    out.in_loss = False
    pairs = [Preference("b", "a", 0.5), Preference("c", "a")]
    batch = batch_with(credited(name="a"), credited(name="b"), out, preferences=pairs)
    assert [(p.chosen, p.rejected, p.weight) for p in batch.preferences] == [(1, 0, 0.5)]
    assert [(p.chosen, p.rejected) for p in batch.rows([1, 0]).preferences] == [(0, 1)]
    assert batch.rows([1]).preferences == ()


def test_groups_are_told_apart_by_id_though_the_task_is_the_same():
    first, second = group([1, 0], "a"), group([1, 0], "b")
    for made in (first, second):
        for one in made.members.values():
            one.credit = Credit(1.0)
    batch = build_batch([first, second], Normalise.TOKEN_MEAN, None, 0, 0)
    assert first.task.id == second.task.id
    assert batch.groups.tolist() == [0, 0, 1, 1]
    assert batch.group_ids == ("a", "b")


def test_temperature_and_tracks_of_each_segment_reach_the_batch():
    warm = Segment(
        SegmentKind.ACTION,
        [1, 2],
        [-1, -1],
        sampling=Sampling(temperature=0.7),
        role=LossRole.RL,
        source=TokenSource.SAMPLED,
        tracks={"proximal": [-2, -2], "reference": [-3, -3]},
    )
    batch = batch_with(credited(plain(P, 1), warm))
    assert batch.temperature[1:] == pytest.approx([0.7, 0.7])
    assert (batch.behaviour[1:].tolist(), batch.proximal[1:].tolist(), batch.reference[1:].tolist()) == (
        [-1] * 2,
        [-2] * 2,
        [-3] * 2,
    )


def test_a_row_without_loss_tokens_counts_in_no_denominator():
    empty = credited(plain(P, 4), name="a")
    batch = batch_with(empty, credited(plain(P, 1), action(2), name="b"), normalise=Normalise.SEQUENCE_MEAN)
    assert batch.token_weights()[batch.rl_mask].tolist() == [0.5, 0.5]


def test_a_batch_refuses_arrays_that_do_not_fit():
    from dataclasses import replace

    batch = batch_with(credited())
    with pytest.raises(ValueError, match="advantages has 1 entries"):
        replace(batch, advantages=np.zeros(1, np.float32))
