"""Allocation: exact optimality, floor and cap, stages."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfcr.control.greedy import allocate_greedy, informative_marginals
from gfcr.control.select.informative import informative_probability
from gfcr.errors import ConfigError
from lifecycle_cases import batch_of, lab, tasks

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "groups.json").read_text())


def value(marginals, counts):
    return sum(marginals[i, :n].sum() for i, n in enumerate(counts))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0.05, 9), st.floats(0.05, 9)), min_size=1, max_size=4),
    st.integers(2, 3),
    st.integers(3, 7),
    st.data(),
)
def test_greedy_is_as_good_as_trying_every_allocation(betas, floor, cap, data):
    a, b = map(np.array, zip(*betas))
    total = data.draw(st.integers(floor * len(a), cap * len(a) + 2))
    marginals = informative_marginals(a, b, cap + 1)
    counts = allocate_greedy(marginals, total, floor, cap)
    best = max(value(marginals, c) for c in itertools.product(range(floor, cap + 1), repeat=len(a)) if sum(c) <= total)
    assert value(marginals, counts) == pytest.approx(best, abs=1e-12)
    assert counts.sum() == min(total, cap * len(a))
    assert counts.min() >= floor and counts.max() <= cap


def test_ties_go_to_the_lower_index_and_floors_beyond_the_total_are_refused():
    marginals = informative_marginals(np.ones(3), np.ones(3), 10)
    assert allocate_greedy(marginals, 10, 2, 9).tolist() == [4, 3, 3]
    with pytest.raises(ValueError, match="exceed the total of 5"):
        allocate_greedy(marginals, 5, 2, 9)


def test_reference_numbers_of_256_prompts():
    """p known (a Beta of enormous weight): the published gain and largest count, and the exact optimum by the threshold form."""
    golden = GOLDEN["greedy_reference"]
    p = np.random.default_rng(0).beta(0.5, 0.8, 256)
    marginals = informative_marginals(p * 1e9, (1 - p) * 1e9, 64)
    counts = allocate_greedy(marginals, 8 * 256, 2, 63)
    uniform, greedy = informative_probability(p, 8).mean(), informative_probability(p, counts).mean()
    assert (uniform, greedy) == (
        pytest.approx(golden["here"]["uniform"], abs=5e-4),
        pytest.approx(golden["here"]["greedy"], abs=5e-4),
    )
    assert greedy - uniform == pytest.approx(golden["published"]["greedy"] - golden["published"]["uniform"], abs=4e-3)
    assert counts.max() == golden["published"]["max_n"]
    exact = marginals[:, 2:63]
    threshold = np.sort(exact.ravel())[::-1][8 * 256 - 2 * 256]
    assert np.abs(counts - 2 - (exact > threshold).sum(1)).max() <= 1  # equal but for ties at the threshold
    assert (counts - 2 >= (exact > threshold).sum(1)).all()


@pytest.mark.parametrize("case", GOLDEN["no_signal_under_beta"]["cases"], ids=lambda c: f"Beta({c['a']},{c['b']})")
def test_expected_share_of_groups_without_signal(case):
    for k, expected in zip(GOLDEN["no_signal_under_beta"]["k"], case["values"]):
        gains = informative_marginals(np.array([case["a"]]), np.array([case["b"]]), k)
        assert 1 - gains.sum() == pytest.approx(expected, abs=6e-4)


def test_marginals_are_what_each_rollout_adds():
    gains = informative_marginals(np.array([2.0]), np.array([3.0]), 12)[0]
    assert gains[0] == pytest.approx(0)
    assert (np.diff(gains[1:]) <= 1e-12).all(), "concave from the first rollout on"
    rng = np.random.default_rng(1)
    theta = rng.beta(2, 3, 400_000)
    assert gains[:5].sum() == pytest.approx(informative_probability(theta, 5).mean(), abs=3e-3)


def test_greedy_gives_the_rounds_rollouts_to_the_task_whose_group_is_in_doubt():
    """One task is right half of the time, the other once in nine: the second needs more answers to show both."""
    script = {t.prompt: "rw" if i == 0 else "wwwwwwwwr" for i, t in enumerate(tasks(2))}
    made = lab(script, n_tasks=2, k=8, control={"allocate": {"name": "greedy", "cap": 13}, "posterior": {"forgetting": 1.0}})
    for _ in range(5):
        round_ = made.drive()
    by_task = {g.task.prompt: len(g.members) for g in round_.groups.values()}
    assert sum(by_task.values()) == 16
    assert 2 <= by_task["a+?00"] < 8 < by_task["a+?01"] <= 13
    assert {g.stage for g in round_.groups.values()} == {1}


@pytest.mark.parametrize(
    ("setting", "message"),
    [({"floor": 1}, "not concave below 2"), ({"cap": 3}, "outside floor"), ({"floor": 9}, "outside floor")],
)
def test_greedy_refuses_floors_and_caps_that_cannot_be(setting, message):
    with pytest.raises(ConfigError, match=message):
        lab("rw", k=8, control={"allocate": {"name": "greedy", **setting}})


def test_staged_allocation_stops_at_the_first_right_answer():
    staged = {"allocate": {"name": "staged", "stages": 3, "k": 2}}
    sizes, reasons = {}, {}
    for name, script in {"at once": "wr", "second stage": "wwrw", "never": "w"}.items():
        (group,) = lab(script, k=6, control=staged).drive().groups.values()
        sizes[name], reasons[name] = len(group.members), group.reason
    assert sizes == {"at once": 2, "second stage": 4, "never": 6}
    assert reasons == {"at once": "solved", "second stage": "solved", "never": "stages"}


def test_uniform_allocation_is_k_in_one_stage():
    (group,) = lab("rw", k=5).drive().groups.values()
    assert (len(group.members), group.stage, group.reason) == (5, 1, "planned")


def test_uneven_groups_are_credited_over_their_own_size():
    made = lab(
        {t.prompt: s for t, s in zip(tasks(2), ["wr", "wwwr"])},
        n_tasks=2,
        k=4,
        filter={"credit": {"name": "dr-grpo"}},
        control={"allocate": {"name": "staged", "stages": 2, "k": 2}},
    )
    batch = batch_of(made.drive())
    sizes = np.bincount(batch.groups)
    assert sorted(sizes.tolist()) == [2, 4]
    short = int(np.argmin(sizes))
    assert {
        round(float(abs(x)), 6) for x in batch.advantages[batch.rl_mask & (batch.groups[batch.row_of_token()] == short)]
    } == {0.5}
