"""Credit from steps, turns and evidence, from recipe to `Batch` where a topology exists."""

import numpy as np
import pytest

from gfcr.context import Build, View
from gfcr.errors import ConfigError
from gfcr.filter.admission import admit
from gfcr.filter.assemble import build_batch
from gfcr.filter.credit.adjust import Evidence
from gfcr.filter.credit.gigpo import GiGPO, share_alone
from gfcr.filter.credit.process import ProcessGRPO
from gfcr.filter.shape.steps import StepScoreShape, TurnRewards
from gfcr.filter.steps import aggregate, first_wrong, has_wrong_step, on_trained_path, process_f1, scored_steps
from gfcr.filter.turns import own_turns
from gfcr.registry import INDEX, Slot
from gfcr.run.metrics import step_metrics
from gfcr.types import Credit, Drop, LossRole, Normalise, Rollout, SegmentKind, StepScore, StopReason
from group_cases import action, group, member, plain, rollout
from interactive_cases import ONE_LINE, RIGHT_AND_LATE, turns
from lifecycle_cases import batch_of, lab

BUILD = Build(0, (), 1, 4, 16)
STEPS = {"steps": [{"name": "program-steps"}]}
KEEP = {"admission": {"drop_zero_variance": False}}


def rows(batch):
    """Advantages of each row's RL tokens."""
    spans = [slice(batch.offsets[i], batch.offsets[i + 1]) for i in range(len(batch))]
    return [batch.advantages[s][batch.rl_mask[s]].tolist() for s in spans]


def drive(answers, verifier=None, **filters):
    run = lab(
        lambda prompt, nth: f"={answers[nth]}",
        k=len(answers),
        filter={**KEEP, **({"verifiers": [{"name": verifier}]} if verifier else {}), **filters},
    )
    return run.drive()


def with_steps(key, reward, *values, kind="step", length=2, **more):
    """A member with one segment of `length` tokens per step."""
    one = member(key, reward, bool(reward), **more)
    one.rollout = rollout(key, plain(SegmentKind.PROMPT, 2), action(length * len(values)))
    steps = tuple(StepScore(2 + length * i, 2 + length * (i + 1), kind, v) for i, v in enumerate(values))
    one.signals = type(one.signals)(one.signals.verdicts, "v", one.signals.rewards, reward, steps=steps)
    return one


def of(*members):
    made = group([])
    made.members = {m.rollout.id: m for m in members}
    return made


# ---- process supervision ---------------------------------------------------------------------------------------


def test_process_supervision_through_the_recipe():
    """The trace lines are right (1) and wrong (0): +1 and -1 up to the end of the line, 0 after the last step."""
    batch = batch_of(drive(["a+00#00", "a+11#11"], credit={"name": "grpo-process", "eps": 0}, **STEPS))
    assert rows(batch) == [[1.0] * 4 + [0.0] * 4, [-1.0] * 4 + [0.0] * 4]


def test_process_supervision_sums_from_the_step_on():
    """Steps 1, 0 and 0, 1, 1: mean .6, std sqrt(.24), so 1 is .8165 and 0 is -1.2247."""
    made = of(with_steps("a", 1.0, 1.0, 0.0), with_steps("b", 0.0, 0.0, 1.0, 1.0))
    found = ProcessGRPO(ProcessGRPO.Settings(eps=0), BUILD).credit(made, list(made.members.values()))
    right, wrong = (1 - 0.6) / np.sqrt(0.24), -0.6 / np.sqrt(0.24)
    assert found["a"].advantage == pytest.approx([0, 0, *[right + wrong] * 2, *[wrong] * 2], abs=1e-6)
    assert found["b"].advantage == pytest.approx([0, 0, *[wrong + 2 * right] * 2, *[2 * right] * 2, *[right] * 2], abs=1e-6)


