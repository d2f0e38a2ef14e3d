"""Ask and tell: every ask is answered exactly once (invariant 11 in a round), and a round in flight survives a restart."""

import copy
import pickle
from dataclasses import fields

import numpy as np
import pytest

from gfcr.asks import CompareAsk, Compared, Failed, GenerateAsk, Generated, JudgeAsk, Judged, ScoreAsk, Scored
from gfcr.drivers.assemble import Growing
from gfcr.round import Phase
from gfcr.run.budget import Budget
from gfcr.types import Batch, Drop, GroupState, Signals
from lifecycle_cases import Lab, batch_of, lab


def answer(made: Lab, ask):
    """The event that answers an ask, by the lab's engine and cascade."""
    match ask:
        case GenerateAsk():
            made.engine.submit(ask.request)
            work = Growing(ask)
            for chunk in made.engine.step():
                work.add(chunk)
            if work.stop is None or work.stop.value == "failed":
                return Failed(ask.id, "broken", work.generated)
            return Generated(ask.id, work.rollout())
        case JudgeAsk():
            return Judged(ask.id, made.cascade.judge(ask.task, ask.rollout))
        case CompareAsk():
            return Compared(ask.id, [])
        case ScoreAsk():
            return Scored(ask.id, made.engine.score([ask.item])[0].logprobs)


def fingerprint(round_):
    """All of a round that could differ, as plain data."""
    state = round_.state_dict()
    return (
        state["phase"],
        state["wave"],
        sorted(state["asks"]),
        dict(state["failed"]),
        len(state["decisions"]),
        [
            (g.id, g.state, g.stage, [(i, m.drop, m.signals.reward) for i, m in g.members.items()])
            for g in state["groups"].values()
        ],
        [sorted(w.open) for w in state["work"].values()],
        round_.budget.spent,
        round_.budget.held,
    )


def refused(round_, event):
    before = fingerprint(round_)
    with pytest.raises(KeyError, match="late, or a second answer"):
        round_.tell(event)
    assert fingerprint(round_) == before


def test_a_second_answer_to_a_generation_changes_nothing():
    """Its judgement is outstanding under the same id; taking the answer for that would lose the verdict."""
    made = lab("rw", k=2)
    round_ = made.round()
    first, second = round_.ask()
    event = answer(made, first)
    round_.tell(event)
    refused(round_, event)
    refused(round_, Scored(first.id, np.zeros(1)))
    refused(round_, Compared(first.id, []))
    round_.tell(Judged(first.id, Signals()))
    refused(round_, Judged(first.id, Signals()))
    refused(round_, Judged(second.id, Signals()))
    refused(round_, Failed("nobody", "lost"))


def test_a_generation_under_anothers_id_is_refused():
    made = lab("rw", k=2)
    round_ = made.round()
    first, second = round_.ask()
    refused(round_, Generated(first.id, answer(made, second).rollout))


def test_a_late_answer_to_a_finished_round_is_refused():
    made = lab("rw", k=2)
    round_ = made.round()
    asks = round_.ask()
    events = [answer(made, a) for a in asks]
    for event in events:
        round_.tell(event)
    for ask in round_.ask():
        round_.tell(answer(made, ask))
    round_.ask()
    assert round_.done
    refused(round_, events[0])


def test_a_late_answer_after_a_retry_is_refused_and_the_retry_counts():
    made = lab("rw", k=2)
    round_ = made.round()
    first, _ = round_.ask()
    late = answer(made, first)
    round_.tell(Failed(first.id, "lost: no answer", 3))
    retry = round_.ask()[0]
    assert retry.id != first.id
    assert retry.request.key != first.request.key
    refused(round_, late)
    assert round_.budget.spent == 3


def test_an_idle_round_asks_nothing_twice():
    round_ = lab("rw", k=2).round()
    assert len(round_.ask()) == 2
    assert round_.ask() == []
    assert len(round_.outstanding()) == 2


def test_the_judgement_that_fails_leaves_its_answer_unscorable():
    made = lab("rwr", k=3)
    round_ = made.round()
    for ask in round_.ask():
        round_.tell(answer(made, ask))
    first, *others = round_.ask()
    round_.tell(Failed(first.id, "judge: gone"))
    for ask in others:
        round_.tell(answer(made, ask))
    round_.ask()
    group = next(iter(round_.groups.values()))
    assert [m.drop for m in group.members.values()] == [Drop.UNSCORABLE, None, None]
    assert len(batch_of(round_)) == 2


