"""Every slot and every feedback edge of a round, in the order a reader of round.py expects them."""

import numpy as np
import pytest

from gfcr.context import Seed
from gfcr.control.slots import Action, Allocation
from gfcr.replay.slots import Injection
from gfcr.types import (
    Artifact,
    ArtifactKind,
    Comparison,
    Credit,
    Drop,
    GroupState,
    Role,
    Segment,
    SegmentKind,
    Signals,
    Status,
    StopReason,
    Verdict,
)
from group_cases import group as hand_made
from lifecycle_cases import SCORED, Lab, batch_of, lab


class Recording:
    """Wraps a method and notes its calls; unknown methods are made from `answers`."""

    def __init__(self, log, name, inner=None, **answers):
        self._log, self._name, self._inner, self._answers = log, name, inner, answers

    def __getattr__(self, attribute):
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        if attribute in self._answers:
            answer = self._answers[attribute]
            if not callable(answer):
                return answer

            def call(*args):
                self._log.append(f"{self._name}.{attribute}")
                return answer(*args)

            return call
        value = getattr(self._inner, attribute)
        if not callable(value):
            return value

        def through(*args):
            self._log.append(f"{self._name}.{attribute}")
            return value(*args)

        return through


def recorded(made: Lab, log, **answers):
    """The lab's slots, each recording; empty ones filled with methods that do nothing."""
    s = made.slots
    for name in ("select", "allocate", "configure", "topology", "credit"):
        setattr(s, name, Recording(log, name, getattr(s, name)))
    s.allocate._answers["observe"] = lambda groups, view: None
    s.posterior = Recording(log, "posterior", s.posterior)
    empty = {
        "seed": {"seed": lambda g, n, v: [None] * n, "more": lambda g, v: Allocation(0, "no help")},
        "stop": {"decide": lambda p, v: {}, "every": 4},
        "judge": {"compare": lambda g: []},
        "value": {"value": lambda g, v: {}},
        "shape": {"shape": lambda g, v: {}},
        "credit_batch": {"credit": lambda g: None},
        "refill": {"wanted": lambda c, n, v: 0, "keep": lambda c, n: {}, "max_waves": 3},
        "off_policy": {"weigh": lambda g, v: None},
        "mix": {"mix": lambda c, v: list(c)},
    }
    for name, methods in empty.items():
        setattr(s, name, Recording(log, name, **{**methods, **answers.get(name, {})}))
    s.augment = (Recording(log, "augment", **{"augment": lambda g, v: [], **answers.get("augment", {})}),)
    s.store = (Recording(log, "store", **{"store": lambda g, v: (), **answers.get("store", {})}),)
    made.cascade.gates = [Recording(log, "gate", g) for g in made.cascade.gates]
    made.cascade.verifiers = [Recording(log, "verifier", v) for v in made.cascade.verifiers]
    made.cascade.steps = [Recording(log, "steps", v) for v in made.cascade.steps]
    return made


def full_lab(script="rw", k=2, **more):
    return lab(script, k=k, filter={"gates": [{"name": "format"}], "steps": [{"name": "program-steps"}]}, **more)


def test_every_slot_is_called_in_the_order_of_the_lifecycle():
    log = []
    batch_of(recorded(full_lab(), log).drive())
    judged = [
        step for step in ("gate.judge", "verifier.judge", "steps.score") for _ in range(2)
    ]  # by stage, for the whole wave
    assert log == [
        "select.select",
        "allocate.allocate",
        "seed.seed",
        "configure.configure",
        "topology.streams",
        "stop.decide",
        "stop.decide",
        *judged,
        "allocate.allocate",
        "seed.more",
        "judge.compare",
        "refill.wanted",
        "posterior.observe",
        "select.observe",
        "allocate.observe",
        "value.value",
        "augment.augment",
        "refill.keep",
        "shape.shape",
        "mix.mix",
        "credit.credit",
        "credit_batch.credit",
        "off_policy.weigh",
        "store.store",
    ]


def test_guidance_conditions_generation_and_its_tokens_carry_no_loss():
    hint = Segment(SegmentKind.GUIDANCE, [3, 4, 5])
    made = recorded(full_lab(), [], seed={"seed": lambda g, n, v: [Seed((hint,), "hint")] * n})
    batch = batch_of(made.drive())
    assert [len(n.segment) for n in made.engine.requests[0].path] == [6, 3]
    assert batch.input_ids[6:9].tolist() == [3, 4, 5]
    assert batch.rl_mask[:9].sum() == 0 and batch.rl_mask[9]
    assert not np.isnan(batch.behaviour[9])


def test_guidance_left_out_of_training_leaves_row_and_log_probabilities():
    hint = Segment(SegmentKind.GUIDANCE, [3, 4, 5])
    made = recorded(full_lab(), [], seed={"seed": lambda g, n, v: [Seed((hint,), "hint", train_without=True)] * n})
    batch = batch_of(made.drive())
    assert len(made.engine.requests[0].path) == 2
    assert batch.lengths[0] == 6 + 8
    assert batch.rl_mask[6:14].all()
    assert np.isnan(batch.behaviour).all()


