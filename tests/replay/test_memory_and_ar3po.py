"""Replay: what enters, what leaves, what comes back; and AR3PO's two options from recipe to batch."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gfcr.replay.memory import Memory, MemorySettings
from gfcr.replay.store_rules import CorrectAnswers
from gfcr.types import Artifact, ArtifactKind, Drop, Role, SegmentKind, Signals, Span, Status, Verdict
from group_cases import action, group, member, plain, rollout, signals
from lifecycle_cases import SCORED, batch_of, lab, letters, row_advantages, tasks

REUSE = {"store": [{"name": "correct"}], "augment": [{"name": "ar3po"}]}


def artifact(name, task="t", n=3):
    path = rollout(name, plain(SegmentKind.PROMPT, 2), action(n))
    return Artifact(f"a-{name}", ArtifactKind.TRAJECTORY, task, path, signals=signals(1.0, True), round=1, version=2)


def test_memory_is_bounded_per_task_and_in_all_and_the_oldest_leaves():
    memory = Memory(MemorySettings(per_task=2, total=3))
    for i in range(4):
        memory.add(artifact(f"x{i}", "x", n=i + 1))
    assert [a.id for a in memory.of_task("x")] == ["a-x2", "a-x3"]
    memory.add(artifact("y0", "y", n=7))
    assert memory.add(artifact("y1", "y", n=8)) == (True, "kept; the oldest of all left")
    assert [a.id for a in memory.of_task("x")] == ["a-x3"]
    assert len(memory) == 3
    assert memory.of_task("nothing") == []


def test_equal_answers_to_one_task_are_kept_once_and_may_come_back_after_eviction():
    memory = Memory(MemorySettings(per_task=1))
    assert memory.add(artifact("one", n=3)) == (True, "kept")
    assert memory.add(artifact("same", n=3)) == (False, "duplicate")
    assert memory.add(artifact("other-task", "u", n=3))[0]
    memory.add(artifact("longer", n=4))
    assert memory.add(artifact("again", n=3))[0]


def test_places_and_answers_of_verdicts_come_back():
    verdict = Verdict("v", "1", Status.SCORED, 1.0, True, answer="5", spans=(Span(1, 4, "line", 0.5), Span(7, 9)))
    memory, one = Memory(MemorySettings()), artifact("one")
    memory.add(replace(one, signals=Signals({"v": verdict}, "v", {"v": 1.0}, 1.0)))
    back = Memory(MemorySettings())
    back.load_state_dict(json.loads(json.dumps(memory.state_dict())), {"one": one.rollout}.__getitem__)
    assert back.of_task("t")[0].signals.verdicts == {"v": verdict}


def test_memory_comes_back_from_json_with_order_verdicts_and_bounds():
    memory = Memory(MemorySettings(per_task=2))
    kept = {a.rollout.id: a.rollout for a in [artifact("one", n=1), artifact("two", n=2)]}
    for name, n in (("one", 1), ("two", 2)):
        memory.add(artifact(name, n=n))
    back = Memory(MemorySettings(per_task=2))
    back.load_state_dict(json.loads(json.dumps(memory.state_dict())), kept.__getitem__)
    for old, new in zip(memory.of_task("t"), back.of_task("t"), strict=True):
        assert (old.id, old.kind, old.signals, old.round, old.version, old.provenance) == (
            new.id,
            new.kind,
            new.signals,
            new.round,
            new.version,
            new.provenance,
        )
        assert new.rollout is kept[new.rollout.id]
    assert back.add(artifact("same", n=2)) == (False, "duplicate")
    back.add(artifact("three", n=3))
    assert [a.id for a in back.of_task("t")] == ["a-two", "a-three"]
    with pytest.raises(ValueError, match="no store to fetch them from"):
        back.load_state_dict(memory.state_dict())


def test_the_store_rule_takes_fresh_verified_answers_only():
    rule = CorrectAnswers(CorrectAnswers.Settings(per_group=2), None)
    made = group([1.0, 0.0, None, 1.0, 1.0], binary=True)
    made.members["inj"] = member("inj", 1.0, True, role=Role.INJECTED)
    made.members["unknown"] = member("unknown", 1.0, None)
    view = type("V", (), {"round": 4, "version": 7})
    kept = rule.store(made, view)
    assert [(a.rollout.id, a.round, a.version, a.signals.correct) for a in kept] == [("g0", 4, 7, True), ("g3", 4, 7, True)]
    assert rule.store(group([0.0, 0.0], binary=True), view) == ()
    hard = CorrectAnswers(CorrectAnswers.Settings(hard_only=0.25), None)
    assert hard.store(group([1.0, 0.0], binary=True), view) == ()
    assert len(hard.store(group([1.0, 0.0, 0.0, 0.0], binary=True), view)) == 1


def solved_then_wrong(option=1, k=8, credit=None, second="w", **sections):
    """A first round with one right answer of k, a second one that goes by `second`."""
    made = lab(
        "r" + "w" * (k - 1),
        k=k,
        filter={"credit": credit or {"name": "grpo", "eps": 0}, **sections.pop("filter", {})},
        replay={"store": [{"name": "correct"}], "augment": [{"name": "ar3po", "option": option}]},
        **sections,
    )
    made.drive()
    made.engine.script = second
    return made


def test_option_1_trains_the_cached_answer_like_the_others():
    made = solved_then_wrong()
    round_ = made.drive()
    batch = batch_of(round_)
    assert letters(round_, batch).count("r") == 1
    assert len(batch) == 8
    by_letter = dict(zip(letters(round_, batch), row_advantages(batch)))
    assert by_letter == {"w": pytest.approx(-0.378, abs=6e-4), "r": pytest.approx(2.646, abs=6e-4)}


def test_the_cached_answers_behaviour_is_recomputed_and_the_others_keep_theirs():
    made = solved_then_wrong()
    round_ = made.drive()
    batch = batch_of(round_)
    for row, letter in enumerate(letters(round_, batch)):
        span = slice(batch.offsets[row], batch.offsets[row + 1])
        logprobs = batch.behaviour[span][batch.rl_mask[span]]
        expected = np.full(8, SCORED) if letter == "r" else -0.1 * np.arange(1, 5)
        assert logprobs == pytest.approx(expected)
    assert len(made.engine.scored) == 1


def test_option_2_shifts_the_baseline_and_carries_no_loss():
    made = solved_then_wrong(option=2)
    round_ = made.drive()
    batch = batch_of(round_)
    assert letters(round_, batch) == ["w"] * 7
    assert row_advantages(batch) == pytest.approx([-0.378] * 7, abs=6e-4)
    assert made.engine.scored == []


def test_the_replaced_answer_leaves_and_only_one_does():
    (group_,) = solved_then_wrong().drive().groups.values()
    assert [m.drop for m in group_.members.values()].count(Drop.REPLACED) == 1
    assert len(group_.members) == 9
    assert len(group_.fresh()) == 8


def test_the_injected_answer_is_never_counted_as_fresh():
    made = solved_then_wrong()
    before = made.slots.posterior._right.copy()
    (group_,) = made.drive().groups.values()
    assert group_.outcomes() == (0, 8)
    assert made.slots.posterior._right.tolist() == (before * 0.7).tolist()
    assert made.slots.posterior._wrong[0] == pytest.approx(7 * 0.7 + 8)
    assert len(made.slots.memory) == 1, "what came from replay is not stored again"
    assert made.budget.spent == (8 + 7 * 4) + 8 * 4


@pytest.mark.parametrize("second", ["rw", "r", "wwwwwwwr"])
def test_a_group_with_a_right_answer_gets_no_injection(second):
    (group_,) = solved_then_wrong(second=second).drive().groups.values()
    assert {m.role for m in group_.members.values()} == {Role.FRESH}


def test_a_group_nobody_could_judge_gets_no_injection():
    made = solved_then_wrong()
    object.__setattr__(made.tasks[0], "reference", None)
    (group_,) = made.drive().groups.values()
    assert {m.role for m in group_.members.values()} == {Role.FRESH}


def test_refused_answers_are_wrong_answers_for_reuse_too():
    (group_,) = solved_then_wrong(second="i", filter={"gates": [{"name": "format"}]}).drive().groups.values()
    assert [m.role for m in group_.members.values()].count(Role.INJECTED) == 1


def test_without_a_known_answer_nothing_is_injected():
    (group_,) = lab("w", k=4, replay=REUSE).drive().groups.values()
    assert {m.drop for m in group_.members.values()} == {Drop.ZERO_VARIANCE}


def test_answers_of_other_tasks_are_not_used():
    made = lab({t.prompt: s for t, s in zip(tasks(2), ["rw", "w"])}, n_tasks=2, k=2, replay=REUSE)
    made.drive()
    groups = made.drive().groups.values()
    assert {m.role for g in groups for m in g.members.values()} == {Role.FRESH}


def test_which_answer_is_injected_is_a_function_of_the_seed():
    def chosen(seed):
        made = lab("=a+00#00", k=4, seed=seed, replay=REUSE)
        made.engine.script = lambda prompt, nth: ["=a+00#00", "=a+00a+00#00", "=#00", "w"][nth % 4]
        made.drive()
        made.engine.script = "w"
        (decision,) = (d for d in made.drive().decisions if d.slot == "augment")
        return decision.subject

    assert chosen(1) == chosen(1)
    assert len({chosen(seed) for seed in range(8)}) == 8


@pytest.mark.parametrize(
    "role, right, helped", [(Role.GUIDED, True, True), (Role.GUIDED, False, False), (Role.DEMO, None, True)]
)
def test_a_group_that_got_other_help_is_left_alone(role, right, helped):
    """A guided answer that is right, or a solution, makes an injection needless; failed guidance does not."""
    made = lab("w", k=2, replay=REUSE)
    made.drive()
    one = made.tasks[0]
    kept = replace(artifact("kept"), task_id=one.id)
    memory = Memory(MemorySettings())
    memory.add(kept)
    failed = group([0.0, 0.0], binary=True, of=one)
    failed.members["other"] = member("other", None if right is None else float(right), right, role=role)
    view = replace(made.round().view, memory=memory)
    injected = made.slots.augment[0].augment(failed, view)
    assert failed.helped is helped and len(injected) == (not helped)
    failed.members["g0"].drop = Drop.REPLACED
    assert [i.replaces for i in made.slots.augment[0].augment(failed, view)] == ([] if helped else ["g1"])
