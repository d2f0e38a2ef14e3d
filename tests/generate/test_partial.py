"""Partial rollouts (card G-19, C31): no token lost or sampled twice, log-probabilities and versions kept, long answers delayed and not
dropped, groups whole, every token booked once, in the round that generated it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gfcr.control.slots import Action, Allocation
from gfcr.domains.programs.tokenizer import END_ID
from gfcr.engine.contract import WeightsRef
from gfcr.engine.scripted import ScriptedEngine, ScriptedSettings
from gfcr.filter.assemble import score_item
from gfcr.run.ledger import Ledger
from gfcr.run.metrics import parked_metrics
from gfcr.run.state import decode_state, encode_state
from gfcr.types import Drop, GroupState, LossRole, Role, StopReason
from lifecycle_cases import Lab, decoder, lab

LONGEST = 60


def long_lab(
    tokens: int | None = 10, n_tasks: int = 4, k: int = 6, limit: int | None = None, mean: float = 18.0, **partial
) -> Lab:
    """Random answers of up to 60 tokens, log-normal; weights are published before each round (`play`)."""
    section = {} if tokens is None else {"partial": {"tokens": tokens, "most_resumes": 9, "max_age": 9, **partial}}
    made = lab("r", n_tasks, k, limit, generate={"max_tokens": LONGEST, **section}, filter={"credit": {"name": "grpo"}})
    made.engine = ScriptedEngine(settings=ScriptedSettings(mean_length=mean), decode=lambda ids: decoder(np.asarray(ids)))
    return made


def play(made: Lab):
    made.engine.load(WeightsRef(made.number, "memory:"))
    return made.drive()


def drain(made: Lab, rounds: int = 12):
    """Rounds until nothing of round 0 waits; the groups of round 0 as delivered, by id."""
    out, played = {}, []
    for _ in range(rounds):
        played.append(play(made))
        out |= {g.id: g for g in played[-1].groups.values() if g.round == 0 and g.state is not GroupState.PARKED}
        if all(w.group.round for w in made.slots.parking.waiting()):
            return out, played
    raise AssertionError("something of round 0 still waits")


def members(groups):
    return {m.rollout.id: m for g in groups.values() for m in g.members.values()}


@pytest.mark.parametrize("tokens", [1, 7, 10, 59, 60, 200])
def test_long_answers_are_delayed_and_whole(tokens):
    """Card G-19: the answers, to the token, are those of a round without a limit; none is short because it was cut."""
    whole = long_lab(None)
    wanted = members(play(whole).groups)
    got, played = drain(long_lab(tokens, most_resumes=60, max_age=61), rounds=62)
    found = members(got)
    assert found.keys() == wanted.keys()
    for name, member in found.items():
        assert member.rollout.own_tokens().tolist() == wanted[name].rollout.own_tokens().tolist()
        assert (member.rollout.stop, member.rollout.seed) == (wanted[name].rollout.stop, wanted[name].rollout.seed)
        assert member.rollout.cost.generated == member.rollout.response_length
    lengths = [Counter(m.rollout.response_length for m in some.values()) for some in (found, wanted)]
    assert lengths[0] == lengths[1] and max(lengths[1]) > 30
    assert len(played) == -(-max(lengths[1]) // min(tokens, LONGEST))


def test_every_token_keeps_the_law_and_the_weights_it_was_sampled_with():
    got, played = drain(made := long_lab(7, most_resumes=20, max_age=20))
    resumed = [m for m in members(got).values() if m.role is Role.RESUMED]
    assert len(resumed) > 5 and len(played) > 4
    for member in resumed:
        segments = list(member.rollout.actions())
        assert [s.version for s in segments] == list(range(len(segments)))  # round n was sampled with version n
        assert all(len(s) == 7 for s in segments[:-1]) and len({n.id for n in member.rollout.path}) == len(segments) + 1
        item = score_item(member.rollout)
        offset = item.spans[0][0]
        for version, segment in enumerate(segments):
            made.engine.load(WeightsRef(version, "memory:"))
            (score,) = made.engine.score([item])
            np.testing.assert_array_equal(score.logprobs[offset : offset + len(segment)], segment.logprobs)
            offset += len(segment)


def test_each_token_is_booked_once_in_the_round_that_generated_it():
    made, ledger = long_lab(8), Ledger()
    for _ in range(8):
        before = made.engine.usage()
        round_ = play(made)
        ledger.settle_round(list(round_.groups.values()), dict(round_.failed), round_.failed_context, round_.booked)
        usage = made.engine.usage()
        assert ledger.total.generated == usage.decoded == made.budget.spent
        assert (ledger.total.prefilled, ledger.total.cached) == (usage.prefilled, usage.cached)
        waits = sum(m.rollout.cost.generated for w in made.slots.parking.waiting() for m in w.group.members.values())
        assert ledger.parked == waits and made.budget.held == 0 and usage.decoded > before.decoded
    trained = ledger.total.generated - ledger.total.discarded - ledger.parked
    assert trained >= 0 and ledger.total.discarded == ledger.discarded.total()


def test_a_group_is_delivered_once_whole_and_waiting_groups_come_first():
    made = long_lab(10)
    first = play(made)
    parked = [g.id for g in first.groups.values() if g.state is GroupState.PARKED]
    assert parked and all(g.reason.startswith("partial: ") for g in first.groups.values() if g.id in parked)
    assert set(first.ready().group_ids if first.ready() else ()) & set(parked) == set()
    second = made.round()
    second.ask()
    assert list(second.groups)[: len(parked)] == parked and len(second.groups) == made.recipe.control.groups
    assert len(made.slots.parking) == 0
    for group in first.groups.values():  # the earlier round's record stays as it was committed
        if group.id in parked:
            assert group.state is GroupState.PARKED and any(m.rollout.stop is StopReason.PARKED for m in group.members.values())
            done = [i for i, m in group.members.items() if m.rollout.stop is not StopReason.PARKED]
            again = second.groups[group.id]
            assert all(again.members[i].rollout is group.members[i].rollout for i in done) and list(again.members) == list(
                group.members
            )


def test_posteriors_and_selectors_see_a_group_when_it_is_complete():
    made, seen = long_lab(10), []
    observe = made.slots.posterior.observe
    made.slots.posterior.observe = lambda groups: (seen.extend(g.id for g in groups), observe(groups))
    _, played = drain(made)
    assert len(seen) == len(set(seen)) and {
        g.id for r in played for g in r.groups.values() if g.state is GroupState.CLOSED
    } == set(seen)
    assert any(g.round < r.number for r in played for g in r.groups.values() if g.id in seen)


def test_an_answer_resumed_too_often_leaves_as_stale_and_its_group_goes_on():
    made = long_lab(5, most_resumes=2)
    got, _ = drain(made)
    stale = [m for m in members(got).values() if m.drop is Drop.STALE]
    assert stale and all(m.rollout.response_length == 15 and m.rollout.stop is StopReason.MAX_TOKENS for m in stale)
    assert all(m.rollout.response_length <= 15 and m.signals.verdict for m in members(got).values() if m.drop is not Drop.STALE)
    ledger = Ledger()
    for group in got.values():
        assert group.state is GroupState.CLOSED and len(group.members) == 6
        ledger.settle_round([group], {})
    assert ledger.discarded["stale"] >= 15 * len(stale) and ledger.drops["stale"] >= len(stale)


def test_a_group_that_is_not_done_in_time_is_given_up_as_stale():
    made = long_lab(5, max_age=2)
    got, played = drain(made)
    late = [g for g in got.values() if g.state is GroupState.ABANDONED]
    assert late and {g.reason.split(":")[0] for g in late} == {"stale"}
    assert {m.drop for g in late for m in g.members.values()} == {Drop.STALE}
    assert not any(m.rollout.stop is StopReason.PARKED for g in late for m in g.members.values())
    assert len(played) == 4  # rounds 0 to 2 asked; round 3 gave up


def test_what_waits_survives_the_state_as_bytes():
    """`kill -9` between park and resume (the real run: tests/run/test_partial_real.py): the next rounds are the same to the bit."""
    uncut, again = long_lab(10), long_lab(10)
    first = play(uncut)
    again.number = 1
    stored = {m.rollout.id: m.rollout for g in first.groups.values() for m in g.members.values()}
    places = list(stored)
    state = encode_state(uncut.slots.state_dict(), lambda r: (0, places.index(r.id)))
    assert len(uncut.slots.parking) > 0
    again.slots.load_state_dict(decode_state(state, lambda step, key: stored[places[key]]), stored.__getitem__)
    for _ in range(3):
        a, b = play(uncut), play(again)
        assert [_plain(g) for g in a.groups.values()] == [_plain(g) for g in b.groups.values()]
        assert [d.subject for d in a.decisions] == [d.subject for d in b.decisions]


def _plain(group):
    parts = [
        (
            i,
            m.role,
            m.drop,
            m.rollout.stop,
            m.rollout.cost,
            [(n.id, n.segment.version, n.segment.ids.tobytes()) for n in m.rollout.path],
        )
        for i, m in group.members.items()
    ]
    return group.id, group.state, group.reason, group.stage, parts


def test_newest_takes_old_tokens_out_of_the_loss_and_leaves_the_reward_whole():
    """slime's --mask-offpolicy-in-partial-rollout, for every token of older weights."""
    made = long_lab(10, train="newest")
    made.slots.admission = made.slots.admission.model_copy(update={"drop_zero_variance": False})
    trained = 0
    ledger = Ledger()
    for _ in range(6):
        round_ = play(made)
        ledger.settle_round(list(round_.groups.values()), dict(round_.failed), round_.failed_context, round_.booked)
        batch = round_.ready()
        if batch is not None:
            assert set(np.unique(batch.versions[batch.rl_mask])) <= {round_.number}
            trained += int(batch.rl_mask.sum())
        for group in round_.groups.values():
            if group.state is not GroupState.CLOSED or group.round == round_.number:
                continue
            for member in group.members.values():
                new = [s for s in member.rollout.actions() if s.version == round_.number]
                assert member.in_baseline == (member.signals.reward is not None)
                assert member.in_loss == bool(new) or member.drop is not Drop.STALE
                assert all((s.role is LossRole.NONE) == (s.version < round_.number) for s in member.rollout.actions())
                if not new:
                    assert (member.drop, member.in_loss) == (Drop.STALE, False)
    assert ledger.discarded["stale"] > 0
    assert trained == ledger.total.generated - ledger.total.discarded - ledger.parked