def test_guidance_that_leaves_no_room_is_left_out_with_a_reason():
    hint = Segment(SegmentKind.GUIDANCE, list(range(3, 13)))
    made = recorded(full_lab(max_length=6 + 16 + 9), [], seed={"seed": lambda g, n, v: [Seed((hint,), "hint")] * n})
    round_ = made.drive()
    assert len(batch_of(round_)) == 2
    assert [d.action for d in round_.decisions if d.slot == "seed"] == ["leave_out"]


def test_comparisons_of_the_judge_reach_the_group():
    said = Comparison((("a",), ("b",)), ("b", "a"), "judge")
    round_ = recorded(full_lab(), [], judge={"compare": lambda g: [said]}).drive()
    assert next(iter(round_.groups.values())).comparisons == [said]


def test_a_judge_that_breaks_costs_its_word_only():
    def broken(group):
        raise RuntimeError("no quorum")

    round_ = recorded(full_lab(), [], judge={"compare": broken}).drive()
    assert len(batch_of(round_)) == 2
    assert [d.reason for d in round_.decisions if d.action == "give_up"] == ["judge: RuntimeError: no quorum"]


def stop_at(action):
    """Decide once per rollout, after its first four tokens."""

    def decide(prefixes, view):
        return {p.id: (action, "because") for p in prefixes if p.ids[0] == prefixes[0].ids[0] and len(p.ids) == 4}

    return decide


def test_a_pruned_answer_is_not_judged_not_learnt_from_and_not_trained():
    made = recorded(full_lab("rrww", k=4), [], stop={"decide": stop_at(Action.PRUNE)})
    round_ = made.drive()
    group = next(iter(round_.groups.values()))
    pruned = [m for m in group.members.values() if m.drop is Drop.PRUNED]
    assert len(pruned) == 2
    assert all(m.signals.correct is None and m.rollout.stop is StopReason.PRUNED for m in pruned)
    assert group.outcomes() == (0, 2)
    assert batch_of(round_).rollout_ids == ()
    assert [d.action for d in round_.decisions if d.slot == "stop"] == ["prune", "prune"]


def test_an_early_exit_is_kept_and_judged_as_it_stands():
    made = recorded(full_lab("rrww", k=4), [], stop={"decide": stop_at(Action.STOP)})
    group = next(iter(made.drive().groups.values()))
    early = [m for m in group.members.values() if m.rollout.stop is StopReason.EARLY_EXIT]
    assert [m.signals.correct for m in early] == [False, False]
    assert group.outcomes() == (0, 4)


def test_shaped_rewards_move_credit_and_nothing_else():
    shaped = {"shape": lambda g, v: {i: 10.0 * n for n, i in enumerate(g.members)}}
    made = recorded(full_lab(), [], shape=shaped)
    round_ = made.drive()
    group = next(iter(round_.groups.values()))
    assert [m.credit.advantage for m in group.members.values()] == pytest.approx([-1, 1], abs=1e-3)
    assert group.outcomes() == (1, 1)


def test_shaping_does_not_revive_a_group_without_signal():
    made = recorded(full_lab("ww"), [], shape={"shape": lambda g, v: {i: 10.0 * n for n, i in enumerate(g.members)}})
    round_ = made.drive()
    assert len(batch_of(round_)) == 0
    assert {m.drop for g in round_.groups.values() for m in g.members.values()} == {Drop.ZERO_VARIANCE}


def test_learning_happens_before_injection_and_from_fresh_members_only():
    """Invariant 5: an injected right answer must not teach the posterior that the task was solved."""
    made = recorded(full_lab("ww", n_tasks=2), [], augment={"augment": inject_right})
    seen = []
    made.slots.select._answers["observe"] = lambda groups, view: seen.append([len(g.members) for g in groups])
    round_ = made.drive()
    assert seen == [[2, 2]], "once a round, every group, before any injection"
    assert made.slots.posterior._inner._right.tolist() == [0.0, 0.0]
    assert made.slots.posterior._inner._wrong.tolist() == [2.0, 2.0]
    assert [g.outcomes() for g in round_.groups.values()] == [(0, 2)] * 2
    assert len(batch_of(round_)) == 4


def right_artifact(group, version=1):
    """A right answer of an earlier round: the second member's path, with the verdict changed."""
    rollout = list(group.members.values())[1].rollout
    signals = Signals({"v": Verdict("v", "1", Status.SCORED, 1.0, True)}, "v", {"v": 1.0}, 1.0)
    return Artifact("artifact", ArtifactKind.TRAJECTORY, group.task.id, rollout, signals=signals, version=version)


def inject_right(group, view, **more):
    return [Injection(right_artifact(group), "because", replaces=next(iter(group.members)), **more)]


