"""Interruption by a weight update (AReaL, card C43), and going on in another engine: no token lost or sampled twice, each segment of
one version, draws those of an answer that was never interrupted."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tests.engine.engine_helpers import make_engine, make_model

from gfcr.drivers.stream import StreamDriver
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import WeightsRef
from gfcr.engine.scripted import ScriptedEngine
from gfcr.filter.assemble import score_item
from gfcr.types import GroupState, Role, StopReason
from lifecycle_cases import lab

EVERY = 4
EXACT = {"scripted": 0.0, "embedded": 5e-5}


def made(kind, **generate):
    """Two groups of four answers of up to 24 tokens."""
    out = lab("r", 2, 4, generate={"max_tokens": 24, **generate})
    out.engine = ScriptedEngine() if kind == "scripted" else make_engine()
    return out


def driver_of(one):
    return WaveDriver(one.engine, one.cascade)


def drive(one, driver, round_, between=lambda n: None):
    """The round, with `between(n)` after the n-th step of four tokens (n from 0)."""
    for _ in range(20):
        asks = round_.ask()
        if round_.done:
            return round_
        driver.submit(round_, asks)
        n = 0
        while driver.engine.live():
            driver.grow(round_, EVERY)
            between(n)
            n += 1
        driver.deliver(round_)
        driver.answer(round_, asks)
    raise AssertionError("the round has no end")


def rollouts(round_):
    return {m.rollout.id: m.rollout for g in round_.groups.values() for m in g.members.values()}


def weights(kind, seed):
    return make_model(seed=seed).state_dict() if kind == "embedded" else None


@pytest.mark.parametrize("kind", ["scripted", "embedded"])
def test_weights_are_loaded_in_the_middle_of_a_round_and_nothing_is_lost(kind):
    one, whole = made(kind), made(kind)
    wanted = rollouts(drive(whole, driver_of(whole), whole.round()))
    driver, loads = driver_of(one), []

    def between(n):
        if n in (0, 2):
            assert one.engine.live()
            loads.append(n + 1)
            driver.publish(lambda: one.engine.load(WeightsRef(n + 1, "memory:"), weights(kind, n + 1)))

    round_ = drive(one, driver, one.round(), between)
    got = rollouts(round_)
    assert got.keys() == wanted.keys() and loads == [1, 3] and round_.budget.spent == one.engine.usage().decoded
    assert sum(r.cost.generated for r in got.values()) == round_.budget.spent and round_.budget.held == 0
    for name, rollout in got.items():
        segments = list(rollout.actions())
        assert [s.version for s in segments] == [0, 1, 3][: len(segments)]
        assert [len(s) for s in segments[:-1]] == [4, 8][: len(segments) - 1]
        n = len(segments[0])
        assert segments[0].ids.tolist() == wanted[name].own_tokens()[:n].tolist()
        if kind == "scripted":  # its draws do not depend on weights
            assert rollout.own_tokens().tolist() == wanted[name].own_tokens().tolist() and rollout.stop is wanted[name].stop
        assert rollout.response_length == rollout.cost.generated <= 24
    assert max(len(list(r.actions())) for r in got.values()) == 3
    versions = {0: weights(kind, 0), 1: weights(kind, 1), 3: weights(kind, 3)}
    for version, tensors in versions.items():  # each token has the log-probability of the weights it names
        one.engine.load(WeightsRef(version, "memory:"), tensors)
        for rollout in got.values():
            (item,) = [score_item(rollout)]
            (score,) = one.engine.score([item])
            offset = item.spans[0][0]
            for segment in rollout.actions():
                if segment.version == version:
                    there = score.logprobs[offset : offset + len(segment)]
                    assert np.abs(there - segment.logprobs).max() <= EXACT[kind]
                offset += len(segment)


@pytest.mark.parametrize("kind", ["scripted", "embedded"])
def test_what_was_interrupted_goes_on_in_another_engine(kind):
    one, whole = made(kind), made(kind)
    wanted = rollouts(drive(whole, driver_of(whole), whole.round()))
    driver, first = driver_of(one), one.engine
    other = ScriptedEngine() if kind == "scripted" else make_engine()

    def between(n):
        if n == 1:
            driver.interrupt()
            assert not first.live()
            driver.go_on(other)

    got = rollouts(drive(one, driver, one.round(), between))
    assert driver.engine is other and first.usage().decoded and other.usage().decoded
    assert first.usage().decoded + other.usage().decoded == one.budget.spent == whole.engine.usage().decoded
    for name, rollout in got.items():
        assert rollout.own_tokens().tolist() == wanted[name].own_tokens().tolist() and rollout.stop is wanted[name].stop
        assert len(list(rollout.actions())) == 1  # one version, one segment
        (a,), (b,) = rollout.actions(), wanted[name].actions()
        assert np.abs(a.logprobs - b.logprobs).max() <= EXACT[kind]
    prefilled = sum(r.cost.prefilled + r.cost.cached for r in got.values())
    assert prefilled > sum(r.cost.prefilled + r.cost.cached for r in wanted.values())  # the second context is booked too


def test_all_sixteen_come_back_from_a_publication():
    """radixark/miles#2589: a publication must not cost the requests in flight."""
    one = lab("r", 4, 4, generate={"max_tokens": 24})
    one.engine = ScriptedEngine()
    driver, round_ = driver_of(one), one.round()
    driver.submit(round_, round_.ask())
    driver.grow(round_, 2)
    assert one.engine.live() == 16
    assert driver.publish(lambda: one.engine.load(WeightsRef(1, "memory:"))) == 0 and one.engine.live() == 16


