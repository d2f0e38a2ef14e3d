"""Every loop of a round ends and says why (invariant 6): each case is the smallest input that once made a framework hang."""

import pytest

from gfcr.control.slots import Allocation
from gfcr.drivers import base
from gfcr.drivers.stream import StreamDriver
from gfcr.drivers.wave import WaveDriver
from gfcr.run.ledger import Ledger
from gfcr.types import Drop, GroupState
from lifecycle_cases import Lab, batch_of, lab, tasks

DS = {"refill": {"name": "dynamic-sampling", "max_waves": 3}}


def actions(round_, slot):
    return [d.action for d in round_.decisions if d.slot == slot]


def reasons(round_, slot, action):
    return [d.reason for d in round_.decisions if (d.slot, d.action) == (slot, action)]


def test_dynamic_sampling_on_one_always_solved_task_ends_with_the_cause():
    round_ = lab("r", control=DS).drive()
    assert len(batch_of(round_)) == 0
    assert reasons(round_, "refill", "give_up") == ["no task or no budget left for another group"]
    assert round_.causes() == "1 groups all_right (tasks too easy)"


def test_dynamic_sampling_stops_at_its_bound_and_trains_on_what_it_has():
    made = lab({t.prompt: "r" for t in tasks(20)} | {"a+?05": "rw"}, n_tasks=20, control={"groups": 4, **DS}, seed=1)
    first = [p.task.prompt for p in made.slots.select.select(12, set(), None)]
    made = lab({t.prompt: "r" for t in tasks(20)} | {first[5]: "rw"}, n_tasks=20, control={"groups": 4, **DS}, seed=1)
    round_ = made.drive()
    assert (round_.wave, len(round_.groups)) == (3, 4 + 4 + 3)
    assert len(batch_of(round_)) == 4
    (bound,) = reasons(round_, "refill", "give_up")
    assert bound == "max_waves: 3 waves and 3 informative groups short; 10 groups all_right (tasks too easy), 1 groups mixed"


def test_dynamic_sampling_fills_the_batch_and_cuts_the_surplus():
    made = lab(
        {t.prompt: "rw" if i % 2 else "w" for i, t in enumerate(tasks(40))},
        n_tasks=40,
        k=2,
        control={"groups": 3, "refill": {"name": "dynamic-sampling", "oversample": 3.0}},
    )
    round_ = made.drive()
    batch = batch_of(round_)
    assert len(batch) == 3 * 2
    dropped = {m.drop for g in round_.groups.values() for m in g.members.values()}
    assert dropped >= {None, Drop.ZERO_VARIANCE}
    closed = [g for g in round_.groups.values() if g.composition == "mixed"]
    surplus = [g for g in closed if all(m.drop is Drop.SURPLUS for m in g.members.values())]
    assert len(closed) - len(surplus) == 3


def test_the_round_itself_bounds_a_refill_without_a_bound_of_its_own():
    made = lab("r", n_tasks=49, control={"groups": 1, "max_waves": 4, **DS})
    made.slots.refill.max_waves = 10**9
    round_ = made.drive()
    assert round_.wave == 4


def test_an_engine_that_always_fails_ends_with_the_cause():
    made = lab("f", n_tasks=2, k=3)
    round_ = made.drive()
    assert round_.ready() is None
    assert round_.reason == "all_abandoned: 2 groups too_few_members (engine: it broke or made no progress, after 3 attempts)"
    assert len(made.engine.requests) == 2 * 3 * 3
    assert actions(round_, "round").count("give_up") == 6
    assert made.budget.spent == 2 * 3 * 3 * 3
    assert round_.failed.total() == made.budget.spent


def test_a_request_that_the_engine_loses_is_asked_again_and_then_given_up():
    made = lab("lrw", k=3)
    round_ = made.drive()
    assert actions(round_, "round").count("retry") == 2  # lost, lost again, right
    assert len(batch_of(round_)) == 3
    gone = lab(lambda prompt, nth: "rwl"[nth] if nth < 3 else "l", k=3)
    round_ = gone.drive()
    assert len(batch_of(round_)) == 2
    assert reasons(round_, "round", "give_up") == ["lost: the engine forgot it, after 3 attempts"]


@pytest.mark.parametrize("driver", [WaveDriver, lambda e, c, j: StreamDriver(e, c, lambda: 0.0, j)], ids=["wave", "stream"])
def test_an_engine_without_progress_fails_its_requests_instead_of_waiting(driver, monkeypatch):
    monkeypatch.setattr(base, "MAX_IDLE_STEPS", 5)
    made = lab("rw", k=2)
    engine = made.engine
    step = engine.step
    engine.step = lambda tokens=None: [] if len(engine.requests) <= 2 else step(tokens)
    round_ = made.round()
    driver(engine, made.cascade, None).drive(round_)
    assert actions(round_, "round").count("retry") == 2
    assert len(batch_of(round_)) == 2


def test_an_engine_that_neither_advances_nor_gives_back_is_an_error_not_a_wait(monkeypatch):
    monkeypatch.setattr(base, "MAX_IDLE_STEPS", 5)
    made = lab("rw", k=2)
    made.engine.step, made.engine.cancel = (lambda tokens=None: []), (lambda request: None)
    with pytest.raises(RuntimeError, match="keeps 2 requests that it neither advances nor gives back"):
        made.drive()


