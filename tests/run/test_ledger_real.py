"""Invariant 7 on the real loop: the ledger equals the engine's count, and both equal hooks inside the model."""

from __future__ import annotations

from pathlib import Path

import pytest
import real_runs

from gfcr.run.session import Session

DROPPING = (
    "control.select.name=uniform",
    "replay.augment=none",
    "control.refill={name='dynamic-sampling', max_waves=3}",
    "control.retries=1",
)
TREES = (
    "generate.topology={name = 'treepo', k = 5, segment = 6, first = [2, 3]}",
    "control.allocate=uniform",
    "filter.credit=treerl",
    "loss.packed=true",
    "control.retries=1",
)


def counted(session: Session, refuse: int = 0, fail: int = 0) -> tuple[real_runs.Breaking, real_runs.Counter]:
    engine = real_runs.Breaking(session.parts.engine, refuse, fail)
    counter = real_runs.Counter(engine.inner)
    real_runs.through(session, engine)
    return engine, counter


def agree(session: Session, engine: real_runs.Breaking, counter: real_runs.Counter, before: dict[str, int]) -> None:
    """Ledger since `before` == usage of this engine == hooks in its model."""
    total, usage = session.ledger.total, engine.usage()
    since = {
        name: getattr(total, name) - before.get(name, 0)
        for name in ("generated", "evaluated", "prefilled", "evaluated_context", "scored")
    }
    assert since["generated"] + since["evaluated"] == usage.decoded == counter.heads
    assert since["prefilled"] + since["evaluated_context"] == usage.prefilled
    assert since["scored"] == usage.scored == counter.scored
    # a stream's last token is never fed back
    assert usage.prefilled + usage.decoded - engine.ended == counter.layers
    assert total.discarded == sum(session.ledger.discarded.values()) <= total.generated


@pytest.mark.parametrize(
    ("overrides", "refuse", "fail"),
    [((), 0, 0), (DROPPING, 0, 0), (DROPPING, 5, 3), (TREES, 0, 0), (TREES, 5, 3)],
    ids=["plain", "dropping", "dropping and failing", "trees", "trees and failing"],
)
def test_every_token_is_in_the_ledger_also_after_a_resume(
    tmp_path: Path, overrides: tuple[str, ...], refuse: int, fail: int
) -> None:
    session = real_runs.create(tmp_path / "run", "budget.steps=6", "run.checkpoint_every=4", *overrides)
    engine, counter = counted(session, refuse, fail)
    rows = []

    class Cut(Exception):
        """Ends the run after a commit."""

    def progress(row: dict) -> None:
        rows.append(row)
        if row["step"] == 5 and session.step == 5:
            agree(session, engine, counter, {})
            raise Cut

    session.progress = progress
    with pytest.raises(Cut):
        session.run()
    again = Session.resume(tmp_path / "run", rows.append)
    assert again.ledger.total == session.ledger.total
    before = {name: getattr(again.ledger.total, name) for name in again.ledger.total.__slots__}
    engine2, counter2 = counted(again, refuse, fail)
    assert again.run() == "steps"
    agree(again, engine2, counter2, before)
    assert [row["step"] for row in rows] == list(range(7))
    last = rows[-1]
    assert last["tokens_discarded"] == sum(last["discarded_by_reason"].values())
    if not refuse:
        assert any(row.get("injected") for row in rows) or overrides
    else:
        assert engine.refused and engine.failed and sum(row.get("retries", 0) for row in rows)
        assert last["discarded_by_reason"]["engine"] > 0
