"""Verifiers that err: the noisy one, the corrections (card F-23's statements), and rates that the cascade measured."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.build import check_recipe, make_cascade
from gfcr.context import Build, View
from gfcr.errors import ConfigError
from gfcr.filter.credit.group import GRPO, DrGRPO
from gfcr.filter.judging import Rate
from gfcr.filter.killable import contained
from gfcr.filter.shape.noise import NoiseCorrection, Rates
from gfcr.filter.verifiers.noisy import Noisy
from gfcr.recipe import parse
from gfcr.registry import Settings
from gfcr.types import Rollout, Signals, Status, StopReason, Verdict
from group_cases import group
from lifecycle_cases import batch_of, decoder, lab, row_advantages, tasks

BUILD = Build(0, tasks(4), 1, 4, 16)
FN, FP = 0.2, 0.05
NOISE = {"false_negative": FN, "false_positive": FP}
VIEW = View(0, 0, 0, None, None)
rate = st.floats(0, 0.45)


def noisy(**settings):
    return Noisy(Noisy.Settings(**settings), BUILD)


def said(made, who, correct):
    """The member's verdict, by a verifier of this name."""
    one = Verdict(who, "1", Status.SCORED, float(correct), bool(correct))
    return Signals({who: one}, who, {who: float(correct)}, float(correct))


def judged(verdicts, name="g"):
    """A group whose members were judged by these verifiers: (name, right)."""
    made = group([float(c) for _, c in verdicts], name, binary=True)
    for one, (who, correct) in zip(made.members.values(), verdicts):
        one.signals = said(made, who, correct)
    return made


def shaped(made, **settings):
    """Corrected rewards in the members' order; the signals hold them afterwards."""
    found = NoiseCorrection(NoiseCorrection.Settings(**settings), BUILD).shape(made, VIEW)
    for key, value in found.items():
        made.members[key].signals = replace(made.members[key].signals, shaped=value)
    return list(found.values())


def credit(made, kind):
    one = GRPO(GRPO.Settings(std="sample", eps=0), BUILD) if kind == "grpo" else DrGRPO(Settings(), BUILD)
    return [c.advantage for c in one.credit(made, list(made.members.values())).values()]


# ---- the corrections -------------------------------------------------------------------------------------------


@given(fn=rate, fp=rate)
def test_backward_is_unbiased_and_forward_gives_j_times_the_gradient(fn, fp):
    rates = Rates(false_negative=fn, false_positive=fp)
    for true in (0, 1):
        says_right = 1 - fn if true else fp
        mean = says_right * rates.backward(True) + (1 - says_right) * rates.backward(False)
        assert mean == pytest.approx(true, abs=1e-9)
    forward = [p * rates.forward(True) + (1 - p) * rates.forward(False) for p in (fp, 1 - fn)]
    assert forward[1] == pytest.approx(0, abs=1e-9)
    assert forward[0] == pytest.approx(-rates.informed, abs=1e-9)


def test_values_of_the_card():
    made = judged([("v", 1), ("v", 0)])
    assert shaped(made, **NOISE) == pytest.approx([0.95 / 0.75, -0.05 / 0.75])
    assert shaped(judged([("v", 1), ("v", 0)]), form="forward", false_negative=0.2) == pytest.approx([0.2, -0.8])
    assert shaped(judged([("v", 1), ("v", 0)]), false_negative=0.5, false_positive=0.45) == pytest.approx(
        [5.0, -5.0]
    )  # clipped


@given(correct=st.lists(st.booleans(), min_size=2, max_size=9), fn=rate, fp=rate, form=st.sampled_from(["backward", "forward"]))
def test_one_pair_of_rates_is_invisible_under_a_std(correct, fn, fp, form):
    made = judged([("v", c) for c in correct])
    before = credit(made, "grpo")
    shaped(made, form=form, false_negative=fn, false_positive=fp, clip=100)
    assert credit(made, "grpo") == pytest.approx(before, abs=1e-9)


