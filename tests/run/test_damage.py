"""Damage and tampering: whatever differs from what was committed is named, refused where it matters, mended where it is derived."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from store_writer import differences, run_of, update

from gfcr.run.directory import RunDirectory, Tampered

STEPS = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return run_of(STEPS, tmp_path / "run")


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_flipped_byte_in_a_payload(path: Path) -> None:
    flip(path / "segments" / "5.bin")
    (found,) = differences(path)
    assert found.startswith("segments/5.bin, step 5: expected ") and "hash" in found
    with RunDirectory.open(path) as run:
        point = run.resume_point()
        assert point is not None
        with pytest.raises(Tampered, match=r"segments/5\.bin: \d+ bytes with hash"):
            list(point.batches)
        with pytest.raises(Tampered, match=r"segments/5.bin"):
            run.groups(5)
        assert len(run.groups(4)) == 2


def test_single_rollouts_are_checked_too(path: Path) -> None:
    file = path / "segments" / "2.bin"
    file.write_bytes(bytes(len(file.read_bytes())))
    with RunDirectory.read(path) as run, pytest.raises(Tampered, match=r"group g2\.0, with segments/2\.bin, bytes \d+ to \d+"):
        run.rollout("r2.0.0")


@pytest.mark.parametrize(
    "statement",
    ["UPDATE forms SET role = 'ce' WHERE role = 'rl'", "UPDATE forms SET version = 77", "UPDATE rollouts SET id = id || '0'"],
)
def test_single_rollouts_are_not_read_through_changed_rows(path: Path, statement: str) -> None:
    with RunDirectory.read(path) as run:
        assert run.rollout("r2.0.0").id == "r2.0.0"
    update(path, statement + " AND step = 2" if "WHERE" in statement else statement + " WHERE step = 2")
    with RunDirectory.read(path) as run:
        with pytest.raises(Tampered, match=r"run\.sqlite, step 2: its rows have hash"):
            run.rollout_at(2, 0)
        assert run.rollout("r3.0.0").id == "r3.0.0"


def test_flipped_byte_in_a_checkpoint_and_the_way_round_it(path: Path) -> None:
    flip(path / "checkpoints" / "4" / "model.safetensors")
    (found,) = differences(path)
    assert found.startswith("checkpoints/4/model.safetensors, step 4: expected")
    with RunDirectory.open(path) as run:
        with pytest.raises(Tampered, match=r"checkpoints/4/model.*\n.*resume_point\(before=4\)"):
            run.resume_point()
        assert run.resume_point(before=4).checkpoint_step == 2


@pytest.mark.parametrize(
    "statement, says",
    [
        ("UPDATE groups SET body = replace(body, '\"fresh\"', '\"replayed\"') WHERE step = 5 AND key = 0", "rows, step 5"),
        ("UPDATE groups SET state = 'abandoned' WHERE step = 4 AND key = 0", "rows, step 4"),
        ("UPDATE rollouts SET id = 'other' WHERE step = 1 AND key = 0", "rows, step 1"),
        ("DELETE FROM decisions WHERE step = 3", "rows, step 3"),
        ("UPDATE groups SET sum = zeroblob(16) WHERE step = 2 AND key = 1", "rows, step 2"),
        ("UPDATE tasks SET body = replace(body, 'task 1', 'task 9')", "table tasks"),
        ("UPDATE states SET body = zeroblob(40) WHERE step = 5", "table states, step 5"),
    ],
)
def test_changed_rows_are_found(path: Path, statement: str, says: str) -> None:
    update(path, statement)
    (found,) = differences(path)
    assert says in found


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE steps SET version = 9 WHERE step = 1",
        "UPDATE steps SET metrics = '{}' WHERE step = 2",
        "DELETE FROM steps WHERE step = 3",
        "DELETE FROM steps WHERE step = 5",
        "UPDATE meta SET value = 'x' WHERE name = 'environment'",
    ],
)
def test_a_broken_chain_is_refused(path: Path, statement: str) -> None:
    update(path, statement)
    with pytest.raises(Tampered, match="expected"):
        RunDirectory.open(path)
    assert differences(path)


def test_changed_recipe_missing_payload_and_foreign_card_are_refused(path: Path, tmp_path: Path) -> None:
    recipe = (path / "recipe.json").read_text()
    (path / "recipe.json").write_text(recipe.replace("writer", "reader"))
    with pytest.raises(Tampered, match=r"recipe.json: expected hash"):
        RunDirectory.open(path)
    (path / "recipe.json").write_text(recipe)
    card = (path / "card.json").read_text()
    (path / "card.json").write_text(card.replace('"head": "', '"head": "00'))
    with pytest.raises(Tampered, match=r"card.json, step 5: expected a head of this run's chain"):
        RunDirectory.open(path)
    (path / "card.json").write_text(card)
    payload = (path / "segments" / "3.bin").read_bytes()
    (path / "segments" / "3.bin").unlink()
    with pytest.raises(Tampered, match=r"segments/3.bin, step 3: expected .* found no file"):
        RunDirectory.open(path)
    (path / "segments" / "3.bin").write_bytes(payload)
    RunDirectory.open(path).close()
    assert differences(path) == []


def test_orphans_go_and_what_is_not_ours_stays(path: Path) -> None:
    (path / "segments" / "6.bin").write_bytes(b"x")
    (path / "segments" / ".writing-7.bin").write_bytes(b"x")
    (path / "checkpoints" / "5").mkdir()
    (path / "checkpoints" / "best").mkdir()
    (path / "notes.txt").write_text("mine")
    assert [d.split(":")[0] for d in differences(path)] == ["checkpoints/5", "segments/.writing-7.bin", "segments/6.bin"]
    RunDirectory.open(path).close()
    assert differences(path) == [] and (path / "notes.txt").exists() and (path / "checkpoints" / "best").exists()
    assert not (path / "segments" / "6.bin").exists() and not (path / "checkpoints" / "5").exists()


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-20], lambda text: text + "{}\n", lambda text: "", lambda text: text[300:]]
)
def test_metrics_file_is_mended(path: Path, damage) -> None:
    file = path / "metrics.jsonl"
    whole = file.read_text()
    file.write_text(damage(whole))
    assert differences(path)[0].startswith("metrics.jsonl: expected 6 lines")
    RunDirectory.open(path).close()
    assert file.read_text() == whole
    rows = [json.loads(line) for line in whole.splitlines()]
    assert [row["step"] for row in rows] == list(range(STEPS)) and rows[0]["loss"] == {"$float": "nan"}


def test_missing_derived_files_are_made_again(path: Path) -> None:
    (path / "metrics.jsonl").unlink()
    (path / "card.json").unlink()
    RunDirectory.open(path).close()
    assert differences(path) == []
