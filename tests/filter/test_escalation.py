"""Cheap verifiers measured by the dearest one, appeals, and the verification budget, through rounds of the lab."""

import json

import numpy as np
import pytest

from gfcr.filter.judging import Judging
from gfcr.registry import INDEX, Slot
from gfcr.run.ledger import Ledger
from gfcr.run.metrics import ledger_metrics
from gfcr.types import Status
from lifecycle_cases import answer_text, batch_of, lab, row_advantages

FLIP, EXACT = {"name": "flip"}, {"name": "exact"}


@pytest.fixture(autouse=True)
def methods(monkeypatch):
    for name, cls in (("flip", "Flip"), ("flip-more", "FlipMore"), ("wild-exact", "WildExact")):
        monkeypatch.setitem(INDEX[Slot.VERIFIER], name, f"lifecycle_methods:{cls}")


def varied(prompt, nth):
    """Right six times in ten; before the result stands a trace that no other answer has."""
    letter = "r" if (nth * 7919 + int(prompt[-2:]) * 104729) % 10 < 6 else "w"
    trace = "".join("abcdefgh"[(nth >> shift) & 7] for shift in (0, 3, 6))
    return f"={trace}#{answer_text(prompt, letter).partition('#')[2]}"


def rounds(n, verifiers=(FLIP, EXACT), k=16, n_tasks=49, **more):
    """The lab after n rounds, and their members by id."""
    cascade = more.pop("cascade", {})
    section = {"verifiers": list(verifiers), "cascade": cascade, **more.pop("filter", {})}
    made = lab(varied, n_tasks=n_tasks, k=k, filter=section, **more)
    members = {}
    for _ in range(n):
        round_ = made.drive()
        members |= {i: m for g in round_.groups.values() for i, m in g.members.items()}
    return made, members


@pytest.mark.parametrize(("appeal", "share"), [(False, 0.3), (True, 0.3)])
def test_sampled_escalation_measures_both_rates_within_their_intervals(appeal, share):
    """False negatives .2, false positives .05, over 3,920 rollouts; with appeals the negatives are asked about always."""
    made, members = rounds(5, cascade={"escalate": share, "appeal": appeal})
    assert len(members) == 3920
    rates = made.cascade.judging.rates("flip")
    for key, true in (("false_negative", 0.2), ("false_positive", 0.05)):
        assert rates[key].low < true < rates[key].high, (key, rates[key])
        assert rates[key].high - rates[key].low < 0.09
    said = [m.signals.verdicts for m in members.values() if not appeal or m.signals.verdicts["flip"].correct]
    assert sum("exact" in verdicts for verdicts in said) / len(said) == pytest.approx(share, abs=0.035)
    row = ledger_metrics(Ledger(judging=made.cascade.judging), 1.0)
    assert row["verifier_rates"]["flip"]["false_negative"]["n"] == rates["false_negative"].n > 300
    json.dumps(row, allow_nan=False)


def test_escalation_changes_no_reward_and_depends_on_the_rollout_alone():
    plain, without = rounds(2)
    made, members = rounds(2, cascade={"escalate": 0.3})
    assert {i: m.signals.reward for i, m in members.items()} == {i: m.signals.reward for i, m in without.items()}
    assert {m.signals.primary for m in members.values()} == {"flip"}
    assert not any("exact" in m.signals.rewards for m in members.values())
    assert "verifier_rates" not in plain.cascade.judging.metrics()
    chosen = {i for i, m in members.items() if "exact" in m.signals.verdicts}
    some = [(g.task, m.rollout) for g in made.drive().groups.values() for m in g.members.values()]
    alone = [made.cascade.judge(task, rollout) for task, rollout in some[:40]]
    together = made.cascade.judge_all(some)[:40]
    assert ["exact" in s.verdicts for s in alone] == ["exact" in s.verdicts for s in together]
    assert 0 < len(chosen) < len(members)


def test_rates_survive_a_resume_bit_equal():
    uncut, _ = rounds(4, cascade={"escalate": 0.3, "appeal": True})
    first, _ = rounds(2, cascade={"escalate": 0.3, "appeal": True})
    ledger = Ledger(judging=first.cascade.judging)
    stored = json.loads(json.dumps(ledger.state_dict()))
    again, _ = rounds(0, cascade={"escalate": 0.3, "appeal": True})
    resumed = Ledger(judging=again.cascade.judging)
    resumed.load_state_dict(stored)
    again.slots.load_state_dict(first.slots.state_dict(), lambda name: None)
    again.engine, again.number = first.engine, 2
    again.drive(), again.drive()
    assert again.cascade.judging.metrics() == uncut.cascade.judging.metrics()
    assert resumed.judging is again.cascade.judging
    Ledger().load_state_dict({k: v for k, v in stored.items() if k != "judging"})  # of a run before there was one


def test_an_appeal_overturns_wrong_negatives_only():
    _, members = rounds(1, cascade={"appeal": True})
    flips = exact = 0
    for member in members.values():
        signals, cheap = member.signals, member.signals.verdicts["flip"]
        if cheap.correct:
            assert (signals.primary, signals.correct, list(signals.verdicts)) == ("flip", True, ["flip"])
        else:
            assert signals.primary == "exact"
            assert signals.reward == signals.verdicts["exact"].score
            flips += signals.correct
            exact += 1
    assert 50 < flips < exact