def test_an_abstaining_step_is_in_no_statistic_and_adds_nothing():
    with_none = of(with_steps("a", 1.0, 1.0, None), with_steps("b", 0.0, 0.0, 1.0))
    without = of(with_steps("a", 1.0, 1.0), with_steps("b", 0.0, 0.0, 1.0))
    credit = ProcessGRPO(ProcessGRPO.Settings(), BUILD)
    one, two = (credit.credit(g, list(g.members.values())) for g in (with_none, without))
    assert one["a"].advantage[:4].tolist() == two["a"].advantage.tolist() and one["a"].advantage[4:].tolist() == [0, 0]
    assert one["b"].advantage.tolist() == two["b"].advantage.tolist()


def test_an_answer_without_scored_steps_leaves_the_loss_unless_its_outcome_counts():
    round_ = drive(["a+00#00", "#11"], credit={"name": "grpo-process"}, **STEPS)
    assert len(batch_of(round_)) == 1
    assert [m.drop for g in round_.groups.values() for m in g.members.values()] == [None, Drop.NO_LOSS]
    batch = batch_of(drive(["a+00#00", "#11"], credit={"name": "grpo-process", "outcome": 1.0, "eps": 0}, **STEPS))
    assert rows(batch) == [[1.0] * 8, [-1.0] * 4]


def test_equal_step_scores_have_advantage_exactly_zero():
    made = of(with_steps("a", 1.0, 0.1, 0.1), with_steps("b", 0.0, 0.1))
    found = ProcessGRPO(ProcessGRPO.Settings(), BUILD).credit(made, list(made.members.values()))
    assert not any(c.advantage.any() for c in found.values())


# ---- turns: GiGPO ----------------------------------------------------------------------------------------------


def episode(key, reward, lengths, keys, scores=(), read=2):
    """Turns of these lengths with observations of `read` tokens between (0 = nothing); `scores`: one per turn, None = none."""
    parts = [plain(SegmentKind.PROMPT, 2)]
    found, at = [], 2
    for i, n in enumerate(lengths):
        parts += [action(n, turn=i), plain(SegmentKind.OBSERVATION, read, turn=i + 1)] if read else [action(n, turn=i)]
        if scores and scores[i] is not None:
            found.append(StepScore(at, at + n, "turn", scores[i]))
        at += n + read
    one = member(key, reward, bool(reward))
    one.rollout = rollout(key, *(parts[:-1] if read else parts), state_keys=tuple(keys))
    one.signals = type(one.signals)(one.signals.verdicts, "v", {}, reward, steps=tuple(found))
    return one


def by_turn(made, credit):
    """The one advantage of each turn, per member; observations have 0."""
    found = credit.credit(made, list(made.members.values()))
    out = []
    for key, one in found.items():
        spans = [(a, b) for a, b, _ in own_turns(made.members[key])]
        assert all(np.ptp(one.advantage[a:b]) == 0 for a, b in spans)
        rest = np.ones(len(one.advantage), bool)
        for a, b in spans:
            rest[a:b] = False
        assert not one.advantage[rest].any()
        out.append([float(one.advantage[a]) for a, _ in spans])
    return out


@pytest.mark.parametrize("read", [2, 0])
def test_gigpo_groups_turns_by_the_state_they_began_in(read):
    """Three episodes; turns from s1 return .5 * 1 (then another turn) and 0; the one from s2 is alone there."""
    made = of(
        episode("a", 1.0, [2, 3, 2], ["s1", "s2", "end"], read=read),
        episode("b", 0.0, [2, 2], ["s1", "end"], read=read),
        episode("c", 0.0, [1], ["end"]),
    )
    credit = GiGPO(GiGPO.Settings(gamma=0.5, over="episodes"), BUILD)
    start = np.array([0.25, 0, 0]) - 0.25 / 3  # discounted returns of first turns
    expected = [
        [2 / 3 + start[0], 2 / 3 + 0.25, 2 / 3],
        [-1 / 3 + start[1], -1 / 3 - 0.25],
        [-1 / 3 + start[2]],
    ]
    for found, wanted in zip(by_turn(made, credit), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-6)