@given(correct=st.lists(st.booleans(), min_size=2, max_size=9))
def test_and_a_learning_rate_under_a_mean(correct):
    made = judged([("v", c) for c in correct])
    before = credit(made, "dr-grpo")
    shaped(made, **NOISE)
    assert credit(made, "dr-grpo") == pytest.approx([a / 0.75 for a in before])


def test_rates_that_differ_within_a_group_change_the_order():
    """Two noes: one of a verifier that misses four in ten right answers, one of a sure one. Corrected, they no longer weigh alike,
    under a mean and under a std."""
    by = {"rule": {"false_negative": 0.4, "false_positive": 0.1}}
    for kind in ("dr-grpo", "grpo"):
        made = judged([("sure", 1), ("sure", 0), ("rule", 0), ("rule", 1)])
        before = credit(made, kind)
        assert before[1] == before[2] and before[0] == before[3]
        assert shaped(made, by=by) == pytest.approx([1.0, 0.0, -0.2, 1.8])
        after = credit(made, kind)
        assert after[2] < after[1] < after[0] < after[3]
        made = judged([("sure", 1), ("sure", 0), ("rule", 0), ("rule", 1)])
        assert shaped(made, by=by, form="forward") == pytest.approx([0.0, -1.0, -0.6, 0.4])


def test_the_corrected_mean_is_the_true_one_where_rates_differ():
    """1,000 groups of two paths: the mean of corrected rewards is the share of right answers, that of noisy ones is not."""
    rng = np.random.default_rng(0)
    rates = {"a": (0.4, 0.1), "b": (0.05, 0.02)}
    true, noised, fixed = [], [], []
    for _ in range(1000):
        verdicts = []
        for who in ("a", "a", "b", "b"):
            right = rng.random() < 0.4
            fn, fp = rates[who]
            true.append(right)
            verdicts.append((who, rng.random() < (1 - fn if right else fp)))
        made = judged(verdicts)
        noised += [c for _, c in verdicts]
        fixed += shaped(made, by={who: {"false_negative": fn, "false_positive": fp} for who, (fn, fp) in rates.items()})
    error = float(np.std(fixed) / np.sqrt(len(fixed)))
    assert abs(np.mean(fixed) - np.mean(true)) < 4 * error < 0.06 < abs(np.mean(noised) - np.mean(true)) + 0.02


def test_only_what_was_decided_is_corrected():
    made = judged([("v", 1), ("v", 0), ("v", 0)])
    keys = list(made.members)
    made.members[keys[1]].signals = Signals({"gate": Verdict("gate", "1", Status.INVALID)}, "gate", {}, 0.0)
    made.members[keys[2]].in_baseline = False
    found = NoiseCorrection(NoiseCorrection.Settings(**NOISE), BUILD).shape(made, VIEW)
    assert list(found) == keys[:1]


@pytest.mark.parametrize(("reward", "correct"), [(0.35, True), (-1.0, False), (0.5, None)])
def test_graded_rewards_and_undecided_ones_are_refused_with_the_value(reward, correct):
    made = judged([("v", 1), ("v", 0)])
    one = next(iter(made.members.values()))
    verdict = Verdict("v", "1", Status.SCORED, reward, correct)
    one.signals = Signals({"v": verdict}, "v", {"v": reward}, reward)
    with pytest.raises(ConfigError, match=re.escape(f"has {reward}") if correct is not None else "without deciding"):
        shaped(made, **NOISE)


def test_rates_that_leave_no_signal_are_refused():
    with pytest.raises(ConfigError, match="would say nothing"):
        Rates(false_negative=0.6, false_positive=0.4)


# ---- measured rates --------------------------------------------------------------------------------------------


def measured(found, **settings):
    """A correction that is told these rates: (false negatives, their number, false positives, their number) by verifier."""
    one = NoiseCorrection(NoiseCorrection.Settings(measured=True, least=50, **settings), BUILD)

    def rates(verifier):
        if verifier not in found:
            return {}
        fn, n, fp, m = found[verifier]
        return {"false_negative": Rate(fn, 0, 1, n), "false_positive": Rate(fp, 0, 1, m)}

    one.watch(rates)
    return one