def test_an_appeal_to_one_that_abstains_leaves_the_first_word():
    _, members = rounds(1, verifiers=[EXACT, {"name": "flip", "undecided": 1.0}], cascade={"appeal": True})
    wrong = [m.signals for m in members.values() if not m.signals.verdicts["exact"].correct]
    assert wrong and all((s.primary, s.reward, s.correct) == ("exact", 0.0, False) for s in wrong)
    assert {s.verdicts["flip"].evidence for s in wrong} == {"abstains"}


def test_a_spent_budget_skips_the_dear_ones_with_that_reason_and_never_wrongs_an_answer():
    """100 calls: exactly these are made, in the order of the wave; what the cheap one left undecided is unscorable then."""
    cheap = {"name": "flip", "undecided": 0.5}
    made, members = rounds(1, verifiers=[cheap, EXACT], cascade={"calls": 100})
    dear = [m.signals.verdicts["exact"] for m in members.values() if "exact" in m.signals.verdicts]
    spent = [v for v in dear if v.status is Status.UNSCORABLE]
    assert (len(dear) - len(spent), made.cascade.judging.use["exact"].calls) == (100, 100)
    assert {v.evidence for v in spent} == {"verification_budget: 100 of 100 calls spent"}
    assert dear[:100] == [v for v in dear if v.status is Status.SCORED]
    undecided = [m.signals for m in members.values() if m.signals.verdicts["flip"].status is Status.UNSCORABLE]
    assert sum(s.reward is None for s in undecided) == len(spent) == made.cascade.judging.skipped["exact"]
    assert made.cascade.judging.metrics()["verifier_skipped"] == {"exact": len(spent)}
    made, members = rounds(1, verifiers=[FLIP, EXACT], cascade={"calls": 10, "appeal": True})
    over = [m.signals for m in members.values() if "exact" in m.signals.verdicts]
    skipped = [s for s in over if s.verdicts["exact"].status is Status.UNSCORABLE]
    assert len(over) - len(skipped) == 10
    assert all((s.primary, s.reward) == ("flip", 0.0) for s in skipped)


@pytest.mark.parametrize("limit", [{"seconds": 0.0}, {"tokens": 0}, {"calls": 0}], ids=str)
def test_each_kind_of_budget_can_forbid_the_dear_one(limit):
    made, members = rounds(1, k=4, n_tasks=7, cascade={"escalate": 1.0, **limit})
    assert "exact" not in made.cascade.judging.use
    assert {m.signals.verdicts["exact"].evidence.split(":")[0] for m in members.values()} == {"verification_budget"}
    rate = made.cascade.judging.rates("flip")["false_negative"]
    assert (rate.value, rate.low, rate.n) == (None, None, 0)


def test_evaluation_is_outside_the_budget_and_measures_nothing():
    made, _ = rounds(
        1, k=4, n_tasks=7, verifiers=[{"name": "flip", "undecided": 1.0}, EXACT], cascade={"calls": 28, "escalate": 1.0}
    )
    before = made.cascade.judging.state_dict()
    some = [(g.task, m.rollout) for g in made.drive().groups.values() for m in g.members.values()]
    made.cascade.judging.load_state_dict(before)
    assert {s.primary for s in made.cascade.judge_all(some, training=False)} == {"exact"}
    after = made.cascade.judging.state_dict()
    assert {k: after[k] for k in ("use", "strata", "skipped")} == {k: before[k] for k in ("use", "strata", "skipped")}
    assert after["evaluation"]["exact"][0] == 28


def test_each_cheap_one_is_held_against_the_dearest_and_a_gate_by_what_it_refused():
    half = {"name": "flip", "undecided": 0.5}
    more = {"name": "flip-more", "negatives": 0.4, "positives": 0.3}
    made, _ = rounds(4, verifiers=[half, more, EXACT], cascade={"escalate": 0.5})
    judging = made.cascade.judging
    for name, key, true in (
        ("flip", "false_negative", 0.2),
        ("flip", "false_positive", 0.05),
        ("flip-more", "false_negative", 0.4),
        ("flip-more", "false_positive", 0.3),
    ):
        rate = judging.rates(name)[key]
        assert rate.low < true < rate.high, (name, key, rate)
    script = lambda prompt, nth: "i" if nth % 2 else "r"  # noqa: E731
    gated = lab(script, n_tasks=7, k=8, filter={"gates": [{"name": "format"}], "cascade": {"escalate": 1.0}})
    gated.drive()
    assert {k: (r.value, r.n) for k, r in gated.cascade.judging.rates("format").items()} == {"refused_right": (0.0, 28)}