def test_gigpo_counts_long_episodes_by_their_turns_as_the_official_code():
    made = of(episode("a", 1.0, [2, 2, 2], ["x", "y", "end"]), episode("b", 0.0, [2], ["end"]))
    found = by_turn(made, GiGPO(GiGPO.Settings(weight=0.0), BUILD))
    assert found[0] == pytest.approx([0.25] * 3) and found[1] == pytest.approx([-0.75])


def test_gigpo_adds_the_turns_own_rewards_and_an_abstention_adds_nothing():
    made = of(episode("a", 1.0, [2, 2], ["s", "end"], [-0.5, None]), episode("b", 0.0, [2, 2], ["s", "end"], [0.0, 0.0]))
    found = by_turn(made, GiGPO(GiGPO.Settings(gamma=1.0, over="episodes"), BUILD))
    # episodes .5 and 0; first turns return .5 and 0, second ones 1 and 0
    assert found[0] == pytest.approx([0.25 + 0.25, 0.25 + 0.5]) and found[1] == pytest.approx([-0.5, -0.75])


def test_the_share_of_turns_alone_in_their_state_is_reported():
    made = of(
        episode("a", 1.0, [2, 3, 2], ["s1", "s2", "end"]),
        episode("b", 0.0, [2, 2], ["s1", "end"]),
        episode("c", 0.0, [1], ["end"]),
    )
    assert share_alone([made]) == pytest.approx(1 / 5)  # s2 alone; the single-turn answer is none of several
    assert step_metrics([made], [])["share_turns_alone"] == pytest.approx(1 / 5)
    assert share_alone([group([1.0, 0.0])]) is None


def test_gigpo_says_when_the_environment_gives_no_states():
    made = of(episode("a", 1.0, [2, 2], []), episode("b", 0.0, [2, 2], []))
    with pytest.raises(ConfigError, match="has 2 turns and 0 state keys"):
        by_turn(made, GiGPO(GiGPO.Settings(), BUILD))


def test_gigpo_of_registers_where_nothing_is_read_between_two_turns():
    """Golden, by hand (gamma .95). Rewards of turns, the outcome with the last: .1, 2 | 0, .1, 0; episodes 2.1 and .1 over five turns: 1.2 and
    -.8. Returns 2, 2 | .095, .1, 0; the first turns meet at the task, the second of one and the third of the other after one right line."""
    made = turns(
        RIGHT_AND_LATE, [ONE_LINE], {"name": "registers"}, {"turn_tokens": 4, "turns": 6}, filter={"credit": {"name": "gigpo"}}
    )
    found = rows(batch_of(made.drive()))
    assert found[0] == pytest.approx([2.1525] * 4 + [2.2] * 4, abs=1e-6)
    assert found[1] == pytest.approx([-1.7525] * 4 + [-0.8] * 4 + [-1.8] * 4, abs=1e-6)


def test_parts_of_one_turn_are_one_turn():
    one = member("a", 1.0, True)
    parts = (action(2), action(1, version=1), plain(SegmentKind.FORCED, 1), action(1), action(3, turn=1))
    one.rollout = rollout("a", plain(SegmentKind.PROMPT, 2), *parts)
    assert own_turns(one) == [(2, 7, 0), (7, 10, 1)]
    one.rollout = rollout("a", plain(SegmentKind.PROMPT, 2), action(0, turn=0), plain(SegmentKind.OBSERVATION, 1, turn=1))
    assert own_turns(one) == []


def test_turns_of_an_agent_that_is_not_trained_keep_their_numbers():
    """One agent's turns 0 and 2; the second began in the state that the other agent's turn 1 ended in."""
    made = of(*(member(key, reward, bool(reward)) for key, reward in (("a", 1.0), ("b", 0.0))))
    for one, key in zip(made.members.values(), ("same", "other")):
        other = action(2, turn=1, role=LossRole.NONE, author="two")
        parts = plain(SegmentKind.PROMPT, 2), action(2), other, action(2, turn=2)
        one.rollout = rollout(one.rollout.id, *parts, state_keys=("x", key, "end"))
    assert own_turns(made.members["a"]) == [(2, 4, 0), (6, 8, 2)]
    found = by_turn(made, GiGPO(GiGPO.Settings(gamma=1.0, over="episodes"), BUILD))
    assert found[0] == pytest.approx([1.0, 0.5]) and found[1] == pytest.approx([-1.0, -0.5])  # last turns: no state in common