def test_a_selector_that_returns_nothing_ends_the_round():
    made = lab("r")
    made.slots.select.select = lambda n, exclude, view: []
    round_ = made.drive()
    assert (round_.ready(), round_.reason) == (None, "no_tasks")


def test_a_budget_below_one_group_ends_the_round_before_the_first_token():
    made = lab("r", k=4, limit=4 * 16 - 1)
    round_ = made.drive()
    assert (round_.ready(), round_.reason, made.budget.spent) == (None, "budget", 0)


def test_a_round_that_cannot_afford_its_smallest_batch_does_not_start():
    made = lab("rw", n_tasks=4, k=2, limit=2 * 16 * 2 + 5, control={"min_groups": 3})
    round_ = made.drive()
    assert (round_.reason, made.budget.spent) == ("budget", 0)
    assert len(lab("rw", n_tasks=4, k=2, limit=2 * 16 * 3 + 5, control={"min_groups": 3}).drive().groups) == 3


def test_few_tasks_are_no_lack_of_budget():
    made = lab("rw", n_tasks=2, k=2, control={"groups": 4, "min_groups": 3})
    assert len(batch_of(made.drive())) == 4


def test_more_groups_are_not_opened_than_the_budget_carries():
    made = lab("rw", n_tasks=4, k=2, limit=2 * 16 * 2 + 20)
    round_ = made.drive()
    assert len(round_.groups) == 2
    assert len(batch_of(round_)) == 4


class Always:
    """Asks for one more, for ever."""

    def allocate(self, groups, view):
        return {g.id: Allocation(1, "one more") for g in groups}


def test_an_allocator_that_always_asks_is_stopped_at_max_stages():
    made = lab("rw", control={"max_stages": 5})
    made.slots.allocate = Always()
    round_ = made.drive()
    (group,) = round_.groups.values()
    assert (group.state, group.stage, len(group.members)) == (GroupState.CLOSED, 5, 5)
    assert group.reason == "max_stages: 5 stages and the allocator still asks"


def test_an_allocator_that_always_asks_is_stopped_by_the_budget_too():
    made = lab("rw", k=2, limit=40)
    made.slots.allocate = Always()
    (group,) = made.drive().groups.values()
    assert group.reason == "budget: no further rollout fits"
    assert made.budget.spent <= 40


def test_a_group_that_the_allocator_forgets_is_closed_not_lost():
    made = lab("rw", k=2)
    inner = made.slots.allocate
    made.slots.allocate = type(
        "Forgets", (), {"allocate": lambda self, groups, view: {i: a for i, a in inner.allocate(groups, view).items() if a.n}}
    )()
    round_ = made.drive()
    (group,) = round_.groups.values()
    assert (group.state, group.reason) == (GroupState.CLOSED, "the allocator gave no answer")
    assert len(batch_of(round_)) == 2


def test_a_prompt_too_long_for_the_model_leaves_the_round_with_its_reason():
    made = lab("rw", n_tasks=2, k=2, max_length=6 + 16 - 1)
    round_ = made.drive()
    assert round_.reason == "all_abandoned: 2 groups prompt_too_long (prompts exceed the model's context)"
    assert made.engine.requests == []


def test_a_prompt_that_just_fits_is_run():
    assert len(batch_of(lab("rw", k=2, max_length=6 + 16).drive())) == 2


def test_a_refused_request_is_given_up_after_its_retries():
    made = lab("rw", k=2)
    made.engine.max_length = 10  # the round was told more
    round_ = made.round()
    object.__setattr__(round_.settings, "max_context", None)
    WaveDriver(made.engine, made.cascade).drive(round_)
    assert actions(round_, "round").count("give_up") == 2
    assert "refused" in reasons(round_, "round", "give_up")[0]
    assert made.budget.held == 0


def test_a_group_below_its_least_members_is_abandoned_and_its_tokens_are_discarded():
    made = lab(lambda prompt, nth: "r" if nth == 0 else "f", k=3)
    round_ = made.drive()
    (group,) = round_.groups.values()
    assert group.state is GroupState.ABANDONED
    assert group.reason.startswith("too_few_members: 1 judged of 3 planned")
    assert [m.drop for m in group.members.values()] == [Drop.ABANDONED]
    assert booked(made, round_).discarded == {"abandoned": 8, "engine": made.budget.spent - 8}


def booked(made: Lab, round_):
    ledger = Ledger()
    ledger.settle_round(list(round_.groups.values()), dict(round_.failed))
    return ledger


def test_a_group_of_unscorable_answers_is_told_apart_from_wrong_ones():
    made = lab("rw", k=2)
    for task in made.tasks:
        object.__setattr__(task, "reference", None)
    round_ = made.drive()
    assert len(batch_of(round_)) == 0
    assert round_.causes() == "1 groups unscored (the verifier could judge nothing)"
    assert actions(round_, "filter") == ["unscorable"] * 2


def test_the_same_task_twice_in_a_round_makes_two_groups():
    from gfcr.control.slots import Pick

    made = lab("rwwr", k=2)
    made.slots.select.select = lambda n, exclude, view: [Pick(made.tasks[0], "again")] * 2
    round_ = made.drive()
    assert len(round_.groups) == len({g.id for g in round_.groups.values()}) == 2
    batch = batch_of(round_)
    assert batch.groups.tolist() == [0, 0, 1, 1]
    assert len(set(batch.rollout_ids)) == 4
