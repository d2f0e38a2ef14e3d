"""Budget and ledger: the limit holds, and every generated token is in exactly one place (invariant 7 without an engine)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.filter.shuffle import shuffle_signals
from gfcr.run.budget import Budget
from gfcr.run.ledger import Ledger
from gfcr.run.metrics import step_metrics
from gfcr.types import Role
from lifecycle_cases import batch_of, lab, tasks


@given(limit=st.integers(0, 200), steps=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=40))
def test_spent_and_reserved_never_exceed_the_limit(limit, steps):
    """Each step reserves a worst case and settles the oldest open request for at most its own."""
    budget, open_ = Budget(limit), []
    for i, (worst, used) in enumerate(steps):
        fits = worst <= limit - budget.spent - budget.held
        assert budget.reserve(str(i), worst) is fits
        if fits:
            open_.append((str(i), worst))
        if used % 2 and open_:
            request, most = open_.pop(0)
            budget.settle(request, min(used, most))
        assert budget.held == sum(w for _, w in open_) == sum(budget.reserved.values())
        assert budget.spent + budget.held <= limit
        assert budget.available() == limit - budget.spent - budget.held


def test_a_request_is_reserved_once_and_settled_once():
    budget = Budget(100)
    assert budget.reserve("a", 30)
    with pytest.raises(ValueError, match="reserved already"):
        budget.reserve("a", 30)
    budget.settle("a", 10)
    with pytest.raises(KeyError):
        budget.settle("a", 10)
    assert (budget.spent, budget.held) == (10, 0)


def test_an_unlimited_budget_counts_all_the_same():
    budget = Budget(None)
    assert (budget.available(), budget.affordable(10), budget.progress) == (None, None, 0.0)
    assert budget.reserve("a", 10**12)
    budget.settle("a", 7)
    assert budget.spent == 7


def test_the_budget_resumes_with_what_was_spent():
    budget, back = Budget(100, 40), Budget(100)
    back.load_state_dict(budget.state_dict())
    assert (back.spent, back.available(), back.progress) == (40, 60, 0.4)


CASES = {
    "all trained": {"script": "rw", "sections": {}},
    "no signal": {"script": "r", "sections": {}},
    "failures": {"script": "rfwl", "sections": {}},
    "all fail": {"script": "f", "sections": {}},
    "gate": {"script": "rwi", "sections": {"filter": {"gates": [{"name": "format"}]}}},
    "overlong": {"script": "rwt", "sections": {"filter": {"admission": {"overlong": "mask"}}}},
    "refill": {
        "script": {t.prompt: "rw" if i % 3 else "w" for i, t in enumerate(tasks(9))},
        "sections": {"control": {"groups": 2, "refill": {"name": "dynamic-sampling", "oversample": 2.0}}},
    },
    "staged": {"script": "wwrw", "sections": {"control": {"allocate": {"name": "staged", "stages": 2, "k": 2}}}},
    "reuse": {
        "script": lambda prompt, nth: "r" if nth == 0 else "w",
        "sections": {"replay": {"store": [{"name": "correct"}], "augment": [{"name": "ar3po"}]}},
    },
    "baseline only": {
        "script": lambda prompt, nth: "r" if nth == 0 else "w",
        "sections": {"replay": {"store": [{"name": "correct"}], "augment": [{"name": "ar3po", "option": 2}]}},
    },
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("limit", [None, 700, 150])
def test_every_generated_token_is_trained_or_discarded_under_one_reason(name, limit):
    case = CASES[name]
    made = lab(case["script"], n_tasks=9, k=4, limit=limit, **case["sections"])
    ledger, trained = Ledger(), 0
    for _ in range(3):
        round_ = made.drive()
        ledger.settle_round(list(round_.groups.values()), dict(round_.failed))
        fresh = {m.rollout.id: m for g in round_.groups.values() for m in g.members.values() if m.fresh}
        if round_.ready() is not None:
            trained += sum(fresh[i].rollout.cost.generated for i in batch_of(round_).rollout_ids if i in fresh)
    assert ledger.total.generated == made.engine.decoded == made.budget.spent
    assert ledger.total.generated == trained + ledger.discarded.total()
    assert ledger.total.discarded == ledger.discarded.total()
    assert limit is None or made.budget.spent <= limit
    assert made.budget.held == 0


def test_closing_a_round_midway_discards_what_it_had():
    made = lab("rw", n_tasks=2, k=2)
    round_ = made.round()
    from test_round_protocol import answer

    for ask in round_.ask()[:3]:
        round_.tell(answer(made, ask))
    round_.close("shutdown")
    ledger = Ledger()
    ledger.settle_round(list(round_.groups.values()), dict(round_.failed))
    assert ledger.total.generated == made.budget.spent == 8 + 4 + 8
    assert dict(ledger.discarded) == {"abandoned": 20}


def test_the_ledger_resumes():
    made = lab("rfwt", filter={"admission": {"overlong": "mask"}})
    round_ = made.drive()
    ledger, back = Ledger(), Ledger()
    ledger.settle_round(list(round_.groups.values()), dict(round_.failed))
    back.load_state_dict(ledger.state_dict())
    assert back == ledger
    assert ledger.discarded["overlong"] == 16
    assert ledger.stops == {"eos": 3, "max_tokens": 1} or ledger.stops["max_tokens"] == 1


def test_metrics_read_completed_groups_and_mean_over_nothing_is_null():
    made = lab({t.prompt: s for t, s in zip(tasks(3), ["rw", "w", "r"])}, n_tasks=3, k=2)
    round_ = made.drive()
    row = step_metrics(list(round_.groups.values()), round_.decisions)
    assert (row["share_mixed"], row["share_all_wrong"], row["share_all_right"]) == (pytest.approx(1 / 3),) * 3
    assert (row["reward_mean"], row["rollouts"], row["groups_trained"]) == (0.5, 6, 1)
    assert row["entropy_mean"] == 0.5
    empty = step_metrics([], [])
    assert {empty[k] for k in ("reward_mean", "share_mixed", "response_length_mean", "entropy_mean", "share_truncated")} == {
        None
    }


def test_shuffled_signals_are_the_same_ones_on_other_members():
    made = lab("rrww", n_tasks=6, seed=1, run={"shuffle_rewards": True})
    round_ = made.drive()
    groups = list(round_.groups.values())
    right = [m.signals.correct for g in groups for m in g.members.values()]
    said = [
        "#" in "".join(map(str, m.rollout.own_tokens())) or len(m.rollout.own_tokens()) == 8
        for g in groups
        for m in g.members.values()
    ]
    assert sum(right) == 12
    assert right != said
    again = [m.signals.correct for g in groups for m in g.members.values()]
    shuffle_signals(groups, 1, 5)
    assert sorted(again) == sorted(m.signals.correct for g in groups for m in g.members.values())


def test_tokens_of_judging_models_are_in_the_ledger_once():
    """Of fresh members only: a replayed one was paid for when it was judged."""
    round_ = lab("rw", k=2).drive()
    (group,) = round_.groups.values()
    for member in group.members.values():
        verdicts = {name: replace(verdict, tokens=11) for name, verdict in member.signals.verdicts.items()}
        member.signals = replace(member.signals, verdicts=verdicts)
    group.members["old"] = replace(member, role=Role.INJECTED)
    ledger = Ledger()
    ledger.settle_round([group], {})
    assert ledger.total.judged == 22
