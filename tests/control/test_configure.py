"""Laws and lengths that differ: over training, within an answer, between tasks, by difficulty; from recipe to batch."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gfcr.context import Build, Configuration, View
from gfcr.control.configure.base import Change, configurator
from gfcr.control.posterior import PosteriorSettings, PosteriorTable
from gfcr.errors import ConfigError
from gfcr.registry import Slot, find, names, settings_of
from gfcr.run.metrics import step_metrics
from gfcr.run.sampling_metrics import label
from gfcr.types import Group, Member, Role, Rollout, Sampling, Signals, Status, StopReason, Verdict
from lifecycle_cases import batch_of, lab, tasks

TASKS = tasks(3)
BUILD = Build(0, TASKS, 3, 4, 256)
BASE = Configuration(Sampling(temperature=0.9), 256)
BASE_1 = Configuration(Sampling(), 256)


def view(progress=0.0, number=0):
    return View(number, 0, 0, PosteriorTable(TASKS, PosteriorSettings()), None, progress)  # type: ignore[arg-type]


def made(name, **settings):
    found = find(Slot.CONFIGURE, name)
    return found.cls(settings_of(found, settings), BUILD)


def group(task=TASKS[0], answers=()):
    out = Group("g", task, 0, 0, stage=1)
    for i, (answer, right) in enumerate(answers):
        verdict = None if right is None else Verdict("v", "1", Status.SCORED, float(right), right, answer=answer)
        signals = Signals() if verdict is None else Signals({"v": verdict}, "v")
        out.members[str(i)] = Member(Rollout(str(i), task.id, (), StopReason.EOS), Role.FRESH, signals=signals)
    return out


def edited(name, share=0.0, number=0, given=None, **settings):
    return made(name, **settings).edit(BASE, given or group(), view(share, number))


def test_linear_cosine_and_steps_over_the_run():
    line = {"start": 1.2, "end": 0.6}
    assert [edited("schedule", x, **line).sampling.temperature for x in (0, 0.5, 1)] == [1.2, 0.9, 0.6]
    wave = [edited("schedule", x, shape="cosine", **line).sampling.temperature for x in (0, 0.25, 0.5, 1)]
    assert wave == pytest.approx([1.2, 0.6 + 0.3 * (1 + math.cos(math.pi / 4)), 0.9, 0.6], abs=1e-6)
    steps = {"what": "top_k", "shape": "steps", "start": 0, "points": ((0.25, 20), (0.5, 5))}
    assert [edited("schedule", x, **steps).sampling.top_k for x in (0, 0.25, 0.4, 0.5, 1)] == [0, 20, 20, 5, 5]
    by_round = {"by": "round", "over": 10, "what": "min_p", "start": 0.0, "end": 0.1}
    assert [edited("schedule", 0.9, n, **by_round).sampling.min_p for n in (0, 5, 10, 99)] == [0.0, 0.05, 0.1, 0.1]
    assert edited("schedule", what="top_p", start=0.8).sampling.temperature == 0.9  # the rest stays


def test_the_length_decays_as_in_train_long_think_short():
    """arXiv:2508.08940: B(t) = max(1, B0 gamma^floor(t / T)), B0 = 256."""
    decay = {"what": "max_tokens", "shape": "decay", "start": 256.0, "gamma": 0.7, "every": 10}
    got = [edited("schedule", number=n, **decay).max_tokens for n in (0, 9, 10, 19, 20, 1000)]
    assert got == [256, 256, 179, 179, 125, 1]


def test_within_an_answer_warm_then_cool():
    how = edited("within", points=((0, 1.2), (8, 0.7), (20, 0.5)))
    assert how.sampling.temperature == 1.2
    assert [(at, law.temperature) for at, law in how.later] == [(8, 0.7), (20, 0.5)]
    assert how.at(9) == (how.later[0][1], ((11, how.later[1][1]),))
    cold = edited("within", points=((4, 1.5),))
    assert cold.sampling.temperature == 0.9 and cold.later[0][1].temperature == 1.5


def test_turns_have_laws_and_lengths_of_their_own():
    how = edited("by-turn", turns=({"turn": 1, "temperature": 0.5, "max_tokens": 10}, {"turn": 3, "top_p": 0.9}))
    assert [how.turn(i).sampling.temperature for i in (0, 1, 2, 3)] == [0.9, 0.5, 0.5, 0.9]
    assert [how.turn(i).max_tokens for i in (0, 2, 5)] == [256, 10, 256]
    assert how.turn(4).sampling.top_p == 0.9 and not how.turn(4).turns
    assert len(set(how.laws)) == 3


def test_categories_and_metadata_have_laws_of_their_own():
    how = edited("by-category", laws={"one": {"temperature": 1.1, "banned": (3, 5), "max_tokens": 7}})
    assert (how.sampling.temperature, how.sampling.banned, how.max_tokens) == (1.1, (3, 5), 7)
    with pytest.raises(ConfigError, match="no task has category = 'two'"):
        made("by-category", laws={"two": {}})
    with pytest.raises(ConfigError, match="no task has level"):
        made("by-category", key="level", laws={"1": {}})


def test_hotter_for_hard_tasks_and_for_false_agreement():
    table = PosteriorTable(TASKS, PosteriorSettings(bucket="flat"))
    table.observe_outcomes([(TASKS[0].id, 0, 6), (TASKS[1].id, 6, 0)])
    seen = View(1, 0, 0, table, None)  # type: ignore[arg-type]
    hot, cool, new = (made("uncertain", low=0.5, high=1.5).edit(BASE, group(t), seen).sampling.temperature for t in TASKS)
    assert (hot, cool, new) == (0.5 + 7 / 8, 0.5 + 1 / 8, 1.0)  # 1 - E[p] of Beta(1, 7), Beta(7, 1), Beta(1, 1)

    def asked(*answers):
        return edited("uncertain", given=group(answers=answers), by="answers", low=1.0, high=2.0).sampling.temperature

    assert asked(("1", False), ("1", False)) == 2.0  # all wrong in one voice
    assert asked(("1", False), ("2", False)) == 1.0  # all wrong, no two alike
    assert asked(("1", True), ("1", True)) == 1.0
    assert asked(("1", False), ("1", False), ("1", False), ("2", True)) == pytest.approx(
        1 + 0.75 * (1 - 0.5623351 / math.log(4)), abs=1e-3
    )
    assert asked(("1", None)) == 0.9  # nobody judged them: nothing is known, so nothing changes


def test_several_stand_in_a_list_each_on_what_the_one_before_left():
    made_ = lab(
        "rwrw",
        2,
        generate={"max_tokens": 16, "sampling": {"temperature": 1.0}},
        control={
            "configure": [
                {"name": "schedule", "what": "max_tokens", "start": 12.0, "end": 8.0, "by": "round", "over": 2},
                {"name": "schedule", "start": 1.0, "end": 0.5},
                {"name": "within", "points": [[2, 0.25]]},
            ]
        },
        budget={"steps": 2},
    )
    first, second = made_.drive(), made_.drive()
    for round_, longest, warm in ((first, 12, 1.0), (second, 10, 0.75)):
        batch = batch_of(round_)
        asked = [r for r in made_.engine.requests if r.sampling.temperature == warm]
        assert len(asked) == 8 and {r.max_new_tokens for r in asked} == {longest}
        for row in range(len(batch)):  # two tokens under the first law, the rest under the one that follows
            span = slice(batch.offsets[row], batch.offsets[row + 1])
            heat = batch.temperature[span][batch.rl_mask[span]]
            assert heat.tolist() == [warm] * 2 + [0.25] * (len(heat) - 2)
            old = -0.1 * np.arange(1, len(heat) + 1)  # the engine's, in order
            assert batch.behaviour[span][batch.rl_mask[span]] == pytest.approx(old)
    members = [m for g in first.groups.values() for m in g.members.values()]
    assert {tuple(s.sampling.temperature for s in m.rollout.actions()) for m in members} == {(1.0, 0.25)}


@pytest.mark.parametrize(
    ("name", "settings", "what"),
    [
        ("schedule", {"what": "max_tokens", "start": 300.0}, "outside 1 to generate.max_tokens = 256"),
        ("schedule", {"shape": "steps"}, "without points"),
        ("schedule", {"shape": "steps", "points": ((0.5, 1.0), (0.5, 2.0))}, "do not rise"),
        ("schedule", {"shape": "decay"}, "decay"),
        ("schedule", {"what": "top_p", "end": 0.0}, "sampling.top_p = 0.0 is outside its range"),
        ("within", {"points": ((5, 1.0), (5, 0.5))}, "do not rise"),
        ("within", {"points": ((5, -1.0),)}, "sampling.temperature = -1.0"),
        ("by-turn", {}, "turns start at"),
        ("by-turn", {"turns": ({"turn": 1}, {"turn": 1})}, "turns start at"),
        ("by-category", {"laws": {"one": {"max_tokens": 300}}}, "outside 1 to generate.max_tokens"),
    ],
)
def test_what_cannot_be_is_refused(name, settings, what):
    with pytest.raises(ConfigError, match=what):
        made(name, **settings)


class Greedy:
    """A third party's, that asks for more than was planned."""

    def edit(self, how, group, view):
        return Change(max_tokens=512).of(how)


