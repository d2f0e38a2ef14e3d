"""The drivers that a recipe can name, in the real loop: a stream of rollouts draws what waves draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import real_runs

from gfcr.drivers.stream import StreamDriver
from gfcr.drivers.wave import WaveDriver
from gfcr.errors import ConfigError
from gfcr.run.directory import RunDirectory


def test_a_stream_samples_what_waves_sample(tmp_path: Path) -> None:
    found = {}
    for name, kind in (("waves", WaveDriver), ("stream", StreamDriver)):
        overrides = ("generate.topology.k=6", f"run.driver={name}", "budget.steps=1", "evaluate.every_tokens=none")
        session = real_runs.create(tmp_path / name, *overrides, recipe="registers_turns")
        assert type(session.driver) is kind and session.run() == "steps"
        with RunDirectory.read(tmp_path / name) as run:
            rollouts = [m.rollout for group in run.groups(1) for m in group.members.values()]
        found[name] = {r.id: r for r in rollouts}
        total, usage = session.ledger.total, session.parts.engine.usage()
        assert total.generated + total.evaluated == usage.decoded and len(session.parts.host) == 0
    waves, stream = found["waves"], found["stream"]
    assert set(waves) == set(stream) and len(waves) == 18
    same = [name for name in waves if np.array_equal(waves[name].own_tokens(), stream[name].own_tokens())]
    assert len(same) >= 17  # a uniform within rounding of a border may draw the neighbouring token
    for name in same:
        ours, theirs = ([s.logprobs for s in r.actions()] for r in (waves[name], stream[name]))
        assert np.allclose(np.concatenate(ours), np.concatenate(theirs), atol=5e-5)


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.driver"):
        real_runs.create(tmp_path / "run", "run.driver=async")
