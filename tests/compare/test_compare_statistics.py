"""The area under a curve by hand, and intervals that are the same every time."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from gfcr.cli.tables import run_table
from gfcr.compare.statistics import gain_share, paired_difference, spread
from gfcr.run.outcome import area, outcome, why_untrained


def test_area_by_hand() -> None:
    # 0..400: mean of .2 and .4 = .3; 400..800: mean of .4 and .8 = .6; 800..1000: .8 held. (120 + 240 + 160) / 1000
    assert area([(0, 0.2), (400, 0.4), (800, 0.8)], 1000) == pytest.approx(0.52, abs=1e-12)


def test_area_of_one_evaluation_is_its_value() -> None:
    assert area([(0, 0.3)], 1000) == pytest.approx(0.3)


def test_area_beyond_the_budget_is_cut_there() -> None:
    # at 1000 the line from (0, 0) to (2000, 1) stands at .5
    assert area([(0, 0.0), (2000, 1.0)], 1000) == pytest.approx(0.25)


def test_area_without_evaluation_or_budget_is_none() -> None:
    assert area([], 1000) is None
    assert area([(0, 0.5)], None) is None


def test_outcome_of_a_run_that_never_evaluated_has_no_figure() -> None:
    found = outcome([{"step": 0, "tokens_generated": 0, "tokens_discarded": 0, "seconds": 1.0, "heldout_accuracy": None}], 1000)
    assert (found.start, found.final, found.auc, found.discarded_share, found.ended) == (None,) * 5


def test_spread() -> None:
    found = spread([0.2, None, 0.4])
    assert (found.mean, found.n) == (pytest.approx(0.3), 2)
    assert found.sd == pytest.approx(np.sqrt(0.02))  # ddof 1
    assert spread([0.2]).sd is None
    assert spread([None]).mean is None


def test_difference_is_paired() -> None:
    # Seeds differ much more than the arms do: unpaired, zero would lie inside.
    found = paired_difference([0.31, 0.52, 0.73, 0.94], [0.30, 0.50, 0.70, 0.90])
    assert found.value == pytest.approx(0.025)
    assert found.low is not None and found.low > 0
    assert found.high is not None and found.high <= 0.04


def test_bootstrap_is_the_same_every_time() -> None:
    ours, theirs = [0.5, 0.6, 0.4, 0.7, 0.55], [0.45, 0.5, 0.42, 0.6, 0.5]
    assert paired_difference(ours, theirs) == paired_difference(ours, theirs)


def test_bootstrap_covers_every_resample_of_two_seeds() -> None:
    found = paired_difference([0.1, 0.3], [0.0, 0.0])  # draws are .1, .2 and .3, the outer ones a quarter each
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.3))


def test_one_seed_has_no_interval() -> None:
    found = paired_difference([0.5], [0.4])
    assert (found.value, found.low, found.high) == (pytest.approx(0.1), None, None)
    assert paired_difference([], []).value is None


def test_share_of_a_gain() -> None:
    found = gain_share([0.3, 0.3], [0.4, 0.4], [0.5, 0.5])
    assert found.value == found.low == found.high == pytest.approx(0.5)
    assert gain_share([0.5, 0.5], [0.6, 0.6], [0.4, 0.4]).value is None


def steps(*found):
    """Rows of a run: (groups, share of all wrong ones, share of unscored ones, reward, why nothing was trained)."""
    return [
        {"step": 0, "tokens_generated": 0},
        *(
            {
                "step": i,
                "groups": groups,
                "groups_abandoned": 0,
                "share_all_wrong": wrong,
                "share_unscored": unscored,
                "reward_mean": reward,
                **({"untrained": why} if why else {}),
            }
            for i, (groups, wrong, unscored, reward, why) in enumerate(found, 1)
        ),
    ]


def test_why_nothing_was_trained_is_summed_over_the_steps():
    unscored = "8 groups unscored (the verifier could judge nothing)"
    rows = steps(
        (8, 0.0, 1.0, None, unscored), (8, 0.25, 0.75, 0.0, "6 groups unscored (x), 2 groups all_wrong (too hard (or strict))")
    )
    rows += [
        {**rows[-1], "step": 3, "groups": 2, "share_all_wrong": 1.0, "share_unscored": 0.0, "untrained": "2 groups all_wrong"}
    ]
    rows[-1] |= {"groups": 3, "groups_abandoned": 1, "abandoned_by_reason": {"too_few_members": 1}}
    assert why_untrained(rows) == "14 groups unscored (x), 4 groups all_wrong (too hard (or strict)), 1 groups too_few_members"
    assert why_untrained([*rows, {"step": 4}]) == "", "one step was trained"
    assert why_untrained(steps((0, None, None, None, "no_tasks"))) == "no_tasks"
    assert why_untrained(rows[:1]) == ""


def test_rewards_in_training_stand_in_for_a_held_out_set():
    found = outcome(steps(*[(8, 0.0, 0.0, reward, "") for reward in (0.0, 0.2, 0.4, None, 0.6, 0.8, 1.0)]), 1000)
    assert (found.reward_start, found.reward_final, found.final) == (0.0, 1.0, None)
    assert outcome(steps((8, 1.0, 0.0, None, "")), 1000).reward_start is None


def test_reasons_that_were_not_there_are_not_shown():
    found = outcome([{"step": 1, "discarded_by_reason": {"stale": 0, "zero_variance": 5}}], 1000)
    assert found.discarded == {"zero_variance": 5}


def test_the_table_of_a_run_without_held_out_tasks_has_the_reward_in_training():
    console = Console(width=120, file=StringIO())
    console.print(run_table("mine", outcome(steps((8, 0.0, 0.0, 0.25, ""), (8, 0.0, 0.0, 0.75, "")), 1000)))
    said = console.file.getvalue()
    assert "in training" in said and ".250" in said and ".750" in said and "–" not in said.split("discarded")[0]
    assert "held-out" not in said