def test_a_measured_rate_replaces_the_settings_once_enough_answers_stand_behind_it():
    given = {"by": {"cheap": {"false_negative": 0.3, "false_positive": 0.02}}}
    assert measured({"cheap": (0.1, 50, 0.05, 80)}, **given).rates("cheap") == Rates(false_negative=0.1, false_positive=0.05)
    assert measured({"cheap": (0.1, 49, 0.05, 80)}, **given).rates("cheap") == Rates(false_negative=0.3, false_positive=0.05)
    assert measured({"cheap": (None, 0, None, 0)}, **given).rates("cheap") == Rates(false_negative=0.3, false_positive=0.02)
    assert measured({"cheap": (0.8, 60, 0.7, 60)}).rates("cheap") == Rates(false_negative=0.45, false_positive=0.45)
    beyond = {"by": {"cheap": {"false_negative": 0.1, "false_positive": 0.8}}}
    assert measured({"cheap": (0.4, 60, 0.0, 3)}, **beyond).rates("cheap") == Rates(false_negative=0.4, false_positive=0.45)
    assert measured({"cheap": (0.1, 60, 0.0, 60)}).rates("dearest") == Rates()  # its word is the measure


def test_measured_rates_correct_what_the_cheap_verifier_decided_alone():
    shape = measured({"cheap": (0.2, 60, 0.05, 60)})
    assert list(shape.shape(judged([("cheap", 1), ("cheap", 0), ("dear", 0)]), VIEW).values()) == pytest.approx(
        [0.95 / 0.75, -0.05 / 0.75, 0.0]
    )


# ---- the verifier that errs ------------------------------------------------------------------------------------


def test_the_noisy_verifier_errs_at_its_rates_and_the_same_way_twice():
    made, task = noisy(**NOISE), BUILD.tasks[0]
    count = Counter()
    for i in range(4000):
        for text in ("a+00#00", "#11"):
            verdict = made.judge_keyed(task, text, StopReason.EOS, f"r{i}")
            assert verdict == made.judge_keyed(task, text, StopReason.EOS, f"r{i}") and verdict.score == verdict.correct
            count[text, verdict.correct] += 1
    assert count["a+00#00", False] / 4000 == pytest.approx(FN, abs=0.02)
    assert count["#11", True] / 4000 == pytest.approx(FP, abs=0.012)


def test_tasks_that_are_not_trained_on_are_judged_without_errors():
    made, heldout = noisy(false_negative=0.99), tasks(1, 9)[0]
    assert all(made.judge_keyed(heldout, "a+32#32", StopReason.EOS, str(i)).correct for i in range(50))


def test_what_is_unscorable_stays_so_and_evidence_says_what_was_done():
    made, task = noisy(false_negative=0.999), BUILD.tasks[0]
    assert made.judge(task, "a+00", StopReason.CANCELLED).status is Status.UNSCORABLE
    verdict = made.judge(task, "a+00#00", StopReason.EOS)
    assert (verdict.correct, verdict.answer) == (False, "00")
    assert verdict.evidence.startswith("flipped on purpose (rate 0.999): final '00'")


def test_a_noisy_verifier_of_itself_or_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="is of itself"):
        noisy(of="noisy")
    with pytest.raises(ConfigError, match="there is no method 'exakt'"):
        noisy(of="exakt")


def test_it_is_as_bounded_as_what_it_wraps():
    inside = noisy()
    assert contained(inside, 1.0) is inside
    other = noisy()
    other.bounded = bool(getattr(object(), "bounded", False))  # as of a verifier that promises nothing
    wrapped = contained(other, 1.0)
    assert wrapped is not other and wrapped.name == "noisy"
    wrapped.close()


TWO = [{"name": "noisy", "label": "rule", "share": 0.5, "false_negative": 0.4}, {"name": "exact"}]


