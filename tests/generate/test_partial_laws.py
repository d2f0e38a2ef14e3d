"""Partial rollouts on the lab model under laws that change over training and within an answer: what waits keeps the law it began with, to
the token, whichever engine goes on with it; what waits too long is given up and counted."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from gfcr.build import Parts, build
from gfcr.build_engine import make_engine
from gfcr.context import View
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.models import model_path
from gfcr.filter.assemble import score_item
from gfcr.recipe import Recipe, parse
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.run.ledger import Ledger
from gfcr.run.metrics import parked_metrics
from gfcr.run.state import decode_state, encode_state
from gfcr.types import Drop, Group, GroupState, Member, Sampling

ROUNDS = 4


def recipe(max_age: int = 9, workers: int = 1) -> Recipe:
    return parse(
        {
            "tasks": {"pool": "D"},
            "generate": {
                "topology": {"name": "group", "k": 4},
                "max_tokens": 32,
                "partial": {"tokens": 7, "most_resumes": 9, "max_age": max_age},
            },
            "filter": {"admission": {"drop_zero_variance": False}},
            "control": {
                "groups": 3,
                "select": {"name": "uniform"},
                "configure": [
                    {"name": "schedule", "what": "top_p", "start": 1.0, "end": 0.7, "by": "round", "over": 2},
                    {"name": "within", "points": [[0, 1.2], [5, 0.6], [10, 0.9]]},
                ],
            },
            "engine": {"workers": workers},
            "budget": {"tokens": None, "steps": ROUNDS},
        }
    )


def law(opened: int, own: int) -> Sampling:
    """Of the own token at this place of an answer whose group was opened in that round."""
    return Sampling(1.2 if own < 5 else 0.6 if own < 10 else 0.9, top_p=(1.0, 0.85, 0.7)[min(opened, 2)])


def play(parts: Parts, number: int, engine: object) -> Round:
    view = View(number, 0, 0, parts.slots.posterior, parts.slots.memory, number / ROUNDS)
    round_ = Round(number, parts.slots, parts.round_settings, view, Budget(None), parts.renderer, parts.stop)
    WaveDriver(engine, parts.cascade, parts.slots.judge).drive(round_)
    return round_


def answers(rounds: list[Round]) -> dict[str, tuple[Group, Member]]:
    """By id, as the last round that had them left them."""
    return {name: (g, m) for r in rounds for g in r.groups.values() for name, m in g.members.items()}


@pytest.fixture(scope="module")
def embedded() -> tuple[Parts, list[Round]]:
    parts = build(recipe(), 5)
    return parts, [play(parts, number, parts.engine) for number in range(ROUNDS)]


def test_what_waits_keeps_the_law_it_began_with(embedded: tuple[Parts, list[Round]]) -> None:
    parts, rounds = embedded
    found = answers(rounds)
    resumed = [(g, m) for g, m in found.values() if len(list(m.rollout.actions())) > 3]
    assert {g.round for g, _ in resumed} >= {0} and len({g.round for g, _ in found.values()}) > 1
    for group, member in found.values():
        own = 0
        for segment in member.rollout.actions():
            assert {law(group.round, own + i) for i in range(len(segment))} == {segment.sampling}
            own += len(segment)
        (score,) = parts.engine.score([score_item(member.rollout)])
        given = np.concatenate([s.logprobs for s in member.rollout.actions()])
        np.testing.assert_allclose(score.logprobs[~np.isnan(score.logprobs)], given, atol=1e-4)


def test_what_waits_goes_on_in_other_processes_as_it_would_have(embedded: tuple[Parts, list[Round]]) -> None:
    """Two rounds on the embedded engine, two on its worker processes by another process's parts, which read the state of the first: the
    same tokens under the same laws."""
    wanted = answers(embedded[1])
    before, after, several = build(recipe(), 5), build(recipe(), 5), recipe(workers=2)
    rounds = [play(before, number, before.engine) for number in range(2)]
    stored = {name: member.rollout for name, (_, member) in answers(rounds).items()}
    places = list(stored)
    state = encode_state(before.slots.state_dict(), lambda rollout: (0, places.index(rollout.id)))
    after.slots.load_state_dict(decode_state(state, lambda step, key: stored[places[key]]), stored.__getitem__)
    with closing(make_engine(several, model_path(several.model.path), after.renderer.decoder())) as workers:
        rounds += [play(after, number, workers) for number in range(2, ROUNDS)]
        late = [m for g in rounds[2].groups.values() for m in g.members.values() if g.round < 2]
        assert late
    found = answers(rounds)
    assert found.keys() == wanted.keys()
    for name, (group, member) in found.items():
        there_group, there = wanted[name]
        assert group.round == there_group.round and member.rollout.stop is there.rollout.stop
        for ours, theirs in zip(member.rollout.actions(), there.rollout.actions(), strict=True):
            assert ours.ids.tolist() == theirs.ids.tolist() and ours.sampling == theirs.sampling
            np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)
            if ours.sampling is not None and ours.sampling.truncated:
                np.testing.assert_allclose(ours.tracks["kept_mass"], theirs.tracks["kept_mass"], atol=1e-4)


def test_what_waits_too_long_is_given_up_and_counted() -> None:
    parts, ledger, rows = build(recipe(max_age=1), 5), Ledger(), []
    for number in range(ROUNDS):
        round_ = play(parts, number, parts.engine)
        groups = list(round_.groups.values())
        ledger.settle_round(groups, dict(round_.failed), round_.failed_context, round_.booked)
        rows.append((groups, parked_metrics(groups, number, 0)))
        old = [g for g in groups if number - g.round > 1]
        assert all(g.state is GroupState.ABANDONED and g.reason.startswith("stale: not done ") for g in old)
        assert all("max_age = 1" in g.reason for g in old)
        assert not any(w.group.round < number - 1 for w in parts.slots.parking.waiting())
    stale = [m for groups, _ in rows for g in groups for m in g.members.values() if m.drop is Drop.STALE]
    assert stale and sum(row.get("rollouts_stale", 0) for _, row in rows) == len(stale)
    assert ledger.drops["stale"] == len(stale)
    given_up = {m.rollout.id: m.rollout.cost.generated for m in stale}
    assert ledger.discarded["stale"] == sum(given_up.values())
