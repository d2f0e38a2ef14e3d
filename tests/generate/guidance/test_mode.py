"""Forced modes: shares, what is trained, longest answers."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from gfcr.domains.programs.tokenizer import TOKEN_IDS
from gfcr.generate.guidance.mode import mode_of
from gfcr.types import Role, SegmentKind
from guidance_cases import guided_lab
from lifecycle_cases import batch_of


def run(k=4, answers="rwrw", **settings):
    said = {"r": "=#36", "w": "=#00"}
    seed = {"name": "mode", "think": "ab", "quiet": "#", **settings}
    return guided_lab(lambda prompt, n: said[answers[n]], k=k, generate={"seed": seed})


def modes(round_):
    (group,) = round_.groups.values()
    return [mode_of(m.rollout.path) for m in group.members.values()]


@pytest.mark.parametrize(("k", "share", "quiet"), [(4, 0.5, 2), (8, 0.25, 2), (5, 0.5, 2), (16, 0.5, 8)])
def test_modes_alternate_by_their_share(k, share, quiet):
    found = modes(run(k, "rw" * k, share=share).drive())
    assert found.count("quiet") == quiet and found.count("think") == k - quiet


def test_the_first_forced_token_is_trained_with_its_modes_share_as_old_probability():
    batch = batch_of(run(share=0.25).drive())
    for row in range(len(batch)):
        span = slice(*batch.offsets[row : row + 2])
        forced = batch.input_ids[span][12:]
        quiet = forced[0] == TOKEN_IDS["#"]
        share = math.log(0.25 if quiet else 0.75)
        assert batch.rl_mask[span][12] and batch.behaviour[span][12] == batch.proximal[span][12] == pytest.approx(share)
        if not quiet:  # the rest of the forced text is context
            assert not batch.rl_mask[span][13] and np.isnan(batch.behaviour[span][13])
        assert batch.rl_mask[span][-1]


def test_half_of_each_gives_adaptthinks_old_probability():
    old = json.loads((Path(__file__).parents[2] / "golden" / "guidance.json").read_text())["modes"]["old"]
    batch = batch_of(run().drive())
    assert {round(float(batch.proximal[start + 12]), 6) for start in batch.offsets[:-1]} == {old}


def test_without_a_loss_forced_tokens_are_context():
    batch = batch_of(run(loss="none").drive())
    (group,) = run(loss="none").drive().groups.values()
    kinds = {n.segment.kind for m in group.members.values() for n in m.rollout.path}
    assert SegmentKind.FORCED in kinds and SegmentKind.DEMO not in kinds
    for row in range(len(batch)):
        assert not batch.rl_mask[slice(*batch.offsets[row : row + 2])][12]


def test_forced_rollouts_are_fresh_and_say_how_hard_the_task_is():
    (group,) = run().drive().groups.values()
    assert {m.role for m in group.members.values()} == {Role.FRESH} and group.outcomes() == (2, 2)


def test_forced_tokens_are_not_judged_as_the_policys_own():
    (group,) = run(answers="rrrr", quiet="#").drive().groups.values()  # a second `#` would make them wrong
    assert group.outcomes() == (4, 0)


def test_each_mode_has_its_longest_answer():
    made = run(quiet_tokens=5, think_tokens=9)
    made.drive()
    assert sorted(r.max_new_tokens for r in made.engine.requests) == [5, 5, 9, 9]


def test_a_baseline_for_each_mode():
    (group,) = run(cohort="own").drive().groups.values()
    assert sorted(m.cohort for m in group.members.values()) == ["quiet", "quiet", "think", "think"]


def test_only_one_mode_may_be_forced():
    found = modes(run(think="").drive())
    assert found.count("") == 2 and found.count("quiet") == 2
