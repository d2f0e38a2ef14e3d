"""What users of such systems report about replay, resume, staleness and weights: each kind of fault, by its smallest input.

The numbers are those of the project's list of user reports; the report each kind was first seen in stands in its docstring.
"""

from collections import Counter

import numpy as np
import pytest
from tests.engine.engine_helpers import drain, make_engine, make_model, request, run

from gfcr.asks import GenerateAsk
from gfcr.context import Build, View
from gfcr.control.posterior import PosteriorSettings, PosteriorTable
from gfcr.control.select.uniform import Uniform
from gfcr.drivers.assemble import Growing
from gfcr.engine.contract import Chunk, Request, WeightsRef
from gfcr.engine.scripted import ScriptedEngine
from gfcr.errors import ConfigError
from gfcr.filter.assemble import build_batch
from gfcr.registry import Settings
from gfcr.replay.memory import Memory, MemorySettings
from gfcr.types import (
    Artifact,
    ArtifactKind,
    Credit,
    Drop,
    Member,
    Normalise,
    Sampling,
    Status,
    StopReason,
    Verdict,
)
from group_cases import group, rollout, signals
from lifecycle_cases import batch_of, lab, tasks


def view(number):
    made = tasks(8)
    return View(number, number, 0, PosteriorTable(made, PosteriorSettings()), Memory(MemorySettings()))


@pytest.mark.parametrize("killed", range(5))
def test_36_the_cursor_is_what_was_consumed_not_what_was_fetched(killed):
    """OpenRLHF/OpenRLHF#1322, NVIDIA-NeMo/RL#3599: the loader ran ahead, and a resume skips what it had fetched: ids 0..7, two a
    round, killed in the middle of a round."""
    build = Build(0, tasks(8), 2, 4, 16, {}, str)
    selector, seen, state = Uniform(Settings(), build), [], None
    for number in range(4):
        if number == killed:
            selector.select(2, set(), view(number))  # this round never commits
            selector = Uniform(Settings(), build)
            if state is not None:
                selector.load_state_dict(state)
        seen += [pick.task.id for pick in selector.select(2, set(), view(number))]
        state = selector.state_dict()  # of the commit
    assert Counter(seen) == Counter(task.id for task in tasks(8))


def test_36_a_round_that_was_not_committed_is_asked_again_word_for_word():
    """The long rollouts are those in flight when a run dies; a resume must not leave them out."""
    uncut = lab("rwrw", n_tasks=4, k=2, control={"groups": 2})
    uncut.drive()
    state = uncut.slots.state_dict()
    want = [(r.id, r.key) for r in _requests_of_next_round(uncut)]
    again = lab("rwrw", n_tasks=4, k=2, control={"groups": 2})
    again.number = 1
    again.slots.load_state_dict(state, lambda name: rollout(name))
    assert [(r.id, r.key) for r in _requests_of_next_round(again)] == want


def _requests_of_next_round(made):
    before = len(made.engine.requests)
    made.drive()
    return made.engine.requests[before:]


def test_37_age_goes_on_counting_after_a_resume():
    """areal-project/AReaL#1388: counters restart at 0 while the version does not, so staleness is unbounded: save at version 10."""
    memory = Memory(MemorySettings())
    memory.add(artifact("old", version=10, number=10))
    other = Memory(MemorySettings())
    other.load_state_dict(memory.state_dict(), lambda name: rollout(name))
    (kept,) = other.of_task("t")
    made = lab("rw", n_tasks=1, k=2)
    made.number = 11
    (opened,) = made.drive().groups.values()
    assert (opened.round - kept.round, opened.version - kept.version) == (1, 1)  # on one scale, before and after


def artifact(name, version=0, number=0, task="t"):
    return Artifact(name, ArtifactKind.TRAJECTORY, task, rollout(name), {}, signals(1.0, True), number, version)


def test_38_a_bound_holds_at_every_door_and_nothing_leaves_silently():
    """areal-project/AReaL#1481: online sessions bypass the capacity, and deque(maxlen) drops: 1025 for 1024 places."""
    memory = Memory(MemorySettings(total=1024, per_task=1024))
    said = [memory.add(unique(i)) for i in range(1025)]
    assert len(memory) == 1024
    assert [kept for kept, _ in said] == [True] * 1025
    assert [reason for _, reason in said[:1024]] == ["kept"] * 1024 and said[-1][1].endswith("left")
    assert memory.add(unique(1024)) == (False, "duplicate")
    again = Memory(MemorySettings(total=1024, per_task=1024))
    again.load_state_dict(memory.state_dict(), lambda name: rollout(name))
    assert len(again) == 1024  # the other door
    again.add(unique(2000))
    assert len(again) == 1024