def test_figures_say_what_waits_and_what_came_late():
    made = long_lab(10)
    rows = []
    for _ in range(4):
        round_ = play(made)
        rows.append(parked_metrics(list(round_.groups.values()), round_.number, round_.number))
    assert rows[0]["groups_parked"] > 0 and rows[0]["rollouts_parked"] >= rows[0]["groups_parked"]
    late = next(r for r in rows[1:] if r["rollouts_resumed"])
    assert set(late["age_of_groups"]) & {"1", "2", "3"} and set(late["length_by_round"])
    assert any(r["share_off_policy"] is None or 0 < r["share_off_policy"] <= 1 for r in rows[1:])
    assert parked_metrics(list(play(long_lab(None)).groups.values()), 0, 0) == {}


def test_a_round_of_waiting_groups_only_says_so_and_is_bounded():
    made = long_lab(2, n_tasks=1, k=2, mean=30)
    round_ = play(made)
    assert round_.ready() is None and round_.reason == "parked: 1 of 1 groups go on in a later round"


def test_the_budget_serves_what_waits_first_and_is_never_exceeded():
    made = long_lab(10, limit=500)
    spent = []
    for _ in range(12):
        round_ = play(made)
        spent.append(made.budget.spent)
        assert made.budget.spent <= 500 and made.budget.held == 0
        if not round_.groups:
            break
    assert not round_.groups and spent[-1] > 350


