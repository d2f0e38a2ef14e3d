"""Faults of groups and advantages that users of other systems report, each kind's smallest input from recipe to batch, for every
credit there is. Reports are named by project and number."""

import numpy as np
import pytest

from gfcr.filter.assemble import build_batch
from gfcr.registry import INDEX, Slot
from gfcr.types import Credit, Drop, Normalise, SegmentKind
from group_cases import action, group, plain, rollout
from lifecycle_cases import batch_of, lab, row_advantages

WHITEN = {"credit_batch": {"name": "whiten"}}
CREDITS = {
    "grpo": {},
    "dr-grpo": {},
    "rloo": {},
    "maxrl": {},
    "gdpo": {},
    "reinforce-pp": WHITEN,
    "reinforce-pp-baseline": WHITEN,
    "pass-at-k": {},
    "treerl": {},
    "treerpo": {},
    "treepo": WHITEN,
    "tree-grpo": {},
    "gigpo": {},
    "seed-grpo": {},
}
SCORED = [name for name in CREDITS if name != "pass-at-k"]  # pass@k reads right and wrong, no scores
each_credit = pytest.mark.parametrize("credit", SCORED)
KEEP = {"drop_zero_variance": False}


@pytest.fixture(autouse=True)
def _scored(monkeypatch):
    monkeypatch.setitem(INDEX[Slot.VERIFIER], "scored", "lifecycle_methods:Scored")


def test_every_credit_is_under_these_tests():
    labels = {"gae", "pairs", "rejection", "awr"}  # they yield no advantages: test_credit_kinds.py
    labels |= {"grpo-process"}  # steps, not answers, are compared: test_step_credit.py
    assert set(CREDITS) | labels == set(INDEX[Slot.CREDIT])


def scored(rewards, credit, n_tasks=1, admission=None, **more):
    """A round of answers with these rewards (in hundredths; None = the verifier abstains); one list per task, or one for all."""
    rows = rewards if rewards and isinstance(rewards[0], list) else [rewards]

    def script(prompt, nth):
        row = rows[int(prompt[-1]) % len(rows)]
        value = row[nth % len(row)]
        return value if isinstance(value, str) else "=a" if value is None else f"=#{round(100 * value):02d}"

    rule = {"verifiers": [{"name": "scored"}], "credit": {"name": credit}, "admission": admission or {}, **CREDITS[credit]}
    return lab(script, n_tasks=n_tasks, k=max(map(len, rows)), filter=rule, **more).drive()


@each_credit
@pytest.mark.parametrize("rewards", [[0.1] * 3, [0.2] * 8, [0.35] * 7], ids=str)
def test_catastrophic_cancellation(credit, rewards):
    """NousResearch/atropos#481: [0.1, 0.1, 0.1] has a variance of -1.7e-18."""
    assert row_advantages(batch_of(scored(rewards, credit, admission=KEEP))) == [0.0] * len(rewards)


@each_credit
def test_a_guard_of_std_above_zero_instead_of_a_floor(credit):
    """NVIDIA-NeMo/RL#4161: seven times .35 and one 0 gave an advantage of about 4000."""
    values = row_advantages(batch_of(scored([0.35] * 7 + [0.0], credit)))
    assert max(map(abs, values)) <= 7
    assert values[7] < 0 < values[0]


@each_credit
@pytest.mark.parametrize("rewards", [[1.0, 0.0, 0.0, 0.0], [0.0] + [0.95] * 7], ids=str)
def test_leave_one_out_explosion(credit, rewards):
    """NVIDIA-NeMo/RL#1518: the others have no spread."""
    values = row_advantages(batch_of(scored(rewards, credit)))
    assert len(values) == len(rewards) and max(map(abs, values)) <= len(rewards) - 1 + 1e-5
    assert np.sign(np.round(values, 6)).tolist() == np.sign(np.array(rewards) - np.mean(rewards)).tolist()


@each_credit
def test_an_exact_test_on_floats_keeps_no_constant_group(credit):
    """radixark/miles#701: eight times 0.2 has a float std above 0."""
    assert len(batch_of(scored([0.2] * 8, credit))) == 0


@each_credit
def test_a_proxy_statistic_keeps_no_constant_group(credit):
    """OpenRLHF/OpenRLHF#1272: a mean of .5 lies inside (0, 1) and says nothing about variance."""
    assert len(batch_of(scored([0.5] * 8, credit))) == 0


@each_credit
def test_a_per_row_test_decides_for_no_group(credit):
    """NVIDIA-NeMo/RL#4158: the lone loser was dropped and seven identical winners kept."""
    assert len(batch_of(scored([0.0] + [0.95] * 7, credit, control={"refill": {"name": "dynamic-sampling"}}))) == 8


