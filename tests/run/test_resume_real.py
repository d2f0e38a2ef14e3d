"""Invariants 10 and 11 on the real loop: cut anywhere and resumed, a run is the run that was never cut. The whole matrix and
thirty kills: `make resume-matrix`."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from bench import resume

from gfcr.run import failpoints

EVERY = "run.checkpoint_every=3"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def uncut(place: Path) -> dict[str, Any]:
    path = place / "uncut"
    assert resume.finish(path, [*resume.small(place), EVERY]) == 0
    return resume.content(path)


def test_the_small_run_is_worth_cutting(place: Path, uncut: dict[str, Any]) -> None:
    rows = [json.loads(line) for line in (place / "uncut" / "metrics.jsonl").read_text().splitlines()]
    assert sum(row.get("injected", 0) for row in rows) >= 1 and rows[-1]["version"] >= 5
    assert sum(row["heldout_accuracy"] is not None for row in rows) >= 3
    assert {spec.split(":")[0] for spec in resume.matrix()} == set(failpoints.names())


@pytest.mark.parametrize(
    "spec",
    ["create.before_commit:exit:1", "checkpoint.after_write:torn:2", "rows.before_commit:enospc:4", "rows.after_commit:exit:4"],
)
def test_cut_and_resumed(spec: str, place: Path, uncut: dict[str, Any], tmp_path: Path) -> None:
    assert resume.crash_and_resume(spec, [*resume.small(place), EVERY], uncut, tmp_path / "run") == ""


def test_killed_at_random_moments(place: Path, uncut: dict[str, Any], tmp_path: Path) -> None:
    kills = resume.kill_until_done(tmp_path / "run", [*resume.small(place), EVERY], random.Random(0), 3.0, 3)
    assert resume.differences(tmp_path / "run", uncut) == [], f"killed after steps {kills}"


def cli(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gfcr.cli.main", *arguments]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", **more}


def sets(overrides: list[str]) -> list[str]:
    return [part for override in overrides for part in ("--set", override)]


def test_ctrl_c_leaves_a_resumable_run_and_the_hash_seed_does_not_matter(
    place: Path, uncut: dict[str, Any], tmp_path: Path, gfcr_cli: Any
) -> None:
    path = tmp_path / "run"
    command = cli("run", "four_modules", "--out", str(path), "--seed", str(resume.SEED), *sets([*resume.small(place), EVERY]))
    process = subprocess.Popen(command, env=environment(PYTHONHASHSEED="1"), stderr=subprocess.PIPE, text=True)
    rows = path / "metrics.jsonl"
    for _ in range(12_000):
        if process.poll() is not None or (rows.exists() and rows.read_text().count("\n") > 1):
            break
        time.sleep(0.005)  # the whole run takes a fraction of a second
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and f"go on with: gfcr resume {path}" in said and "Traceback" not in said
    done = subprocess.run(
        cli("resume", str(path)), env=environment(PYTHONHASHSEED="2"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert resume.differences(path, uncut) == []
    assert json.loads(gfcr_cli(0, "resume", str(path), "--json"))["already_finished"] is True
    assert resume.differences(path, uncut) == []


@pytest.fixture
def tiny_disk(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_disk_that_is_really_full(place: Path, uncut: dict[str, Any], tiny_disk: Path) -> None:
    path, overrides = tiny_disk / "run", [*resume.small(place), EVERY]
    assert resume.finish(path, overrides) == resume.REFUSED
    subprocess.run(["mount", "-o", "remount,size=30m", tiny_disk], check=True)
    assert resume.finish(path, overrides) == 0
    assert resume.differences(path, uncut) == []


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))


def sql(path: Path, statement: str) -> None:
    import sqlite3

    db = sqlite3.connect(path / "run.sqlite")
    db.execute(statement)
    db.commit()
    db.close()


@pytest.fixture(scope="module")
def half(place: Path) -> Path:
    """A run that died after step 4."""
    path = place / "half"
    assert resume.finish(path, [*resume.small(place), EVERY], "rows.after_commit:exit:5") == resume.CRASHED
    return path


TAMPERED = {
    "recipe": (
        lambda p: (p / "recipe.json").write_text((p / "recipe.json").read_text().replace("0.0006", "0.0007")),
        "recipe.json",
    ),
    "weights": (lambda p: flip(p / "checkpoints" / "3" / "model.safetensors"), "checkpoints/3/model.safetensors"),
    "optimiser": (lambda p: flip(p / "checkpoints" / "3" / "trainer.safetensors"), "checkpoints/3/trainer.safetensors"),
    "old arrays": (lambda p: flip(p / "segments" / "1.bin"), "segments/1.bin"),
    "a reward": (lambda p: sql(p, "UPDATE groups SET body = replace(body, '1.0', '0.5') WHERE step = 2"), "rows, step 2"),
    "a metric": (lambda p: sql(p, "UPDATE steps SET metrics = replace(metrics, 'share', 'shard') WHERE step = 2"), "step 2"),
    "state": (lambda p: sql(p, "UPDATE states SET body = zeroblob(100)"), "states"),
    "last step": (lambda p: sql(p, "DELETE FROM steps WHERE step = 4"), "table steps, step 4"),
    "environment": (lambda p: sql(p, "UPDATE meta SET value = '{}' WHERE name = 'environment'"), "genesis"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_run_is_refused_with_what_differs(what: str, half: Path, tmp_path: Path, gfcr_cli: Any) -> None:
    path = tmp_path / "run"
    shutil.copytree(half, path)
    change, named = TAMPERED[what]
    change(path)
    said = gfcr_cli(1, "resume", str(path))
    assert named in said and "expected" in said and "found" in said


def test_another_environment_is_refused_unless_allowed(
    half: Path, tmp_path: Path, gfcr_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    path = tmp_path / "run"
    shutil.copytree(half, path)
    real = torch.__version__
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    said = gfcr_cli(1, "resume", str(path))
    assert f"torch: {str(real)!r} at creation, '9.9.9' now" in said
    gfcr_cli(0, "resume", str(path), "--any-environment")
    assert json.loads((path / "card.json").read_text())["resumed_in"][0]["environment"]["torch"] == "9.9.9"


def test_changed_tasks_are_refused(tmp_path: Path, gfcr_cli: Any) -> None:
    path = tmp_path / "run"
    assert resume.finish(path, [*resume.small(tmp_path), EVERY], "rows.after_commit:exit:2") == resume.CRASHED
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(tasks.read_text().replace('"11"', '"12"'))
    assert "tasks:" in gfcr_cli(1, "resume", str(path))
    tasks.unlink()
    assert f"there is no file {tasks}" in gfcr_cli(1, "resume", str(path))


def test_measured_error_rates_and_the_verification_budget_survive_a_crash(place: Path, tmp_path: Path) -> None:
    """A verifier that errs, held against the exact one by sampled escalation until 20 calls are spent: cut and resumed, the same."""
    noisy = '{ name = "noisy", false_negative = 0.2, false_positive = 0.05 }'
    sets = [
        *resume.small(place),
        EVERY,
        f'filter.verifiers=[{noisy}, {{ name = "exact" }}]',
        "filter.cascade={ escalate = 0.5, calls = 20 }",
    ]
    assert resume.finish(place / "measured", sets) == 0
    uncut = resume.content(place / "measured")
    rows = [json.loads(line) for line in (place / "measured" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["verifier_calls"]["exact"] == 20 and rows[-1]["verifier_skipped"]["exact"] > 0
    assert rows[-1]["verifier_rates"]["noisy"]["false_negative"]["n"] > 0
    assert resume.crash_and_resume("rows.after_commit:exit:4", sets, uncut, tmp_path / "run") == ""
