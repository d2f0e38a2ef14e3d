"""A trainer that is neither ours nor TRL's: killed in mid-run it comes to the same weights."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import gfcr
from gfcr.engine.models import load_model, model_path
from gfcr.errors import ConfigError

ROOT = Path(__file__).parents[2]
SMALL = ["budget.steps=4", "control.groups=3", "generate.topology.k=4", "tasks.pool=D", "evaluate.limit=1"]


def start(out):
    sets = [part for one in SMALL for part in ("--set", one)]
    return subprocess.Popen(
        [sys.executable, "own_trainer.py", "--out", str(out), *sets],
        cwd=ROOT / "examples",
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_trainer_comes_to_the_same_weights(tmp_path):
    whole = start(tmp_path / "whole")
    said, _ = whole.communicate(timeout=300)
    assert whole.returncode == 0 and "ended: steps" in said
    cut = start(tmp_path / "cut")
    for line in cut.stdout:
        if line.startswith("step 2"):
            cut.send_signal(signal.SIGKILL)
            break
    cut.wait(60)
    again = start(tmp_path / "cut")
    rest, _ = again.communicate(timeout=300)
    assert again.returncode == 0 and "step 1:" not in rest and "ended: steps" in rest
    a, b = (torch.load(tmp_path / name / "mine.pt") for name in ("whole", "cut"))
    assert a["step"] == b["step"] > 1
    assert all(torch.equal(a["model"][name], b["model"][name]) for name in a["model"])
    lines = [line for line in said.splitlines() if line.startswith("step")]
    assert lines[-1] in rest


def test_a_recipe_that_does_not_compose_is_refused_before_a_model_is_copied(tmp_path):
    with pytest.raises(ConfigError, match="groups have one rollout"):
        gfcr.rounds("grpo", tmp_path / "r", load_model(model_path("lab")), set=["generate.topology.k=1"])
    assert not (tmp_path / "r").exists()


def test_published_weights_are_copies_and_a_model_is_as_good_as_its_state(tmp_path):
    model = load_model(model_path("lab"))
    rounds = gfcr.rounds("grpo", None, model, set=SMALL)
    first = rounds.publish(0, model)
    assert rounds.publish(1, model.state_dict()) == first
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert rounds.parts.engine.fingerprint() == first
    assert rounds.publish(2, model) != first
    rounds.close()
