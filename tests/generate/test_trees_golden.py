"""Golden toy trees through recipe, scripted engine and `Batch`: which forks, which ids, which credit."""

import json
from pathlib import Path

import numpy as np
import pytest

from gfcr.types import LossRole
from grove_cases import forks, grove_lab, grown, said
from lifecycle_cases import batch_of

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "groves.json").read_text())
CREDITS = {case["name"]: case for case in json.loads((GOLDEN / "trees.json").read_text())["cases"]}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", CASES["cases"], ids=lambda c: c["topology"]["name"])
def test_golden_trees(case, packed):
    credit = CREDITS[case["credit"]]
    made = grove_lab(case["topology"], case["script"], filter={"credit": credit["credit"]}, loss={"packed": packed})
    round_, group = grown(made)
    members = list(group.members.values())
    assert [said(m.rollout) for m in members] == case["leaves"]
    assert [list(branch) for branch in forks(group)] == case["branches"]
    assert made.engine.usage().decoded == case["decoded"] == round_.budget.spent
    assert [m.signals.reward for m in members] == [float(t < 3) for t in case["toy"]]
    for member, toy, trunk in zip(members, case["toy"], case["trunks"], strict=True):
        first, rest = credit["trunks"][toy], credit["leaves"][toy]
        path = member.rollout.trained_path
        own = np.concatenate([np.full(len(n.segment), n.segment.role is LossRole.RL) for n in path])
        found = np.broadcast_to(np.asarray(member.credit.advantage, np.float64), own.shape)[own]
        assert found == pytest.approx([first] * trunk + [rest] * (len(found) - trunk), abs=CASES["tolerance"])
    batch = batch_of(round_)
    assert len(batch) == (1 if packed else 4)
    assert batch.rl_mask.sum() == (case["decoded"] if packed else sum(map(len, case["leaves"])))
