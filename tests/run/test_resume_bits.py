"""Invariant 10 on the real loop: a run cut between checkpoints comes back as the run that was never cut, bit for bit."""

from pathlib import Path

import numpy as np
import pytest
import real_runs

from gfcr.run.session import Session
from gfcr.types import Rollout, path_ids


class Cut(Exception):
    """Ends a run after a commit."""


def watched(session: Session) -> list[tuple]:
    """What each round samples: ids, tokens and log-probabilities of its rollouts, in order."""
    seen: list[tuple] = []
    drive = session.driver.drive

    def driving(round_):
        drive(round_)
        seen.extend(print_of(m.rollout) for g in round_.groups.values() for m in g.members.values())

    session.driver.drive = driving
    return seen


def print_of(rollout: Rollout) -> tuple:
    logprobs = [n.segment.logprobs.tobytes() for n in rollout.path if n.segment.logprobs is not None]
    return rollout.id, path_ids(rollout.path).tobytes(), tuple(logprobs), str(rollout.stop)


def ended(session: Session) -> dict[str, bytes]:
    """The trained weights' bytes."""
    return {name: np.asarray(tensor.detach().float()).tobytes() for name, tensor in session.parts.trainer.weights().items()}


@pytest.mark.parametrize("cut", [5])
def test_a_cut_run_resumes_to_the_same_rollouts_and_weights(tmp_path: Path, cut: int) -> None:
    """A checkpoint every third step: the steps since then are replayed through the optimiser, not generated again."""
    whole = real_runs.create(tmp_path / "whole", "budget.steps=6", "run.checkpoint_every=3")
    expected = watched(whole)
    assert whole.run() == "steps"

    first = real_runs.create(tmp_path / "cut", "budget.steps=6", "run.checkpoint_every=3")
    seen = watched(first)

    def stop(row: dict) -> None:
        if row["step"] == cut:
            raise Cut

    first.progress = stop
    with pytest.raises(Cut):
        first.run()
    again = Session.resume(tmp_path / "cut")
    seen_again = watched(again)
    assert again.run() == "steps"
    assert seen + seen_again == expected
    assert len(seen_again) > 0
    assert ended(again) == ended(whole)
    assert again.ledger.total.generated == whole.ledger.total.generated == again.budget.spent