def test_more_tokens_than_planned_are_refused_whoever_asks():
    with pytest.raises(ConfigError, match=r"Greedy asks for answers of 512 tokens, generate\.max_tokens is 256"):
        configurator(Sampling(), 256, [Greedy()]).configure(group(), view())


class Undeclared:
    """A third party's, of laws that its traits say nothing of."""

    def __init__(self, **change):
        self.change = Change(**change)

    def edit(self, how, group, view):
        return self.change.of(how)


class InTurns(Undeclared):
    def edit(self, how, group, view):
        return replace(how, turns=((2, self.change.of(how)),))


@pytest.mark.parametrize(
    ("method", "trait"),
    [
        (Undeclared(top_p=0.9), "truncates"),
        (Undeclared(banned=(3,)), "truncates"),
        (Undeclared(presence_penalty=0.5), "penalises"),
        (InTurns(temperature=0.5), "lays out laws"),
        (InTurns(top_k=4), "truncates"),
    ],
)
def test_a_law_of_a_kind_that_nobody_declared_is_refused(method, trait):
    all_ = frozenset({"truncates", "penalises", "lays out laws"})
    with pytest.raises(ConfigError, match=f"{type(method).__name__} gave .* and does not say so") as caught:
        configurator(Sampling(), 256, [method], all_ - {trait}).configure(group(), view())
    assert f"declare the trait '{trait}'" in caught.value.remedy
    assert (
        configurator(Sampling(), 256, [method], all_).configure(group(), view()).laws[-1] == method.change.of(BASE_1).sampling
    )