# ---- where steps lie, and what they add up to ------------------------------------------------------------------


def test_steps_follow_their_tokens_into_another_context_and_evidence_is_no_step():
    one = with_steps("a", 1.0, 1.0, 0.0)
    prompt, own = one.rollout.path
    hint = rollout("h", plain(SegmentKind.PROMPT, 2), plain(SegmentKind.GUIDANCE, 3)).path[1]
    one.rollout = Rollout("a", "t", (prompt, hint, own), StopReason.EOS, train_path=(prompt, own))
    steps = (
        StepScore(5, 7, "step", 1.0),
        StepScore(7, 9, "step", 0.0),
        StepScore(5, 6, "evidence", None),
        StepScore(2, 4, "step", 9.0),
    )
    one.signals = type(one.signals)(one.signals.verdicts, "v", {}, 1.0, steps=steps)
    assert scored_steps(one) == [(2, 4, 1.0), (4, 6, 0.0)]
    assert [found[:2] for found in on_trained_path(one, {"evidence"})] == [(2, 3)]


@pytest.mark.parametrize(
    ("how", "score"),
    [
        ("min", 0.2),
        ("product", 0.9 * 0.2 * 0.5),
        ("geometric", 0.09 ** (1 / 3)),
        ("last", 0.5),
        ("mean", 1.6 / 3),
        ("first-drop", 0.2),
    ],
)
def test_step_scores_aggregate(how, score):
    assert aggregate([0.9, 0.2, 0.5], how) == pytest.approx(score)
    assert aggregate([], how) is None  # no steps is no score, not 0


def test_aggregation_clamps_and_a_score_without_a_fall_is_the_last():
    assert aggregate([-1.0, 2.0], "mean") == pytest.approx((1e-6 + 1) / 2)
    assert aggregate([0.0, 1.0], "product") == pytest.approx(1e-6)
    assert aggregate([0.5, 0.4, 0.9], "first-drop", 0.2) == 0.9


def test_processbench_figures():
    assert process_f1(50, 90) == pytest.approx(64.29, abs=0.01)
    assert process_f1(0, 100) == 0 and process_f1(0, 0) == 0
    assert (first_wrong([1.0, 0.0, 1.0]), first_wrong([1.0, 1.0]), first_wrong([])) == (1, -1, -1)


def test_step_scores_as_rewards_and_an_answer_without_steps_keeps_its_own():
    made = of(with_steps("a", 1.0, 1.0, 0.4), with_steps("b", 1.0), with_steps("c", 0.0, None))
    admit(made, lab("r").recipe.filter.admission)
    shape = StepScoreShape(StepScoreShape.Settings(weight=0.5), BUILD)
    assert shape.shape(made, View(0, 0, 0, None, None)) == {"a": pytest.approx(0.7)}


def test_turn_rewards_add_to_the_reward_and_an_answer_without_them_keeps_its_own():
    made = of(with_steps("a", 1.0, 0.1, -0.1, kind="turn"), with_steps("b", 0.0, None, kind="turn"), with_steps("c", 0.0, 0.5))
    admit(made, lab("r").recipe.filter.admission)

    def shaped(**settings):
        return TurnRewards(TurnRewards.Settings(**settings), BUILD).shape(made, View(0, 0, 0, None, None))

    assert shaped() == {"a": pytest.approx(1.0)} and shaped(which="penalties", weight=2.0) == {"a": pytest.approx(0.8)}


# ---- right answers with a wrong step ---------------------------------------------------------------------------

LUCKY = ["a+00#00", "a+11#00", "a+11#11"]
"""Right; right with a wrong step; wrong."""


