"""GDPO: several rewards, some of them missing."""

import pytest

from gfcr.errors import ConfigError
from gfcr.filter.admission import AdmissionSettings
from gfcr.filter.credit.gdpo import GDPO
from gfcr.types import Signals, Status, Verdict
from group_cases import advantages, group

KEEP = AdmissionSettings(drop_zero_variance=False)


def of(rows, invalid=(), **settings):
    """Advantages of members with these rewards by name; None = the verifier abstained."""
    made = group([0.0] * len(rows))
    for i, (one, row) in enumerate(zip(made.members.values(), rows)):
        if i in invalid:
            one.signals = Signals({"gate": Verdict("gate", "1", Status.INVALID)}, "gate", {}, 0.0)
            continue
        verdicts = {
            name: Verdict(name, "1", Status.UNSCORABLE if value is None else Status.SCORED, value)
            for name, value in row.items()
        }
        rewards = {name: value for name, value in row.items() if value is not None}
        one.signals = Signals(verdicts, "a", rewards, row["a"])
    return advantages(made, GDPO(GDPO.Settings(eps=0, **settings), None), KEEP)


def test_an_abstention_is_in_no_statistic_and_adds_nothing():
    base = of([{"a": 1.0}, {"a": 0.0}, {"a": 0.0}])
    with_b = of([{"a": 1.0, "b": None}, {"a": 0.0, "b": 0.25}, {"a": 0.0, "b": 0.75}])
    assert with_b == pytest.approx([base[0], base[1] - 2**-0.5, base[2] + 2**-0.5])


def test_a_reward_that_one_answer_alone_has_adds_nothing():
    assert of([{"a": 1.0, "b": 3.0}, {"a": 0.0, "b": None}]) == of([{"a": 1.0}, {"a": 0.0}])


def test_a_constant_reward_adds_exactly_zero_float_noise_or_not():
    assert of([{"a": 1.0, "b": 0.1}, {"a": 0.0, "b": 0.1}, {"a": 0.0, "b": 0.1}]) == of([{"a": 1.0}, {"a": 0.0}, {"a": 0.0}])
    assert of([{"a": 0.2, "b": 0.1}] * 8) == [0.0] * 8


def test_a_small_reward_weighs_as_much_as_a_large_one():
    """Decoupled: the scale of a reward is none of the advantage's business, its weight is."""
    small = of([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 0.001}])
    assert small == pytest.approx([0.0, 0.0], abs=1e-9)
    assert of([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1000.0}]) == pytest.approx(small, abs=1e-9)
    assert of([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 0.001}], weights={"a": 2.0, "b": 1.0})[0] == pytest.approx(2**-0.5)


def test_an_answer_that_a_gate_refused_is_the_wrong_answer_in_every_reward():
    rows = [{"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 0.0}]
    assert of(rows, invalid=(1,)) == of(rows)
    assert of(rows, invalid=(0, 1, 2)) == [0.0] * 3


def test_an_unscorable_member_is_in_no_statistic():
    rows = [{"a": 1.0, "b": 1.0}, {"a": None, "b": 5.0}, {"a": 0.0, "b": 0.0}]
    assert of(rows) == [*of([rows[0], rows[2]])[:1], None, *of([rows[0], rows[2]])[1:]]


def test_a_weight_for_a_reward_that_nobody_gives_is_an_error():
    with pytest.raises(ConfigError, match=r"weights 'c', and no verifier of that name .*those that did: a, b"):
        of([{"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 0.0}], weights={"a": 1.0, "c": 1.0})


def test_a_weighted_verifier_that_abstained_throughout_is_no_error():
    rows = [{"a": 1.0, "b": None}, {"a": 0.0, "b": None}]
    assert of(rows, weights={"a": 1.0, "b": 1.0}) == of([{"a": 1.0}, {"a": 0.0}])
