"""MoPPS: its posterior is the run's table, and its draws are those of its state."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gfcr.context import Build, View
from gfcr.control.posterior import PosteriorSettings, PosteriorTable
from gfcr.control.select.mopps import MoPPS
from gfcr.errors import ConfigError
from group_cases import group
from lifecycle_cases import batch_of, lab, tasks

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "mopps.json").read_text())
FLAT = {"bucket": "flat", "strength": 2.0}


def seen(task, right, wrong):
    return group([1.0] * right + [0.0] * wrong, name=f"{task.id}-", binary=True, of=task)


def made(n=8, **settings):
    return MoPPS(MoPPS.Settings(**settings), Build(3, tasks(n), 4, 8, 16))


def view(number, posterior):
    return View(number, 0, 3, posterior, None)


def table(n=8, **settings):
    return PosteriorTable(tasks(n), PosteriorSettings(**{**FLAT, **settings}))


@pytest.mark.parametrize("case", GOLDEN["posterior"], ids=lambda c: c["name"])
def test_the_posterior_equals_the_golden_vector(case):
    posterior, task = table(2, forgetting=case["forgetting"]), tasks(1)[0]
    for (right, wrong), expected in zip(case["visits"], case["beta"], strict=True):
        posterior.observe([seen(task, right, wrong)])
        assert [float(x[0]) for x in posterior.beta([task.id])] == expected
    assert [float(x[1]) for x in posterior.beta()] == [1.0, 1.0], "what one task showed is no other's prior"


def test_the_posterior_through_the_recipe_equals_the_golden_vector():
    """Three rounds of the recipe, one task, eight answers each: a and b after each round."""
    case = GOLDEN["posterior"][1]
    answers = "".join("r" * right + "w" * wrong for right, wrong in case["visits"])
    run = lab(
        lambda p, nth: answers[nth],
        k=8,
        control={"select": {"name": "mopps"}, "posterior": {**FLAT, "forgetting": case["forgetting"]}},
    )
    for expected in case["beta"]:
        run.drive()
        assert [float(x[0]) for x in run.slots.posterior.beta()] == expected


@pytest.mark.parametrize("candidates", [1e308, 1.7e308, 2.0**70])
def test_more_candidates_than_any_number_are_the_whole_task_set(candidates):
    every, few = made(candidates=candidates), made(candidates=8.0)
    assert every.select(5, frozenset(), view(0, table())) == few.select(5, frozenset(), view(0, table()))
    assert len(every.select(50, frozenset(), view(1, table()))) == 8


class Drawn:
    """A posterior so sharp that every draw is its mean."""

    def __init__(self, theta):
        self.theta = dict(theta)

    def beta(self, ids):
        mean = np.array([self.theta[i] for i in ids])
        return mean * 1e9, (1 - mean) * 1e9


def test_the_nearest_to_the_target_are_taken_in_order():
    rule = GOLDEN["rule"]
    posterior = Drawn({t.id: theta for t, theta in zip(tasks(6), rule["theta"])})
    picks = made(6).select(6, set(), view(0, posterior))
    assert [tasks(6).index(p.task) for p in picks] == rule["nearest"]
    assert [p.data["theta"] for p in picks] == pytest.approx([rule["theta"][i] for i in rule["nearest"]], abs=1e-3)
    assert {tasks(6).index(p.task) for p in made(6, target=0.9).select(2, set(), view(0, posterior))} == {4, 5}


def test_the_band_is_uniform_inside_and_then_the_nearest():
    rule = GOLDEN["rule"]
    posterior = Drawn({t.id: theta for t, theta in zip(tasks(6), rule["theta"])})
    selector = made(6, rule="band")
    first = Counter()
    for number in range(300):
        order = [tasks(6).index(p.task) for p in selector.select(6, set(), view(number, posterior))]
        assert sorted(order[:3]) == rule["band_inside"] and order[3:] == rule["band_outside"]
        first[order[0]] += 1
    assert min(first.values()) > 60


def test_candidates_are_drawn_anew_so_that_no_task_is_excluded_for_good():
    """Two candidates for one task taken: the far one is alone with another far one now and then."""
    posterior = Drawn({t.id: 0.5 if i < 6 else 0.99 for i, t in enumerate(tasks(8))})
    selector = made(8, candidates=2)
    counts = Counter(p.task.prompt for i in range(400) for p in selector.select(1, set(), view(i, posterior)))
    assert set(counts) == {t.prompt for t in tasks(8)}
    assert counts[tasks(8)[7].prompt] < counts[tasks(8)[0].prompt] / 2


def test_never_an_excluded_task_never_one_twice_and_never_more_than_there_are():
    posterior = table()
    for i in range(20):
        picks = [p.task.id for p in made().select(5, {tasks(8)[0].id}, view(i, posterior))]
        assert len(picks) == len(set(picks)) == 5 and tasks(8)[0].id not in picks
    assert made().select(3, {t.id for t in tasks(8)}, view(0, posterior)) == []
    assert made().select(0, set(), view(0, posterior)) == []
    assert len(made().select(99, set(), view(0, posterior))) == 8


def test_a_resumed_selector_draws_what_the_uninterrupted_one_draws():
    posterior = table()
    whole, killed, resumed = made(candidates=1.5), made(candidates=1.5), made(candidates=1.5)
    expected = [[p.task.id for p in whole.select(3, set(), view(i, posterior))] for i in range(9)]
    drawn = [[p.task.id for p in killed.select(3, set(), view(i, posterior))] for i in range(4)]
    resumed.load_state_dict(json.loads(json.dumps(killed.state_dict())))
    assert drawn + [[p.task.id for p in resumed.select(3, set(), view(i, posterior))] for i in range(4, 9)] == expected
    assert len({tuple(d) for d in expected}) > 5, "draws differ from round to round"


def test_the_rounds_learn_what_is_neither_too_easy_nor_too_hard():
    """Six tasks that are always right, two that are half right: the half right ones take over."""
    half = {t.prompt for t in tasks(8)[:2]}
    run = lab(
        lambda p, nth: "rw"[nth % 2] if p in half else "r",
        n_tasks=8,
        control={"groups": 2, "select": {"name": "mopps"}, "posterior": {**FLAT, "forgetting": 1.0}},
    )
    rounds = [run.drive() for _ in range(20)]
    late = [g.task.prompt for round_ in rounds[10:] for g in round_.groups.values()]
    assert sum(prompt in half for prompt in late) > 0.8 * len(late)
    assert all(d.data["theta"] <= 1 for d in rounds[0].decisions if d.slot == "select")
    assert len(batch_of(rounds[-1])) > 0


def test_an_upside_down_band_is_refused():
    with pytest.raises(ConfigError, match=r"low = 0.8 exceeds high = 0.7"):
        made(low=0.8)