def test_the_recipes_own_truncation_needs_no_declaration():
    how = configurator(Sampling(top_p=0.9), 256, [Undeclared(top_k=5)], frozenset()).configure(group(), view())
    assert how.sampling == Sampling(top_p=0.9, top_k=5)


LAWS = {
    "schedule": [
        {"what": w, "start": a, "end": b} for w, a, b in (("top_p", 1, 0.8), ("top_k", 0, 9), ("frequency_penalty", 0.2, 0))
    ],
    "within": [{"what": "min_p", "points": ((3, 0.1), (8, 0.0))}, {"points": ((0, 1.2), (9, 0.8))}],
    "by-turn": [{"turns": ({"turn": 1, "top_p": 0.9}, {"turn": 2, "repetition_penalty": 1.1})}],
    "by-category": [{"laws": {"one": {"banned": (3,), "presence_penalty": 0.1}}}],
    "uncertain": [{"low": 0.5, "high": 1.0}],
}


@pytest.mark.parametrize("name", names(Slot.CONFIGURE))
def test_what_is_built_in_declares_every_law_it_gives(name):
    """`configurator` refuses what is not declared; here with exactly the traits the composition check sees."""
    found = find(Slot.CONFIGURE, name)
    for settings in LAWS[name]:
        values = settings_of(found, settings)
        asked = configurator(Sampling(), 256, [found.cls(values, BUILD)], found.traits | values.traits())
        seen = {law for share in (0.0, 0.3, 1.0) for law in asked.configure(group(), view(share)).laws}
        assert seen - {Sampling()}, settings


def test_metrics_tell_laws_kept_mass_and_distinct_answers():
    made_ = lab("rrww", 1, control={"configure": {"name": "within", "points": [[2, 0.25]]}})
    round_ = made_.drive()
    row = step_metrics(list(round_.groups.values()), round_.decisions)
    assert row["laws"] == {"temperature 0.25": pytest.approx(16 / 24), "temperature 1": pytest.approx(8 / 24)}
    assert row["distinct_answers"] == 0.5 and row["kept_mass_mean"] is None  # two answers of four members
    assert label(Sampling(0.7, top_p=0.9, banned=(1, 2))) == "temperature 0.7, top_p 0.9, 2 banned"
    assert step_metrics([], [])["distinct_answers"] is None