def test_a_share_of_the_answers_goes_to_the_next_verifier():
    cascade = make_cascade(
        parse({"filter": {"verifiers": TWO}, "engine": {"name": "scripted"}}), replace(BUILD, decode=decoder)
    )
    run = lab("r", k=4)
    (made,) = run.drive().groups.values()
    (one, *_) = made.members.values()
    old = one.rollout
    primaries = Counter(cascade.judge(made.task, Rollout(f"r{i}", old.task_id, old.path, old.stop)).primary for i in range(400))
    assert primaries["rule"] == pytest.approx(200, abs=50) and set(primaries) == {"rule", "exact"}


def test_noise_and_its_correction_through_the_recipe():
    """The draws of the rollouts' ids decide who errs; the correction follows the verifier that judged."""
    by = {"rule": {"false_negative": 0.4}}
    sections = {"filter": {"verifiers": TWO, "credit": {"name": "dr-grpo"}, "shape": {"name": "noise-correction", "by": by}}}
    for seed in range(40):
        round_ = lab("rrrrwwww", k=8, seed=seed, **sections).drive()
        (made,) = round_.groups.values()
        members = list(made.members.values())
        if len({(m.signals.primary, m.signals.correct) for m in members}) == 4:
            break
    rewards = [m.signals.reward / (0.6 if m.signals.primary == "rule" else 1.0) for m in members]
    assert [m.signals.shaped for m in members] == pytest.approx(rewards)
    wanted = np.array(rewards) - np.mean(rewards)
    assert row_advantages(batch_of(round_)) == pytest.approx(wanted.tolist(), abs=1e-6)
    again = lab("rrrrwwww", k=8, seed=seed, **sections).drive()
    assert row_advantages(batch_of(again)) == row_advantages(batch_of(round_))


def test_escalation_measures_the_rates_that_the_correction_uses():
    """A cheap verifier with errors, half of whose verdicts the exact one checks; 20 rounds of 8 groups of 8."""
    run = lab(
        "rrrwwwww",
        n_tasks=8,
        k=8,
        filter={
            "verifiers": [{"name": "noisy", "label": "cheap", **NOISE}, {"name": "exact"}],
            "cascade": {"escalate": 0.5},
            "credit": {"name": "dr-grpo"},
            "shape": {"name": "noise-correction", "measured": True},
        },
    )
    for _ in range(20):
        round_ = run.drive()
    found, interval = run.slots.shape.rates("cheap"), run.cascade.judging.rates("cheap")
    for key, true in NOISE.items():
        assert interval[key].low <= true <= interval[key].high
        assert getattr(found, key) == interval[key].value == pytest.approx(true, abs=0.06)
    members = [m for g in round_.groups.values() for m in g.members.values() if m.in_loss]
    assert {m.signals.primary for m in members} == {"cheap"}
    assert {round(m.signals.shaped, 9) for m in members} == {round(found.backward(c), 9) for c in (True, False)}


def test_measured_rates_without_anybody_who_measures_are_refused():
    filters = {"verifiers": TWO, "shape": {"name": "noise-correction", "measured": True}}
    assert [f.rule for f in check_recipe(parse({"filter": filters}))] == ["rates_of_nobody"]
    assert check_recipe(parse({"filter": {**filters, "cascade": {"escalate": 0.1}}})) == []


def test_rates_of_a_verifier_that_the_recipe_does_not_have_are_refused():
    def rules(name):
        shape = {"name": "noise-correction", "by": {name: {"false_negative": 0.4, "false_positive": 0.1}}}
        return [f.rule for f in check_recipe(parse({"filter": {"verifiers": [*TWO, {"name": "math"}], "shape": shape}}))]

    assert rules("cheap") == ["rates_of_strangers"]
    assert rules("rule") == rules("exact") == rules("math") == []


def test_a_recipe_in_which_nobody_judges_is_refused():
    assert [f.rule for f in check_recipe(parse({"filter": {"verifiers": []}}))] == ["nobody_judges"]