def test_a_failed_stretch_is_asked_again_from_where_the_answer_stood():
    made = long_lab(10)
    play(made)
    waiting = made.slots.parking.waiting()[0]
    (name, leg), before = next(iter(waiting.legs.items())), dict(waiting.group.members)
    failed = Counter()

    class Broken:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, key):
            return getattr(self.inner, key)

        def submit(self, request):
            if request.id == name and failed[name] < made.slots.failures.settings.attempts:
                failed[name] += 1
                raise ValueError("broken on purpose")
            again.append(request) if request.id == name else None
            self.inner.submit(request)

    again: list = []
    made.engine = Broken(made.engine)
    round_ = play(made)
    (request,) = again
    old = before[name].rollout
    assert (
        failed[name] == 2
        and request.path == old.path
        and request.key != leg.key
        and request.max_new_tokens == min(10, leg.left)
    )
    member = round_.groups[waiting.group.id].members[name]
    assert member.rollout.path[: len(old.path)] == old.path


def test_a_stretch_that_never_comes_drops_the_answer_with_a_reason():
    made = long_lab(10)
    play(made)
    waiting = made.slots.parking.waiting()[0]
    name = next(iter(waiting.legs))
    had = waiting.group.members[name].rollout.cost.generated
    submit = made.engine.submit

    def refusing(request):
        if request.id == name:
            raise ValueError("broken on purpose")
        submit(request)

    made.engine.submit = refusing
    round_, ledger = play(made), Ledger()
    member = round_.groups[waiting.group.id].members[name]
    assert (member.drop, member.rollout.stop, member.rollout.cost.generated) == (Drop.FAILED, StopReason.FAILED, had)
    ledger.settle_round(list(round_.groups.values()), dict(round_.failed), round_.failed_context, round_.booked)
    assert ledger.drops["failed"] == (round_.groups[waiting.group.id].state is not GroupState.PARKED)


