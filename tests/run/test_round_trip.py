"""What is committed comes back: every field, every bit."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from store_examples import action, batch, decisions, groups, same, tree, turns

from gfcr.run import decode
from gfcr.run.directory import RunDirectory
from gfcr.run.failures import RunDirectoryError
from gfcr.run.record import StepRecord
from gfcr.types import Group, Member, Role, Rollout, StopReason

RECIPE = {"schema": 1, "seed": 7}


@pytest.fixture
def run(tmp_path: Path):
    with RunDirectory.create(tmp_path / "run", RECIPE) as found:
        yield found


def record(step: int = 0, **changes) -> StepRecord:
    given = {
        "step": step,
        "round": step,
        "version": step + 1,
        "groups": groups(),
        "batch": batch(),
        "decisions": decisions(),
        "metrics": {"loss": float("nan"), "lr": 1e-4},
    }
    return StepRecord(**(given | changes))


def test_everything_comes_back(run) -> None:
    run.commit(record())
    same(groups(), run.groups(0))
    same(batch(), run.batch(0))
    same(decisions(), list(run.decisions()))
    same([{"step": 0, "round": 0, "version": 1, "loss": float("nan"), "lr": 1e-4}], run.metrics())
    same([g.task for g in groups()], list(run.tasks()))
    same(list(turns().members["multi"].rollout.path), list(run.rollout("multi").path))
    assert run.verify() == []


def test_shared_nodes_are_stored_and_given_back_once(run) -> None:
    run.commit(record(groups=[tree()]))
    (body,) = run.db.execute("SELECT body FROM groups").fetchone()
    assert len(decode.body(body).nodes) == 5
    a, b, _ = (m.rollout for m in run.groups(0)[0].members.values())
    assert a.path[0] is b.path[0] and a.path[1] is b.path[1] and a.path[2] is not b.path[2]


def test_arrays_are_read_only_and_none_is_not_zero(run) -> None:
    run.commit(record())
    member = run.groups(0)[1].members["multi"]
    with pytest.raises(ValueError, match="read-only"):
        member.rollout.path[0].segment.ids[0] = 1
    assert member.rollout.path[0].segment.logprobs is None and member.signals.steps[1].value is None


def test_rollout_met_again_is_stored_again_only_when_it_changed(run) -> None:
    old = tree().members["tree0"].rollout
    run.commit(record(groups=[tree()]))
    again = Group("g2", tree().task, 5, 3, members={"tree0": Member(old, Role.REPLAYED)})
    run.commit(record(1, groups=[again]))
    assert run.db.execute("SELECT count(*), max(step) FROM rollouts").fetchone() == (3, 0)
    same([again], run.groups(1))
    rescored = Rollout("tree0", old.task_id, old.path[:2], old.stop)
    run.commit(record(2, groups=[Group("g3", tree().task, 6, 3, members={"tree0": Member(rescored, Role.REPLAYED)})]))
    same(old, run.rollout("tree0"))
    same(old, run.rollout("tree0", step=1))
    same(rescored, run.rollout("tree0", step=2))
    with pytest.raises(RunDirectoryError, match="no rollout 'tree9'"):
        run.rollout("tree9")


def test_decisions_by_task_and_step(run) -> None:
    run.commit(record())
    run.commit(record(3))
    assert [d.subject for d in run.decisions(task=tree().task.id)] == ["g-tree", "g-tree"]
    assert len(list(run.decisions(step=3))) == 3 and len(list(run.decisions(task="t", step=3))) == 0


def test_arrays_of_odd_kinds(run) -> None:
    state = {
        "a": np.array([], np.float64),
        "b": np.array(["x", "é"]),
        "c": np.zeros((3, 0, 2), bool),
        "d": np.array(3 + 2j),
        "e": np.repeat([1.5, np.nan], 500).reshape(2, 500),
        "f": np.arange(12).reshape(3, 4).T,
        "g": np.array([1], ">i4"),
    }
    run.commit(record(state=state))
    same(state, run.resume_point().state)


def test_reading_takes_the_memory_of_one_payload_whatever_the_groups_size(run) -> None:
    group, n = tree(), 4000
    root = next(iter(group.members.values())).rollout.path[0]
    for i in range(100):
        path = (root, action(f"long{i}", root.id, n=n, tracks={}))
        rollout = Rollout(f"long{i}", group.task.id, path, StopReason.EOS)
        group.members[rollout.id] = Member(rollout)
    run.commit(record(groups=[group], batch=None))
    size = run.payload_file(0).stat().st_size
    assert size > 100 * n * 8
    tracemalloc.start()
    try:
        (found,) = run.groups(0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    same(found, group)
    assert peak < 3 * size
