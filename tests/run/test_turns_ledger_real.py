"""Invariant 7 where environments break: in a real run of several turns whose environment raises, hangs past its deadline and loses the process
it talks to, every token that went through the model and every turn that was played is in the ledger once, under a reason of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import real_runs

from gfcr.control.failures import RunFailed
from gfcr.environments.acts import Acted, Finish, Turn
from gfcr.run.directory import RunDirectory
from gfcr.run.session import Session
from turn_cases import Shaky

TURNS = (
    "generate.topology.k=6",
    "generate.topology.turns=6",
    "generate.host.seconds=0.5",
    "evaluate.every_tokens=none",
    "run.checkpoint_every=3",
)
POLICIES = {
    "retry": "control.failures={name = 'retry', attempts = 2}",
    "minimum viable group": "control.failures={name = 'minimum-group', share = 0.5}",
}
KINDS = {"environment_fault", "environment_raised", "environment_time_out"}


class Counting:
    """Counts the turns that the session's environments answered, and how the others were told."""

    def __init__(self, session: Session) -> None:
        self.played, self.faults = 0, Counter[str]()
        self.start = session.driver.plays.start
        session.driver.plays = self

    def __call__(self, act: Any, acted: Acted) -> None:
        self.played += isinstance(act, Turn) and acted.step is not None
        if acted.error and not isinstance(act, Finish):  # what is left of lost sessions is ended, and nobody is told
            self.faults[acted.error.partition(":")[0]] += 1


def counted(path: Path, *overrides: str) -> tuple[Session, Counting, real_runs.Counter]:
    Shaky.broke.clear()
    session = real_runs.create(path, *TURNS, *overrides, recipe="registers_turns")
    hooks, counting = real_runs.Counter(session.parts.engine), Counting(session)
    plain = counting.start

    def start(act: Any) -> Any:
        future = plain(act)
        future.add_done_callback(lambda done: counting(act, done.result()))
        return future

    counting.start = start
    return session, counting, hooks


def agree(session: Session, counting: Counting, hooks: real_runs.Counter) -> None:
    ledger, usage = session.ledger, session.parts.engine.usage()
    total = ledger.total
    assert total.generated + total.evaluated == usage.decoded == hooks.heads
    assert total.prefilled + total.evaluated_context == usage.prefilled
    assert total.discarded == sum(ledger.discarded.values()) <= total.generated
    assert total.env_steps == counting.played and sum(ledger.lost_steps.values()) <= total.env_steps
    known = {*KINDS, "zero_variance", "abandoned", "environment_lost"}
    assert set(ledger.discarded) <= known and set(ledger.lost_steps) <= known


def trained(path: Path) -> tuple[int, int, list[str]]:
    """(tokens, turns played, faults told) of what reached a loss, read back from the run directory."""
    with RunDirectory.read(path) as run:
        groups = [group for step in run.steps() for group in run.groups(step)]
        faults = [d.reason.partition(":")[0] for d in run.decisions() if d.action == "fault"]
    reached = [m.rollout for g in groups if g.state == "closed" for m in g.members.values() if m.credit and not m.drop]
    return sum(r.response_length for r in reached), sum(r.cost.env_steps for r in reached), faults


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_every_token_and_turn_is_booked_once(policy: str, tmp_path: Path) -> None:
    session, counting, hooks = counted(
        tmp_path / "run",
        "generate.environment={name = 'turn_cases:Mortal', every = 60}",
        "budget.steps=3",
        POLICIES[policy],
    )
    assert session.run() == "steps"
    agree(session, counting, hooks)
    tokens, turns, told = trained(tmp_path / "run")
    ledger = session.ledger
    assert tokens + ledger.total.discarded == ledger.total.generated and tokens > 0
    assert turns + sum(ledger.lost_steps.values()) == ledger.total.env_steps and turns > 0
    assert set(told) == KINDS and sum(counting.faults.values()) == len(told)
    for kind in KINDS:
        assert told.count(kind) == counting.faults[kind] > 0 and ledger.discarded[kind] > 0
    assert ledger.total.tool_seconds > 0.5


def test_at_the_first_failure_the_run_ends_with_the_books_of_its_last_commit(tmp_path: Path) -> None:
    session, counting, hooks = counted(
        tmp_path / "run",
        "generate.environment={name = 'turn_cases:Shaky', at = 200}",
        "budget.steps=12",
        "control.failures=fail-fast",
    )
    rows: list[dict[str, Any]] = []

    def progress(row: dict[str, Any]) -> None:
        rows.append(row)
        agree(session, counting, hooks)

    session.progress = progress
    with pytest.raises(RunFailed, match="environment_fault: broke"):
        session.run()
    assert len(rows) > 2 and Shaky.broke["environment_fault"] == 1
    with RunDirectory.read(tmp_path / "run") as run:
        assert run.steps() == [row["step"] for row in rows]
    tokens, turns, told = trained(tmp_path / "run")
    assert tokens + rows[-1]["tokens_discarded"] == rows[-1]["tokens_generated"] and not told
    assert turns + sum(rows[-1]["env_steps_lost"].values()) == rows[-1]["env_steps"]