@each_credit
def test_groups_by_position_instead_of_id(credit):
    """areal-project/AReaL#1559: one failed member of four shifts no other group."""
    more = {"n_tasks": 2, "control": {"groups": 2, "retries": 0}}
    round_ = scored([[0.9, 0.1, 0.1, 0.1], [0.8, "f", 0.2, 0.2]], credit, **more)
    batch = batch_of(round_)
    assert sorted(np.bincount(batch.groups).tolist()) == [3, 4]
    for i, rollout_id in enumerate(batch.rollout_ids):
        assert rollout_id in round_.groups[batch.group_ids[batch.groups[i]]].members
    if "credit_batch" in CREDITS[credit]:
        return  # one baseline for all, by design
    alone = scored([0.8, 0.2, 0.2], credit)
    short = next(g for g in range(2) if np.count_nonzero(batch.groups == g) == 3)
    found = [v for v, g in zip(row_advantages(batch), batch.groups) if g == short]
    assert found == pytest.approx(row_advantages(batch_of(alone)))


@pytest.mark.parametrize("credit", ["grpo", "dr-grpo", "rloo", "maxrl", "gdpo"])
def test_a_silent_fallback_to_one_global_group(credit):
    """radixark/miles#1325: sizes 2 and 1; the group of one has no baseline, and borrows none."""
    more = {"n_tasks": 2, "control": {"groups": 2, "retries": 0, "min_members": 1}, "admission": KEEP}
    round_ = scored([[0.9, 0.1], [0.5, "f"]], credit, **more)
    batch = batch_of(round_)
    values = {round_.groups[batch.group_ids[g]].task.prompt: [] for g in batch.groups}
    for v, g in zip(row_advantages(batch), batch.groups):
        values[round_.groups[batch.group_ids[g]].task.prompt].append(v)
    assert values["a+?01"] == [0.0]
    assert values["a+?00"] == pytest.approx(row_advantages(batch_of(scored([0.9, 0.1], credit))))


def test_cardinality_is_what_the_recipe_says():
    """trl's rollout_func: one prompt and two generations are two answers and two rows."""
    run = lab("rw", k=2)
    batch = batch_of(run.drive())
    assert sum(run.engine.asked.values()) == len(batch) == 2
    assert len(batch.group_ids) == 1 and len(set(batch.rollout_ids)) == 2


def test_reward_placement_of_an_empty_answer():
    """verl-project/verl#6476: lengths 0 and 3; the empty answer's advantage lands nowhere, least of all on a neighbour."""
    made = group([10.0, 1.0])
    empty, other = made.members.values()
    empty.rollout = rollout("g0", plain(SegmentKind.PROMPT, 2), action(0))
    for one, value in ((empty, 10.0), (other, 1.0)):
        one.credit = Credit(value)
    batch = build_batch([made], Normalise.TOKEN_MEAN, None, 0, 0)
    assert batch.rl_mask.tolist() == [False] * 4 + [True] * 3
    assert batch.advantages[batch.rl_mask].tolist() == [1.0] * 3
    assert batch.token_weights().sum() == pytest.approx(1)


@each_credit
def test_an_unscored_sample_is_not_zero(credit):
    """huggingface/trl#5773: sample 2 of 4 has no reward; the others are equal, so nobody learns anything."""
    round_ = scored([1.0 - 0.5, None, 0.5, 0.5], credit, admission=KEEP)
    assert row_advantages(batch_of(round_)) == [0.0] * 3
    (only,) = round_.groups.values()
    assert [m.drop for m in only.members.values()] == [None, Drop.UNSCORABLE, None, None]


@each_credit
def test_a_withdrawn_group_is_dropped_and_another_drawn(credit):
    """PrimeIntellect-ai/prime-rl#2503: nothing of two prompts could be judged; the third is drawn, and the round ends."""
    drawn = []
    for seed in range(4):
        more = {"n_tasks": 3, "seed": seed, "control": {"groups": 1, "refill": {"name": "dynamic-sampling"}}}
        round_ = scored([[None, None], [None, None], [0.9, 0.1]], credit, **more)
        batch = batch_of(round_)
        withdrawn = [g for g in round_.groups.values() if {m.drop for m in g.members.values()} == {Drop.UNSCORABLE}]
        assert len(withdrawn) == len(round_.groups) - 1
        assert {round_.groups[batch.group_ids[g]].task.prompt for g in batch.groups} == {"a+?02"}
        drawn.append(len(round_.groups))
    assert max(drawn) > 1, "the case exercises nothing"


@pytest.mark.parametrize("credit", ["grpo", "dr-grpo", "rloo", "maxrl", "gdpo", "pass-at-k"])
def test_a_dropped_sample_in_the_baseline(credit):
    """areal-project/AReaL#1351: what the masked answer would have earned changes nobody's advantage."""
    values = []
    for outcome in ("rwwwwt", "rwwww"):
        rule = {"credit": {"name": credit}, "admission": {"overlong": "mask"}}
        values.append(row_advantages(batch_of(lab(outcome, k=len(outcome), filter=rule).drive())))
    assert values[0] == pytest.approx(values[1])