def test_a_stopper_sees_the_whole_answer():
    made, seen = long_lab(10), {}

    class Stop:
        every = 3

        def decide(self, prefixes, view):
            for prefix in prefixes:
                assert len(prefix.ids) == len(prefix.logprobs)
                seen[prefix.id] = max(seen.get(prefix.id, 0), len(prefix.ids))
            return {p.id: (Action.STOP, "long enough") for p in prefixes if len(p.ids) >= 15}

    made.slots.stop = Stop()
    got, _ = drain(made)
    ended = [m.rollout for m in members(got).values() if m.rollout.stop is StopReason.EARLY_EXIT]
    assert ended and all(15 <= r.response_length <= 18 for r in ended) and max(seen.values()) <= 18


def test_a_group_that_an_allocator_parks_comes_back_too():
    made = lab("rw", n_tasks=1, k=2)
    made.slots.allocate.allocate = lambda groups, view: {
        g.id: Allocation(2, "K") if g.stage <= view.round and g.stage < 2 else Allocation(0, "later", park=view.round == 0)
        for g in groups
    }
    first, second = made.drive(), made.drive()
    (a,), (b,) = first.groups.values(), second.groups.values()
    assert (a.state, a.reason, b.state, b.id) == (GroupState.PARKED, "later", GroupState.CLOSED, a.id)
    assert (len(a.members), len(b.members), b.stage) == (2, 4, 2)


def test_a_copied_round_goes_on_by_itself_with_what_waited():
    made = long_lab(10)
    play(made)
    one = made.round()
    asked = {a.id: a.request.path for a in one.ask()}
    other = made.round()
    other.load_state_dict(one.state_dict())
    assert {a.id: a.request.path for a in other.outstanding()} == asked and other.booked == one.booked
    assert all(other._work[g].legs == w.legs and other._work[g].legs is not w.legs for g, w in one._work.items())


def test_end_tokens_end_and_the_longest_answer_is_the_longest():
    made = long_lab(10, mean=200.0)
    got, _ = drain(made)
    assert all(m.rollout.response_length <= LONGEST for m in members(got).values())
    cut = [m for m in members(got).values() if m.rollout.response_length == LONGEST and m.rollout.own_tokens()[-1] != END_ID]
    assert cut and {m.rollout.stop for m in cut} == {StopReason.MAX_TOKENS} and {m.drop for m in cut} != {Drop.STALE}