def unique(i):
    """An artifact without a rollout: its own id is its content."""
    return Artifact(f"a{i}", ArtifactKind.SKILL, f"t{i % 7}", None, {"n": i}, signals(1.0, True))


@pytest.mark.parametrize("kind", ["embedded", "scripted"])
def test_39_a_publication_aborts_nothing(kind):
    """radixark/miles#2589, #2372: giving the weights a new label aborts all 16 requests in flight."""
    engine = make_engine() if kind == "embedded" else ScriptedEngine()
    wanted = [request(f"r{i}", [1, 2, 3], 10, key=i) for i in range(16)]
    for one in wanted:
        engine.submit(one)
    engine.step(3)
    with pytest.raises(RuntimeError, match="16 requests are live"):
        engine.load(WeightsRef(1, "memory:"), make_model(seed=1).state_dict() if kind == "embedded" else None)
    assert engine.live() == 16
    out = drain(engine)
    assert len(out) == 16 and {c.version for c in out.values()} == {0}
    assert not {c.stop for c in out.values()} & {StopReason.CANCELLED, StopReason.FAILED}


def test_40_tokens_of_three_policies_are_three_segments_and_say_so():
    """THUDM/slime#2092: aborted samples come back although partial rollouts are off: weight versions 2, 4, 6 in one row."""
    path = rollout("x").path[:1]
    work = Growing(GenerateAsk("x", "g", "t", Request("x", path, Sampling(), 9, 1)))
    for version in (2, 4, 6):
        ids = np.full(3, version, np.int32)
        work.add(Chunk("x", ids, np.full(3, -0.5, np.float32), version, {"entropy": np.zeros(3, np.float32)}))
    work.stop = StopReason.EOS
    grown = work.rollout()
    assert [(s.version, len(s)) for s in grown.actions()] == [(2, 3), (4, 3), (6, 3)]
    made = group([1.0])
    made.members = {"x": Member(grown, signals=signals(1.0))}
    made.members["x"].credit = Credit(1.0)
    batch = build_batch([made], Normalise.TOKEN_MEAN, None, 0, 6)
    assert batch.versions[batch.rl_mask].tolist() == [2] * 3 + [4] * 3 + [6] * 3
    assert not np.isnan(batch.behaviour[batch.rl_mask]).any()  # each under the law that sampled it


def test_41_and_vllm_9744_no_prefix_outlives_the_weights_that_computed_it():
    """NVIDIA-NeMo/RL#4018, prime-rl#1650: the prefix cache's key lacks the version: the same prompt before and after an update."""
    engine, prompt = make_engine(), np.arange(1, 21)
    run(engine, [request("before", prompt, 6, key=1, retain=True)])
    engine.load(WeightsRef(1, "memory:"), make_model(seed=1).state_dict())
    engine.prefilled()
    used = engine.usage()
    got = run(engine, [request("after", prompt, 6, key=1)])["after"]
    (cost,) = engine.prefilled()
    assert (cost.computed, cost.cached) == (20, 0)
    assert engine.usage().prefilled - used.prefilled == 20
    fresh = run(make_engine(seed=1), [request("after", prompt, 6, key=1)])["after"]
    assert (got.ids.tobytes(), got.logprobs.tobytes()) == (fresh.ids.tobytes(), fresh.logprobs.tobytes())


def test_42_a_new_version_without_new_weights_is_found_out():
    """verl#7495, unsloth#8701, ms-swift#9855, miles#2075: the adapter never reaches the engine and all metrics look plausible."""
    engine = make_engine()
    before = engine.fingerprint()
    with pytest.raises(ConfigError, match="no tensors were handed over"):
        engine.load(WeightsRef(1, "memory:"))  # the label alone
    assert run(engine, [request("x", [1, 2], 3)])["x"].version == 0
    changed = {name: tensor.clone() for name, tensor in make_model().state_dict().items()}
    changed["model.layers.1.mlp.up_proj.weight"][5, 7] += 0.01
    engine.load(WeightsRef(1, "memory:"), changed)
    assert engine.fingerprint() != before  # one weight in one layer is enough
    assert run(engine, [request("x", [1, 2], 3)])["x"].version == 1
    engine.load(WeightsRef(2, "memory:"), make_model().state_dict())
    assert engine.fingerprint() == before