def test_the_share_of_right_answers_with_a_wrong_step_is_reported():
    round_ = drive(LUCKY, **STEPS)
    assert step_metrics(list(round_.groups.values()), [])["share_right_with_wrong_step"] == 0.5
    assert step_metrics(list(drive(LUCKY).groups.values()), [])["share_right_with_wrong_step"] is None
    assert has_wrong_step(with_steps("a", 1.0, None)) is None


@pytest.mark.parametrize(
    ("where", "second"),
    [("answer", [0.0] * 8), ("from-step", [0.0] * 8), ("step", [0.0] * 4 + [1 / 3] * 4)],
)
def test_positive_credit_is_withheld_from_wrong_steps(where, second):
    credit = {"credit": {"name": "dr-grpo"}, "credit_batch": {"name": "withhold-wrong-steps", "where": where}}
    found = rows(batch_of(drive(LUCKY, **credit, **STEPS)))
    assert found[0] == pytest.approx([1 / 3] * 8) and found[2] == pytest.approx([-2 / 3] * 8)
    assert found[1] == pytest.approx(second)


def test_only_positive_credit_is_withheld():
    answers = ["a+00#00", "a+11#00"]
    made = {"name": "withhold-wrong-steps"}
    found = rows(batch_of(drive(answers, credit={"name": "grpo-process", "eps": 0}, credit_batch=made, **STEPS)))
    assert found == [[1.0] * 4 + [0.0] * 4, [-1.0] * 4 + [0.0] * 4]


# ---- evidence --------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def pointing(monkeypatch):
    monkeypatch.setitem(INDEX[Slot.VERIFIER], "pointing", "lifecycle_methods:Pointing")


@pytest.mark.parametrize(
    ("settings", "line", "mark"),
    [
        ({}, 0.3, 0),
        ({"scale": "answer"}, 0.3 * 8 / 4, 0),
        ({"kinds": [], "weight": 0.1}, 0.1, 0.1),
        ({"kinds": ["mark"]}, 0, 0.3),
    ],
    ids=str,
)
def test_the_offending_line_is_charged_from_recipe_to_batch(settings, line, mark):
    credit = {"credit": {"name": "dr-grpo"}, "credit_batch": {"name": "evidence", **settings}}
    found = rows(batch_of(drive(["a+00#00", "a+11#11"], "pointing", **credit)))
    assert found[0] == [0.5] * 8  # evidence on a right answer costs nothing
    assert found[1] == pytest.approx([-0.5 - line] * 4 + [-0.5 - mark] + [-0.5] * 3)


def test_evidence_is_recorded_with_its_source_and_value():
    round_ = drive(["a+00#00", "a+11#11"], "pointing")
    found = [
        [(s.start, s.end, s.kind, s.value, s.source) for s in m.signals.steps]
        for g in round_.groups.values()
        for m in g.members.values()
    ]
    assert found == [
        [(10, 11, "evidence", 0.5, "pointing:mark")],
        [(10, 11, "evidence", 0.5, "pointing:mark"), (6, 10, "evidence", None, "pointing:line")],
    ]


def test_evidence_tokens_without_a_loss_stay_without():
    one = member("a", 0.0, False)
    one.rollout = rollout("a", plain(SegmentKind.PROMPT, 2), action(2), plain(SegmentKind.OBSERVATION, 2), action(2))
    steps = (StepScore(3, 7, "evidence", None, source="v:line"),)
    one.signals = type(one.signals)(one.signals.verdicts, "v", {}, 0.0, steps=steps)
    made = of(one, member("b", 1.0, True))
    for each in made.members.values():
        each.credit = Credit(1.0)
    Evidence(Evidence.Settings(), BUILD).credit([made])
    assert one.credit.advantage == pytest.approx([0, 0, 1, 0.7, 0, 0, 0.7, 1])
    assert made.members["b"].credit.advantage == 1.0
    assert rows(build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0))[0] == pytest.approx([1, 0.7, 0.7, 1])


def test_the_place_of_the_final_answer_is_no_evidence():
    with pytest.raises(ConfigError, match="where the final answer stands"):
        Evidence.Settings(kinds=("line", "answer"))