def test_what_the_round_can_park_waits_for_a_later_round():
    one = made("scripted", partial={"tokens": 16, "most_resumes": 5})
    whole = made("scripted")
    wanted = rollouts(drive(whole, driver_of(whole), whole.round()))
    driver, parked = driver_of(one), []

    def between(n):
        if n == 1:
            parked.append(driver.publish(lambda: one.engine.load(WeightsRef(1, "memory:")), round_))

    round_ = one.round()
    drive(one, driver, round_, between)
    assert parked[0] > 0 and {g.state for g in round_.groups.values()} == {GroupState.PARKED}
    waiting = [m.rollout for w in one.slots.parking.waiting() for m in w.group.members.values()]
    assert sum(r.stop is StopReason.PARKED and r.response_length == 8 for r in waiting) == parked[0]
    done = {}
    for _ in range(4):
        later = drive(one, driver, one.round())
        done |= {
            i: m for g in later.groups.values() if g.round == 0 and g.state is GroupState.CLOSED for i, m in g.members.items()
        }
    assert {i: m.rollout.own_tokens().tolist() for i, m in done.items()} == {
        i: r.own_tokens().tolist() for i, r in wanted.items()
    }
    assert sum(m.role is Role.RESUMED for m in done.values()) >= parked[0]
    assert {s.version for m in done.values() for s in m.rollout.actions()} == {0, 1}


def test_without_the_setting_nothing_is_parked_and_everything_goes_on():
    one = made("scripted")
    driver, round_ = driver_of(one), one.round()
    driver.submit(round_, round_.ask())
    driver.grow(round_, EVERY)
    before = one.engine.live()
    assert driver.publish(lambda: None, round_) == 0 and one.engine.live() == before > 0


def test_what_an_engine_cannot_take_back_fails_with_a_reason_and_is_asked_again():
    one = made("scripted")
    driver, round_ = driver_of(one), one.round()
    driver.submit(round_, round_.ask())
    driver.grow(round_, EVERY)
    driver.interrupt()
    assert driver.deliver(round_) >= 0  # what is interrupted is not lost
    submit, refused = one.engine.submit, []

    def once(request):
        if not refused:
            refused.append(request.id)
            raise ValueError("no room")
        submit(request)

    one.engine.submit = once
    driver.go_on()
    driver.deliver(round_)
    assert dict(round_.failed) == {"refused": EVERY} and round_.budget.spent >= EVERY
    assert any(d.action == "retry" and d.subject == refused[0] for d in round_.decisions)


def test_the_streaming_driver_is_interrupted_alike():
    one, whole = made("scripted"), made("scripted")
    wanted = rollouts(drive(whole, driver_of(whole), whole.round()))
    driver, round_, steps = StreamDriver(one.engine, one.cascade, one.engine.now), one.round(), 0
    for _ in range(200):
        asks = round_.ask()
        if round_.done:
            break
        driver.submit(round_, asks)
        driver.answer(round_, asks)
        if one.engine.live():
            driver.grow(round_, EVERY)
            steps += 1
            driver.publish(partial(one.engine.load, WeightsRef(steps, "memory:")))
        driver.deliver(round_)
    got = rollouts(round_)
    assert {i: r.own_tokens().tolist() for i, r in got.items()} == {i: r.own_tokens().tolist() for i, r in wanted.items()}
    assert all([s.version for s in r.actions()] == list(range(len(list(r.actions())))) for r in got.values())


@pytest.mark.parametrize("kind", ["scripted", "embedded"])
def test_tokens_that_the_engine_had_not_handed_over_yet_are_kept(kind):
    """A step without a limit hands over the tokens of those that ended; the others' come with the interruption."""
    one, whole = made(kind), made(kind)
    one.engine = ScriptedEngine() if kind == "scripted" else make_engine(slots=4)
    wanted = rollouts(drive(whole, driver_of(whole), whole.round()))
    driver, round_ = driver_of(one), one.round()
    asks = round_.ask()
    driver.submit(round_, asks)
    driver.grow(round_)
    assert one.engine.live() > 0 and not any(g.chunks for g in driver._growing.values() if g.stop is None)
    driver.interrupt()
    assert sum(g.generated for g in driver._growing.values()) == one.engine.usage().decoded
    driver.go_on()
    while one.engine.live():
        driver.grow(round_)
    driver.deliver(round_)
    got = {r.id: r for g in round_.groups.values() for r in (m.rollout for m in g.members.values())}
    assert {i: r.own_tokens().tolist() for i, r in got.items()} == {i: r.own_tokens().tolist() for i, r in wanted.items()}
    assert round_.budget.spent == one.engine.usage().decoded