class Withdraws:
    """Finds one task invalid; says nothing at all about it, as a scorer that returns an empty list does."""

    name, version, bounded = "withdraws", "1", True

    def __init__(self, inner, prompt, answer):
        self.inner, self.prompt, self.answer = inner, prompt, answer

    def judge(self, task, text, stop):
        return self.answer if task.prompt == self.prompt else self.inner.judge(task, text, stop)


@pytest.mark.parametrize("answer", [[], None, Verdict("withdraws", "1", Status.UNSCORABLE, evidence="the task is invalid")])
def test_prime_rl_2503_a_withdrawn_group_is_dropped_and_another_prompt_takes_its_place(answer):
    """A scorer that returns [] leaves its group waiting for ever."""
    made = lab("rwrw", n_tasks=3, k=4, control={"groups": 1, "refill": {"name": "dynamic-sampling", "max_waves": 3}})
    first = lab("rwrw", n_tasks=3, k=4, control={"groups": 1}).drive()
    (bad,) = [g.task.prompt for g in first.groups.values()]  # the task that the same seed selects first
    made.cascade.verifiers = [Withdraws(made.cascade.verifiers[0], bad, answer)]
    round_ = made.drive()
    batch = batch_of(round_)
    by_task = {g.task.prompt: g for g in round_.groups.values()}
    assert len(by_task) == 2 and not round_.outstanding()
    members = by_task[bad].members.values()
    assert by_task[bad].composition == "unscored"
    assert {(m.signals.reward, m.signals.status, m.drop, m.in_loss, m.in_baseline) for m in members} == {
        (None, Status.UNSCORABLE, Drop.UNSCORABLE, False, False)
    }
    (other,) = [g for prompt, g in by_task.items() if prompt != bad]
    assert set(batch.rollout_ids) == set(other.members)


def test_36_what_was_parked_is_in_the_state_and_goes_on_first():
    """NVIDIA-NeMo/RL#3599: 675 of 736 skipped prompts were those of long rollouts."""
    uncut, again = (long_lab() for _ in range(2))
    uncut.drive()
    waiting = [g for w in uncut.slots.parking.waiting() for g in [w.group]]
    known = {m.rollout.id: m.rollout for g in waiting for m in g.members.values()}
    again.slots.load_state_dict(uncut.slots.state_dict(), known.__getitem__)
    again.number = 1
    a, b = uncut.round(), again.round()
    want = [(x.id, x.request.key, len(x.request.path)) for x in a.ask()]
    assert [(x.id, x.request.key, len(x.request.path)) for x in b.ask()] == want and want[0][0] in known


def test_37_a_parked_group_ages_on_after_a_resume():
    """areal-project/AReaL#1388: rounds are counted from where the group was opened, not from the resume."""
    made = long_lab(most_resumes=50, max_age=2)
    made.number = 10
    made.drive()
    known = {m.rollout.id: m.rollout for w in made.slots.parking.waiting() for m in w.group.members.values()}
    again = long_lab(most_resumes=50, max_age=2)
    again.slots.load_state_dict(made.slots.state_dict(), known.__getitem__)
    again.number = 13
    old = [g for g in again.drive().groups.values() if g.round == 10]
    assert old and {g.reason.split(":")[0] for g in old} == {"stale"}


def test_40_without_the_setting_nothing_is_cut_and_no_row_has_two_policies():
    """THUDM/slime#2092: the flag was honoured on one path only."""
    made = long_lab(None)
    for number in range(3):
        made.engine.load(WeightsRef(number, "memory:"))
        for opened in made.drive().groups.values():
            assert {s.version for m in opened.members.values() for s in m.rollout.actions()} == {number}
        assert not len(made.slots.parking)
    round_ = made.round()
    assert not any(round_.parks(ask.id) for ask in round_.ask())


def long_lab(tokens=5, **more):
    """Answers several times longer than what a round gives."""
    section = {} if tokens is None else {"partial": {"tokens": tokens, **more}}
    made = lab("r", 2, 3, generate={"max_tokens": 40, **section})
    made.engine = ScriptedEngine()
    return made
