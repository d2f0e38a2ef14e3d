"""kill -9 inside a generation batch: GfcrGRPOTrainer trains every answer as often as planned; TRL alone trains some 1.5 times and
others half."""

import json
from collections import Counter

import pytest

pytest.importorskip("trl")

from bench import resume
from tests.integrations.trl_cases import child, log_of

from gfcr.run.directory import RunDirectory

KILLED = -9


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that is never killed: (directory, overrides)."""
    place = tmp_path_factory.mktemp("whole")
    overrides = (*resume.small(place), "budget.steps=4", "train.kl=0", "train.minibatches=2")
    assert child("play_ours", place, overrides, 1, 0, False, False) == 0
    return place, overrides


def trained(place, since=0):
    """How often each answer of each round was trained."""
    return Counter((row["round"], answer) for row in log_of(place)[since:] for answer in row["rows"])


@pytest.mark.parametrize(
    ("save_steps", "kill_at", "at_save"),
    [
        (1, 3, True),  # the checkpoint lies in the middle of round 1
        (3, 5, False),  # the last checkpoint too, and an update after it is lost
        (100, 2, False),  # no checkpoint yet, two updates and two rounds done
    ],
)
def test_nothing_is_trained_twice_and_nothing_skipped(whole, save_steps, kill_at, at_save, tmp_path):
    reference, overrides = whole
    assert child("play_ours", tmp_path, overrides, save_steps, kill_at, at_save, False) == KILLED
    before = len(log_of(tmp_path))
    with RunDirectory.read(tmp_path / "rounds") as run:
        committed = run.last_step()
    assert child("play_ours", tmp_path, overrides, save_steps, 0, False, True) == 0
    final = [(place / "final" / "model.safetensors").read_bytes() for place in (reference, tmp_path)]
    assert final[0] == final[1]  # bit-equal to the run that was never killed

    checkpoint = (kill_at // save_steps) * save_steps  # what is lost with the process counts as not trained
    kept = [row for row in log_of(tmp_path)[:before] if row["step"] < checkpoint] + log_of(tmp_path)[before:]
    times = Counter((row["round"], answer) for row in kept for answer in row["rows"])
    assert times == trained(reference) and set(times.values()) == {1}
    assert {row["round"] for row in kept} >= {0, 1, 2}
    again = [row["round"] for row in log_of(tmp_path)[before:] if row["replayed"]]
    assert again and max(again) == committed - 1  # committed rounds came back, none was sampled again
    with RunDirectory.read(tmp_path / "rounds") as run, RunDirectory.read(reference / "rounds") as other:
        assert run.verify() == [] and run.steps() == other.steps() == [1, 2, 3, 4]
        for step in run.steps():
            assert run.payload_file(step).read_bytes() == other.payload_file(step).read_bytes()
        assert any(row["injected"] for row in run.metrics()) or len({row["rows"] for row in run.metrics()}) > 1


def test_trl_alone_does_both(tmp_path):
    """The control: without it the test above could pass for a trainer that never stumbles."""
    assert child("play_trl", tmp_path, 1, False) == KILLED
    assert child("play_trl", tmp_path, 0, True) == 0
    log = log_of(tmp_path)
    generated = [row["prompts"] for row in log if row["kind"] == "generated"]
    times = Counter(prompt for row in log if row["kind"] == "trained" for prompt in row["prompts"])
    first, second = set(generated[0]), set(generated[-1])
    assert set(generated[1]) == first and not first & second  # sampled a second time
    assert sum(times[p] for p in first) == 24 and sum(times[p] for p in second) == 8  # 16 planned of each: 1.5 and 0.5 times
    state = json.loads((tmp_path / "out" / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["global_step"] == 4