def test_the_order_of_declared_cost_is_that_of_the_classes_and_the_measured_one_that_of_the_clock():
    made, members = rounds(1, verifiers=[EXACT, {"name": "flip-more"}, FLIP], cascade={"order": "declared"}, k=4, n_tasks=7)
    assert [v.name for v in made.cascade._ordered()] == ["flip", "exact", "flip-more"]
    assert {m.signals.primary for m in members.values()} == {"flip"}
    made.cascade.settings = made.cascade.settings.model_copy(update={"order": "measured"})
    made.cascade.judging.book("flip", True, 1, 9.0, 0)
    assert [v.name for v in made.cascade._ordered()] == ["exact", "flip-more", "flip"]


def test_results_do_not_depend_on_the_number_of_processes_nor_on_who_ends_first():
    """Answers of uneven cost, one of which hangs: the same signals and the same batch from one process and from three."""

    def script(prompt, nth):
        text = varied(prompt, nth)
        return text if (prompt[-1], nth) != ("3", 1) else "=p" + text[1:]

    found = []
    for workers in (1, 3):
        section = {
            "verifiers": [FLIP, {"name": "wild-exact"}],
            "cascade": {"escalate": 0.5},
            "workers": workers,
            "seconds": 0.5,
        }
        made = lab(script, n_tasks=6, k=4, filter=section)
        round_ = made.drive()
        made.cascade.close()
        signals = {
            i: {name: (v.status, v.score, v.correct, v.evidence) for name, v in m.signals.verdicts.items()}
            for g in round_.groups.values()
            for i, m in g.members.items()
        }
        batch = batch_of(round_)
        found.append((signals, batch.rollout_ids, row_advantages(batch), made.cascade.judging.metrics()))
    assert found[0] == found[1]


@pytest.mark.parametrize(("share", "forced"), [(0.3, False), (0.1, True)])
def test_intervals_hold_what_they_promise(share, forced):
    """400 simulated runs of 1,500 answers: both true rates lie in at least 92 of 100 of their 95 % intervals."""
    rng = np.random.default_rng(5)
    inside = {"false_negative": 0, "false_positive": 0}
    for _ in range(400):
        right = rng.random(1500) < 0.55
        says = np.where(right, rng.random(1500) >= 0.2, rng.random(1500) < 0.05)
        judging = Judging()
        for truth_, word in zip(right.tolist(), says.tolist()):
            stratum = judging.said("cheap", word)
            chance = 1.0 if forced and not word else share
            if chance == 1.0 or rng.random() < chance:
                stratum.decide(truth_, chance)
        for key, true in (("false_negative", 0.2), ("false_positive", 0.05)):
            rate = judging.rates("cheap")[key]
            inside[key] += rate.low <= true <= rate.high
    assert min(inside.values()) >= 0.92 * 400, inside


def test_a_rate_nobody_measured_is_none():
    judging = Judging()
    judging.said("cheap", True)
    judging.said("cheap", False)
    assert [r.value for r in judging.rates("cheap").values()] == [None, None]
    judging.said("cheap", True).decide(True, 1.0)
    assert judging.rates("cheap")["false_positive"].value is None  # its negatives were never asked about
    judging.said("cheap", False).decide(True, 1.0)
    rates = judging.rates("cheap")
    assert (rates["false_negative"].value, rates["false_positive"].value) == (0.5, None)  # no wrong answer was seen
    assert judging.rates("gate") == {"refused_right": type(rates["false_negative"])(None, None, None, 0)}


def test_those_asked_for_certain_do_not_outweigh_those_asked_by_chance():
    """Of 200 answers called right, 100 were asked about for certain (all wrong), the others with chance .1 (all ten right)."""
    judging = Judging()
    for chance, right, asked in ((1.0, False, 100), (0.1, True, 10)):
        for i in range(100):
            stratum = judging.said("cheap", True)
            if i < asked:
                stratum.decide(right, chance)
    judging.said("cheap", False).decide(False, 1.0)
    found = judging.strata["cheap"]["right"]
    assert found.weight_right / found.weight == 0.5
    assert judging.rates("cheap")["false_positive"].value == pytest.approx(100 / 101)


@pytest.mark.parametrize("cascade", [{"appeal": True}, {"escalate": 0.1}], ids=str)
def test_nothing_dearer_to_ask_is_refused(cascade):
    from gfcr.build import check_recipe
    from gfcr.recipe import parse

    alone = parse({"filter": {"verifiers": [EXACT], "cascade": cascade}})
    assert [f.remedy for f in check_recipe(alone) if f.rule == "nothing_dearer"] == [
        "name a second, dearer verifier after the cheap one, or leave the setting out"
    ]
    two = parse({"filter": {"verifiers": [FLIP, EXACT], "cascade": cascade}})
    assert "nothing_dearer" not in {f.rule for f in check_recipe(two)}


def test_appeals_through_a_middle_verifier_bias_no_rate():
    """What the first one calls wrong goes to the second; what that one calls wrong too is judged by the dearest for certain, what it
    calls right only by chance. Taken alike, they would give .08 instead of .2."""
    made, _ = rounds(4, verifiers=[FLIP, {"name": "flip-more"}, EXACT], cascade={"escalate": 0.2, "appeal": True})
    rate = made.cascade.judging.rates("flip")["false_negative"]
    assert rate.low < 0.2 < rate.high
    assert rate.low > 0.1
