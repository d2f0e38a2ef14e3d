"""Plans and their completions: the tree, its credit, and plans that give the answer away."""

import json
from pathlib import Path

import numpy as np
import pytest

from gfcr.generate.guidance.leaks import HIDDEN, gives_away, redacted
from gfcr.run.ledger import Ledger
from gfcr.types import SegmentKind, Task
from guidance_cases import guided_lab
from lifecycle_cases import batch_of

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "guidance.json").read_text())["plan"]
CREDIT = {"name": "treerpo", "spread": "none", "least": 0.0}


def run(plans="pp", answers="rrrw", credit=None, packed=False, **settings):
    """`plans`: p a plan, l one that gives the answer away."""
    said = {"p": "=a", "l": "=#36", "r": "=#36", "w": "=#00"}
    letters = iter(plans + answers)
    topology = {
        "name": "plan",
        "plans": len(plans),
        "completions": 2,
        "tokens": 8,
        "ask": "{prompt}/",
        "solve": ":",
        **settings,
    }
    return guided_lab(
        lambda prompt, n: said[next(letters)],
        generate={"topology": topology},
        filter={"credit": credit or CREDIT},
        loss={"packed": packed},
    )


def group_of(round_):
    (group,) = round_.groups.values()
    return group


def test_plan_tokens_get_the_plans_advantage_and_completions_their_own():
    round_ = run().drive()
    group = group_of(round_)
    rows = {}
    for member in group.members.values():
        at, parts = 0, []
        for node in member.rollout.path:
            if node.segment.kind is SegmentKind.ACTION:
                parts.append((node.id, set(np.round(member.credit.advantage[at : at + len(node.segment)], 6).tolist())))
            at += len(node.segment)
        rows.setdefault(parts[0][0], []).append(parts)
    plans = [sum(values.pop() for (_, values), _ in found) for found in rows.values()]
    assert plans == pytest.approx(GOLDEN["plans"])
    assert [[own.pop() for _, (_, own) in found] for found in rows.values()] == GOLDEN["completions"]


def test_completions_of_a_plan_share_its_nodes_and_packed_rows_train_it_once():
    group = group_of(run().drive())
    members = list(group.members.values())
    assert [len({m.rollout.path[i].id for m in members}) for i in range(4)] == [1, 2, 2, 4]
    assert [n.segment.kind for n in members[0].rollout.path] == ["prompt", "action", "observation", "action"]
    batch = batch_of(run(packed=True).drive())
    assert len(batch) == 1 and batch.leaves.tolist() == [4]


def test_every_token_is_booked_once():
    made = run("pl", "rw")
    round_ = made.drive()
    ledger = Ledger()
    ledger.settle_round(list(round_.groups.values()), dict(round_.failed), round_.failed_context)
    assert ledger.total.generated == made.engine.decoded and round_.failed == {"plan_leak": 4}


def test_a_plan_that_holds_the_answer_is_not_completed():
    group = group_of(run("pl", "rw").drive())
    assert len(group.members) == 2 and group.outcomes() == (1, 1)
    assert len(group_of(run("pl", "rwrw", leak="keep").drive()).members) == 4


def test_a_group_whose_plans_all_leak_is_abandoned_with_the_reason():
    round_ = run("ll").drive()
    assert group_of(round_).reason.startswith("too_few_members") and round_.ready() is None


def test_the_plan_is_not_judged():
    assert group_of(run("pp", "rrrr", leak="keep").drive()).outcomes() == (4, 0)


@pytest.mark.parametrize(
    ("text", "leaks"),
    [("so it is 42.", True), ("42", True), ("420 or 4.2 or 42.5", False), ("add 17 and then", False), ("it gives 17", False)],
)
def test_a_leak_is_the_answer_as_a_word_that_the_question_does_not_have(text, leaks):
    assert gives_away(text, Task("t", "What is 17 + 25?", "42")) == leaks


def test_what_the_question_says_is_no_leak():
    assert not gives_away("take 7", Task("t", "Is it 7 or 8?", "7"))


def test_the_answer_is_taken_out_of_evidence():
    task = Task("t", "17 + 25?", {"final": "42", "trace": "59"})
    assert redacted("got 41, the reference is 42; 59", task) == f"got 41, the reference is {HIDDEN}; 59"
