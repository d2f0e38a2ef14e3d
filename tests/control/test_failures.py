"""Failure policies: what is tried again, which groups go on, and that old recipes mean what they meant."""

import pytest

from gfcr.control.failures import FailFast, Lenient, MinimumGroup, Retry, RunFailed
from gfcr.errors import ConfigError
from gfcr.recipe import parse
from gfcr.registry import Settings
from gfcr.types import GroupState
from lifecycle_cases import lab


def states(made):
    round_ = made.drive()
    return [g.state for g in round_.groups.values()], made.engine.requests, round_


def test_old_keys_are_read_as_the_policys_settings():
    old = parse({"control": {"retries": 5, "min_members": 3}})
    assert old.control.failures.values() == {"attempts": 5, "members": 3}
    mixed = parse({"control": {"retries": 5, "failures": {"name": "retry"}}})
    assert mixed.control.failures.values() == {"attempts": 5}
    assert parse({}).frozen()["control"]["failures"] == {"name": "retry", "attempts": 2, "members": 2}
    assert parse(old.frozen()).hash() == old.hash()
    with pytest.raises(ConfigError, match="attempts"):
        parse({"control": {"retries": -1}})


def test_retry_asks_again_as_often_as_it_says_and_goes_on_with_what_is_left():
    found, requests, _ = states(
        lab(lambda p, n: "f" if n < 3 else "r", k=2, control={"failures": {"name": "retry", "attempts": 3}})
    )
    assert found == [GroupState.CLOSED] and len(requests) == 5
    found, requests, _ = states(lab("rwff", k=4, control={"failures": {"name": "retry", "attempts": 0}}))
    assert found == [GroupState.CLOSED] and len(requests) == 4
    assert Retry(Retry.Settings(members=5)).enough(2, 2) and not Retry(Retry.Settings()).enough(1, 2)


def test_a_minimum_group_is_tried_once_and_wants_its_share():
    policy = {"failures": {"name": "minimum-group", "share": 0.75}}
    found, requests, _ = states(lab("rwwf", k=4, control=policy))
    assert found == [GroupState.CLOSED] and len(requests) == 4
    found, _, round_ = states(lab("rwff", k=4, control=policy))
    assert found == [GroupState.ABANDONED] and "too_few_members" in round_.reason
    assert MinimumGroup(MinimumGroup.Settings(share=0.5)).enough(2, 3) and not MinimumGroup(
        MinimumGroup.Settings(share=0.5)
    ).enough(1, 3)


def test_fail_fast_ends_the_run_with_the_failure():
    with pytest.raises(RunFailed, match="engine"):
        lab("rf", k=2, control={"failures": {"name": "fail-fast"}}).drive()
    assert lab("rw", k=2, control={"failures": {"name": "fail-fast"}}).drive().ready() is not None
    assert FailFast(Settings()).enough(2, 8)


def test_a_lenient_policy_keeps_every_answer():
    inner = Retry(Retry.Settings(attempts=1))
    assert Lenient(inner).enough(1, 8) and not Lenient(inner).enough(0, 8)
    assert Lenient(inner).again("lost: x", 0) and not Lenient(inner).again("lost: x", 1)