def test_an_injected_answer_takes_a_place_and_trains_on_recomputed_log_probabilities():
    made = recorded(full_lab("ww"), [], augment={"augment": inject_right})
    round_ = made.drive()
    group = next(iter(round_.groups.values()))
    first, second, injected = group.members.values()
    assert (first.drop, second.drop, injected.role, injected.source) == (Drop.REPLACED, None, Role.INJECTED, "artifact")
    batch = batch_of(round_)
    assert batch.rollout_ids == (second.rollout.id, injected.rollout.id)
    row = slice(batch.offsets[1] + 6, batch.offsets[2])
    assert batch.behaviour[row].tolist() == batch.proximal[row].tolist() == [SCORED] * 4
    assert batch.behaviour[6:10] == pytest.approx([-0.1, -0.2, -0.3, -0.4])


def test_an_injection_that_cannot_be_scored_is_undone():
    made = recorded(full_lab("ww"), [], augment={"augment": inject_right})
    made.engine.score = lambda items: []
    round_ = made.drive()
    first, second, injected = next(iter(round_.groups.values())).members.values()
    assert injected.drop is Drop.FAILED
    assert (first.drop, second.drop) == (Drop.ZERO_VARIANCE,) * 2
    assert len(batch_of(round_)) == 0


def test_the_same_artifact_is_injected_once():
    made = recorded(full_lab("www", k=3), [], augment={"augment": lambda g, v: inject_right(g, v) * 2})
    assert [len(g.members) for g in made.drive().groups.values()] == [4]


def test_an_answer_injected_for_the_baseline_only_is_not_scored_and_not_trained():
    made = recorded(full_lab("ww"), [], augment={"augment": lambda g, v: inject_right(g, v, in_loss=False)})
    round_ = made.drive()
    assert made.engine.scored == []
    assert len(batch_of(round_)) == 1
    assert [m.drop for m in next(iter(round_.groups.values())).members.values()] == [Drop.REPLACED, None, Drop.NO_LOSS]


def test_mixed_in_groups_are_credited_and_weighed_like_fresh_ones():
    made = recorded(full_lab(), [])
    old = hand_made([1.0, 0.0], "old")
    for one in old.members.values():
        one.role = Role.REPLAYED
    weighed = []

    def weigh(groups, view):
        weighed.extend(g.id for g in groups)
        for one in old.members.values():
            one.credit = Credit(one.credit.advantage, weight=0.25)

    made.slots.mix = Recording([], "mix", mix=lambda closed, view: [*closed, old])
    made.slots.off_policy = Recording([], "off_policy", weigh=weigh)
    batch = batch_of(made.drive())
    assert weighed[-1] == "old"
    assert batch.group_ids[-1] == "old"
    assert batch.rollout_ids[2:] == ("old0", "old1")
    row = slice(batch.offsets[2], batch.offsets[3])
    assert batch.advantages[row][batch.rl_mask[row]] == pytest.approx([1] * 3, abs=1e-3)
    assert set(batch.rl_weights[row][batch.rl_mask[row]]) == {0.25}


def test_replay_never_reads_what_the_round_itself_wrote():
    seen = []

    def read(kind):
        def call(*args):
            seen.append((kind, len(made.slots.memory)))
            return [] if kind == "augment" else list(args[0])

        return call

    made = recorded(
        full_lab(),
        [],
        augment={"augment": read("augment")},
        mix={"mix": read("mix")},
        store={"store": lambda g, v: [right_artifact(g)]},
    )
    made.drive()
    assert seen == [("augment", 0), ("mix", 0)]
    assert len(made.slots.memory) == 1


def test_values_measured_on_a_closed_group_reach_its_members():
    from dataclasses import replace

    made = recorded(
        full_lab(), [], value={"value": lambda g, v: {i: replace(m.signals, novelty=0.5) for i, m in g.members.items()}}
    )
    assert {m.signals.novelty for g in made.drive().groups.values() for m in g.members.values()} == {0.5}


def test_slots_without_a_method_are_left_out():
    made = full_lab()
    assert (made.slots.stop, made.slots.judge, made.slots.mix, made.slots.refill) == (None,) * 4
    assert len(batch_of(made.drive())) == 2


def test_a_parked_group_is_left_alone_and_its_tokens_are_booked():
    from gfcr.control.slots import Allocation
    from gfcr.run.ledger import Ledger

    made = recorded(full_lab(n_tasks=2), [])
    made.slots.allocate._answers["allocate"] = lambda groups, view: {
        g.id: Allocation(2, "K") if g.stage == 0 else Allocation(0, "later", park=g.task.id == made.tasks[0].id) for g in groups
    }
    round_ = made.drive()
    parked = [g for g in round_.groups.values() if g.state is GroupState.PARKED]
    assert [g.reason for g in parked] == ["later"]
    assert len(batch_of(round_)) == 2
    ledger = Ledger()
    ledger.settle_round(list(round_.groups.values()), dict(round_.failed))
    assert (ledger.total.generated, dict(ledger.discarded), ledger.parked) == (24, {}, 12)