RECIPES = {
    "plain": {"script": "rwww", "sections": {}},
    "staged": {"script": "wwrw", "sections": {"control": {"allocate": {"name": "staged", "stages": 2, "k": 2}}}},
    "refill": {
        "script": {"a+?00": "r", "a+?01": "rw", "a+?02": "w", "a+?03": "r", "a+?04": "r"},
        "sections": {"control": {"groups": 2, "refill": {"name": "dynamic-sampling", "max_waves": 4}}},
    },
    "failures": {"script": "rfwf", "sections": {}},
    "injection": {"script": "w", "sections": {"replay": {"store": [{"name": "correct"}], "augment": [{"name": "ar3po"}]}}},
}


def prepared(name):
    case = RECIPES[name]
    made = lab(case["script"], n_tasks=5, limit=2_000, **case["sections"])
    if name == "injection":
        made.engine.script = "r"
        made.drive()  # fills replay
        made.engine.script, made.engine.asked = "w", type(made.engine.asked)()
    return made


def run(made, round_, until=None, pending=()):
    """Answer ask by ask; stop before event number `until`. Returns whether the round ended."""
    pending, told = list(pending), 0
    while True:
        if not pending:
            pending = round_.ask()
            if round_.done:
                return True
        if told == until:
            return False
        round_.tell(answer(made, pending.pop(0)))
        told += 1


def bits(batch: Batch):
    return {
        f.name: value.tobytes() if isinstance(value := getattr(batch, f.name), np.ndarray) else repr(value)
        for f in fields(batch)
        if f.name != "rewards"
    } | {name: v.tobytes() for name, v in batch.rewards.items()}


@pytest.mark.parametrize("name", RECIPES)
def test_a_round_resumed_at_any_event_gives_the_same_batch_bit_for_bit(name):
    whole = prepared(name)
    expected = whole.round()
    assert run(whole, expected)
    actions = [(d.slot, d.action) for d in expected.decisions]
    exercised = {
        "plain": ("round", "close_group"),
        "refill": ("refill", "open"),
        "failures": ("round", "retry"),
        "injection": ("augment", "inject"),
        "staged": ("allocate", "sample"),
    }[name]
    assert actions.count(exercised) > (5 if name == "staged" else 0), "the case exercises nothing"
    event = 0
    while True:
        made = prepared(name)
        round_ = made.round()
        if run(made, round_, until=event):
            break
        state = pickle.loads(pickle.dumps(round_.state_dict()))
        made.slots, made.budget, made.number = copy.deepcopy(made.slots), Budget(made.limit, made.budget.spent), made.number - 1
        resumed = made.round()
        resumed.load_state_dict(state)
        assert run(made, resumed)
        assert bits(batch_of(resumed)) == bits(batch_of(expected)), f"after event {event}"
        assert made.budget == whole.budget
        assert [(d.slot, d.subject, d.action, d.reason) for d in resumed.decisions] == [
            (d.slot, d.subject, d.action, d.reason) for d in expected.decisions
        ]
        event += 1
    assert event > 10


def test_a_state_is_a_copy_that_later_events_do_not_change():
    made = lab("rwrw")
    round_ = made.round()
    asks = round_.ask()
    for ask in asks[:2]:
        round_.tell(answer(made, ask))
    state = round_.state_dict()
    for ask in asks[2:]:
        round_.tell(answer(made, ask))
    for ask in round_.ask():
        round_.tell(answer(made, ask))
    round_.ask()
    assert round_.done
    assert state["phase"] is Phase.ROLLOUT
    assert [(len(g.members), g.state) for g in state["groups"].values()] == [(2, GroupState.OPEN)]
    assert all(m.drop is None and m.signals.reward is None for g in state["groups"].values() for m in g.members.values())


def test_closing_a_round_books_everything_and_leaves_a_finished_one_alone():
    made = lab("rwrw", n_tasks=2)
    round_ = made.round()
    asks = round_.ask()
    for ask in asks[:3]:
        round_.tell(answer(made, ask))
    round_.close("shutdown")
    assert (round_.done, round_.ready(), round_.reason) == (True, None, "shutdown")
    assert (made.budget.held, made.budget.spent) == (0, 8 + 4 + 8)
    assert {m.drop for g in round_.groups.values() for m in g.members.values()} == {Drop.ABANDONED}
    assert round_.ask() == [] and round_.outstanding() == []
    finished = lab("rw", k=2).drive()
    finished.close("too late")
    assert (finished.reason, len(batch_of(finished))) == ("", 2)
