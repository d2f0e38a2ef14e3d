"""The solution of a task in the place of a wrong answer, from recipe to batch."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gfcr.domains.programs.pools import load_pool, task_of
from gfcr.domains.programs.tokenizer import END_ID, encode_answer
from gfcr.errors import ConfigError
from gfcr.run.ledger import Ledger
from gfcr.run.metrics import step_metrics
from gfcr.train.losses import shaped_loss
from gfcr.types import Drop, Role, SegmentKind
from guidance_cases import FOUR, SOLUTION, guided_lab
from lifecycle_cases import batch_of, tasks

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "guidance.json").read_text())["luffy"]


def run(plain, k=8, credit="dr-grpo", tasks=None, **settings):
    said = {"w": "=#00", "r": "=#36"}
    return guided_lab(
        lambda prompt, n: said[plain[n]],
        k=k,
        tasks=tasks,
        filter={"credit": credit if isinstance(credit, dict) else {"name": credit}},
        replay={"augment": [{"name": "reference", **settings}]},
    )


def demos(group):
    return [m for m in group.members.values() if m.role is Role.DEMO]


def test_an_all_wrong_group_gets_its_solution_with_luffys_advantages():
    round_ = run("w" * 8).drive()
    (group,), batch = round_.groups.values(), batch_of(round_)
    (demo,) = demos(group)
    assert [m.drop for m in group.fresh()].count(Drop.REPLACED) == 1 and group.outcomes() == (0, 8)
    expected = GOLDEN["advantages"]
    for row, name in enumerate(batch.rollout_ids):
        span = slice(*batch.offsets[row : row + 2])
        mask = batch.rl_mask[span]
        if name == demo.rollout.id:
            assert batch.input_ids[span][12:].tolist() == [*encode_answer(SOLUTION), END_ID] and mask[12:].all()
            assert batch.advantages[span][mask] == pytest.approx(expected["demonstration"])
            assert np.isnan(batch.behaviour[span]).all() and (batch.versions[span] == -1).all()
            assert np.isnan(batch.proximal[span]).all(), "recomputed by the trainer, so that the ratio starts at 1"
        else:
            assert batch.advantages[span][mask] == pytest.approx(expected["wrong"])


@pytest.mark.parametrize("plain", ["rwwwwwww", "rrrrrrrr"])
def test_a_group_with_a_right_answer_gets_none(plain):
    (group,) = run(plain).drive().groups.values()
    assert not demos(group)


def test_every_group_gets_one_where_that_is_asked_for_and_nothing_need_leave():
    (group,) = run("rwww", k=4, when="always", replace=False).drive().groups.values()
    assert len(demos(group)) == 1 and not any(m.drop for m in group.members.values())


def test_a_solution_that_the_verifiers_refuse_is_taken_out_and_the_replaced_answer_comes_back():
    broken = task_of(FOUR, "36", "test")
    broken = type(broken)(broken.domain, broken.prompt, {"final": "11"}, meta=broken.meta)
    round_ = run("wwww", k=4, tasks=[broken]).drive()
    (group,) = round_.groups.values()
    (demo,) = demos(group)
    assert demo.drop is Drop.REFUSED and not any(m.drop is Drop.REPLACED for m in group.members.values())
    assert [d.action for d in round_.decisions if d.slot == "augment"] == ["inject", "refuse"]
    assert len(batch_of(round_)) == 0


def test_its_tokens_are_nobodys_generation_and_its_use_is_counted():
    made = run("w" * 8)
    round_ = made.drive()
    groups = list(round_.groups.values())
    ledger = Ledger()
    ledger.settle_round(groups, dict(round_.failed), round_.failed_context)
    assert ledger.total.generated == made.engine.decoded == 8 * 4
    row = step_metrics(groups, round_.decisions)
    assert (row["injected"], row["privileged"], row["rollouts"]) == (1, 1, 8)


def test_supervised_control_trains_the_solution_alone():
    round_ = run("w" * 8, credit={"name": "rejection", "of": "demonstrations"}).drive()
    batch = batch_of(round_)
    assert len(batch) == 1 and not batch.rl_mask.any()
    assert batch.ce_weights.tolist() == [0.0] * 12 + [1.0] * (len(SOLUTION) + 1)


def test_supervised_control_trains_no_answer_of_the_policys():
    assert len(batch_of(run("rwww", k=4, credit={"name": "rejection", "of": "demonstrations"}).drive())) == 0


@pytest.mark.parametrize(("p", "value", "slope"), GOLDEN["shaping"])
def test_luffys_shaping(p, value, slope):
    chance = torch.tensor([p], dtype=torch.float64, requires_grad=True)
    terms = shaped_loss(chance.log(), torch.ones(1, dtype=torch.float64), 0.1)
    assert -terms.loss.item() == pytest.approx(value, abs=1e-6)
    (gradient,) = torch.autograd.grad(-terms.loss.sum(), chance)
    assert gradient.item() == pytest.approx(slope, rel=1e-5)
    assert not terms.clipped_high.any()


def test_tasks_without_solutions_are_refused():
    with pytest.raises(ConfigError, match="none of the 1 tasks has one"):
        run("w", tasks=tasks(1))


def test_every_solution_of_the_labs_pools_is_right_and_changes_no_id():
    from gfcr.domains.programs.verify import ExactVerifier
    from gfcr.types import StopReason, Task

    for task in load_pool("HARD"):
        assert ExactVerifier().judge(task, task.meta["solution"], StopReason.EOS).correct
        assert Task(task.domain, task.prompt, task.reference).id == task.id


def test_the_prompt_is_the_groups_own():
    (group,) = run("w" * 8).drive().groups.values()
    (demo,) = demos(group)
    assert demo.rollout.path[0] is next(iter(group.fresh())).rollout.path[0]
    assert [n.segment.kind for n in demo.rollout.path] == [SegmentKind.PROMPT, SegmentKind.DEMO]
