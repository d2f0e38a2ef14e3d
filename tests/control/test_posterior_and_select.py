"""The posterior table, and selectors that read it: what they learn, and that a resume draws the same."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.context import Build, View
from gfcr.control.posterior import PosteriorSettings, PosteriorTable
from gfcr.control.refill import DynamicSampling, informative
from gfcr.control.select.informative import Informative, informative_probability
from gfcr.control.select.oracle import Oracle
from gfcr.control.select.uniform import Epochs
from gfcr.errors import ConfigError
from gfcr.types import Role, Task
from group_cases import group, member
from lifecycle_cases import lab, tasks

GROUPS = json.loads((Path(__file__).parents[1] / "golden" / "groups.json").read_text())["informative_probability"]


def table(n=4, **settings):
    return PosteriorTable(tasks(n), PosteriorSettings(**settings))


def seen(task, right, wrong, unscorable=0):
    return group([1.0] * right + [0.0] * wrong + [None] * unscorable, name=f"{task.id}-", binary=True, of=task)


@pytest.mark.parametrize(("p", "expected"), GROUPS["cases"])
def test_probability_of_an_informative_group(p, expected):
    assert float(informative_probability(np.float64(p), GROUPS["k"])) == pytest.approx(expected, abs=6e-4)


def test_a_task_nobody_saw_has_its_buckets_prior():
    made = table(2)
    a, b = made.beta()
    assert (a.tolist(), b.tolist()) == ([1.0, 1.0], [1.0, 1.0])
    made.observe([seen(tasks(1)[0], 6, 0)])
    a, b = made.beta()
    mean = (6 + 1) / (6 + 2)
    assert a == pytest.approx([2 * mean + 6, 2 * mean])
    assert b == pytest.approx([2 * (1 - mean)] * 2)


def test_buckets_do_not_leak_into_each_other():
    both = [Task("t", "a", category="easy"), Task("t", "b", category="hard"), Task("t", "c", category="hard")]
    made = PosteriorTable(both, PosteriorSettings())
    made.observe([seen(both[1], 0, 8)])
    a, b = made.beta([t.id for t in both])
    assert a[0] == b[0] == 1.0
    assert a[2] / (a[2] + b[2]) == pytest.approx(1 / 10)


def test_forgetting_decays_the_visited_tasks_observations_only():
    made, (one, two) = table(2, forgetting=0.5), tasks(2)
    made.observe([seen(one, 4, 4), seen(two, 2, 0)])
    made.observe([seen(one, 0, 2)])
    assert made._right.tolist() == [2.0, 2.0]
    assert made._wrong.tolist() == [4.0, 0.0]
    assert made.visits.tolist() == [2, 1]


def test_the_same_task_twice_in_a_round_is_one_visit_of_both_groups():
    made, (one, _) = table(2, forgetting=0.5), tasks(2)
    made.observe([seen(one, 4, 0)])
    made.observe([seen(one, 1, 0), seen(one, 0, 1)])
    assert (made._right[0], made._wrong[0]) == (3.0, 1.0)


def test_posteriors_read_correctness_of_fresh_judged_members_only():
    """Neither reward nor shape, nor replayed, nor unscorable ones (invariant 5)."""
    made, (one, _) = table(2), tasks(2)
    observed = seen(one, 1, 1, unscorable=3)
    for role in (Role.INJECTED, Role.REPLAYED, Role.DEMO):
        observed.members[role] = member(role, 1.0, True, role=role)
    for item in observed.members.values():
        if item.signals.reward == 0.0:
            item.signals = type(item.signals)(item.signals.verdicts, "v", {}, 0.9, shaped=5.0)
    made.observe([observed])
    assert (made._right[0], made._wrong[0]) == (1.0, 1.0)


def test_a_group_nobody_could_judge_teaches_nothing():
    made, (one, _) = table(2, forgetting=0.5), tasks(2)
    made.observe([seen(one, 4, 0)])
    made.observe([seen(one, 0, 0, unscorable=4)])
    assert (made._right[0], made.visits[0]) == (4.0, 1)


def test_the_table_resumes_and_refuses_another_task_set():
    made, other = table(3), table(3)
    made.observe([seen(tasks(3)[1], 3, 1)])
    other.load_state_dict(made.state_dict())
    assert [x.tolist() for x in other.beta()] == [x.tolist() for x in made.beta()]
    with pytest.raises(ValueError, match="does not fit a task set of 2"):
        table(2).load_state_dict(made.state_dict())


@pytest.mark.parametrize(
    "bad", [{"strength": 0}, {"forgetting": 1.5}, {"forgetting": float("nan")}, {"strength": float("inf")}]
)
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(ValueError):
        PosteriorSettings(**bad)


def build(n, k=8):
    return Build(3, tasks(n), 4, k, 16)


def view(number, posterior=None):
    return View(number, 0, 3, posterior or table(8), None)


def test_the_selector_prefers_open_tasks_and_keeps_a_chance_for_all():
    posterior, all_tasks = table(8, forgetting=1.0), tasks(8)
    posterior.observe([seen(t, 4, 4) if i < 2 else seen(t, 12, 0) for i, t in enumerate(all_tasks)])
    made = Informative(Informative.Settings(), build(8))
    counts = Counter(p.task.prompt for i in range(400) for p in made.select(2, set(), view(i, posterior)))
    assert set(counts) == {t.prompt for t in all_tasks}
    assert all(counts[t.prompt] > 2 * counts[u.prompt] for t in all_tasks[:2] for u in all_tasks[2:])


def test_the_selector_draws_without_replacement_and_never_an_excluded_task():
    made = Informative(Informative.Settings(), build(8))
    for i in range(30):
        picks = [p.task.id for p in made.select(6, {tasks(8)[0].id}, view(i))]
        assert len(picks) == len(set(picks)) == 6
        assert tasks(8)[0].id not in picks
    assert len(made.select(99, {t.id for t in tasks(8)}, view(0))) == 0
    assert len(made.select(99, set(), view(0))) == 8


def test_power_zero_is_uniform_and_order_of_calls_does_not_matter_within_a_key():
    one, two = (Informative(Informative.Settings(), build(8)) for _ in range(2))
    assert [p.task.id for p in one.select(3, set(), view(0))] == [p.task.id for p in two.select(3, set(), view(0))]
    assert [p.task.id for p in one.select(3, set(), view(0))] != [
        p.task.id for p in Informative(Informative.Settings(), Build(4, tasks(8), 4, 8, 16)).select(3, set(), view(0))
    ]


@pytest.mark.parametrize(
    "make",
    [lambda: Informative(Informative.Settings(), build(8)), lambda: lab("r", n_tasks=8, seed=3).slots.select],
    ids=["informative", "uniform"],
)
def test_a_resumed_selector_draws_what_the_uninterrupted_one_draws(make):
    whole, killed = make(), make()
    expected = [[p.task.id for p in whole.select(3, set(), view(i))] for i in range(9)]
    drawn = [[p.task.id for p in killed.select(3, set(), view(i))] for i in range(4)]
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(killed.state_dict())))
    drawn += [[p.task.id for p in resumed.select(3, set(), view(i))] for i in range(4, 9)]
    assert drawn == expected


@given(n=st.integers(1, 12), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30), resume=st.integers(0, 29))
def test_uniform_epochs_hand_out_every_task_exactly_once_per_epoch(n, sizes, resume):
    """Across waves of any size and a resume at any of them: no task is skipped, none repeated within an epoch."""
    source = Epochs(5, tasks(n))
    drawn = []
    for i, size in enumerate(sizes):
        if i == resume:
            other = Epochs(5, tasks(n))
            other.load_state_dict(json.loads(json.dumps(source.state_dict())))
            source = other
        picks = [p.task.id for p in source.take(size, set())]
        assert len(picks) == len(set(picks)) == min(size, n)
        drawn += picks
    counts = Counter(drawn)
    assert max(counts.values()) - min(counts[t.id] for t in tasks(n)) <= 2
    owed = {tasks(n)[i].id for i in source.waiting}
    for task in tasks(n):
        walked = task.id in {tasks(n)[i].id for i in source._order[: source.cursor]}
        assert counts[task.id] == source.epoch + (walked and task.id not in owed)


def test_a_task_passed_over_comes_first_in_the_next_round():
    source = Epochs(0, tasks(4))
    order = [source.tasks[i].id for i in source._order]
    assert [p.task.id for p in source.take(1, {order[0]})] == [order[1]]
    assert [p.task.id for p in source.take(2, set())] == [order[0], order[2]]


def test_epochs_without_tasks_or_with_all_excluded_end():
    assert Epochs(0, []).take(3, set()) == []
    assert Epochs(0, tasks(3)).take(3, {t.id for t in tasks(3)}) == []


def test_the_oracle_draws_from_its_set_only_and_names_the_sets_there_are():
    chosen = frozenset(t.id for t in tasks(8)[:3])
    made = Oracle(Oracle.Settings(), Build(0, tasks(8), 4, 8, 16, {"informative": chosen}))
    assert {p.task.id for i in range(5) for p in made.select(2, set(), view(i))} == chosen
    with pytest.raises(ConfigError, match="no set 'easy'"):
        Oracle(Oracle.Settings(tasks="easy"), Build(0, tasks(8), 4, 8, 16, {"informative": chosen}))


def test_the_zero_variance_test_reads_whole_groups_and_correctness():
    assert informative(seen(tasks(1)[0], 7, 1))
    assert not informative(seen(tasks(1)[0], 8, 0, unscorable=1))
    assert informative(group([0.0] + [0.95] * 7))
    assert not informative(group([0.2] * 8))
    assert not informative(group([0.1] * 3))
    assert not informative(group([0.5] * 8)), "a mean strictly inside the range is no sign of variance"
    assert not informative(group([1.0])) and not informative(group([]))
    shaped = seen(tasks(1)[0], 0, 3)
    for i, one in enumerate(shaped.members.values()):
        one.signals = type(one.signals)(one.signals.verdicts, "v", {}, 0.0, shaped=-float(i))
    assert not informative(shaped)


def test_an_injected_right_answer_makes_no_group_informative():
    made = seen(tasks(1)[0], 0, 3)
    made.members["x"] = member("x", 1.0, True, role=Role.INJECTED)
    assert not informative(made)


@pytest.mark.parametrize(("oversample", "wanted"), [(1.0, 3), (3.0, 9), (0.1, 1)])
def test_a_refill_asks_for_at_least_one_group_while_any_is_missing(oversample, wanted):
    made = DynamicSampling(DynamicSampling.Settings(oversample=oversample), build(1))
    closed = [seen(t, 1, 1) for t in tasks(2)] + [seen(tasks(3)[2], 2, 0)]
    assert made.wanted(closed, 5, None) == wanted
    assert made.wanted(closed, 2, None) == made.wanted(closed, 1, None) == 0


@pytest.mark.parametrize("bad", [{"max_waves": 0}, {"max_waves": -1}])
def test_a_refill_without_bound_is_refused(bad):
    with pytest.raises(ConfigError, match="would refill without bound"):
        DynamicSampling(DynamicSampling.Settings(**bad), build(1))
