"""docs/own_tasks.md does what it says: its blocks, copied out as a reader would, run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gfcr.build import preflight
from gfcr.recipe import load
from gfcr.run.directory import RunDirectory
from gfcr.types import Status, StopReason, Task

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "own_tasks.md").read_text()
TASKS, ANSWER, PLACES, SELECT = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
SCRIPT, FUNCTIONS, SELECTOR = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
GROUP = '[generate]\ntopology = { name = "group", k = 4 }\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reader's folder: rows, rewards.py and choose.py."""
    for name, rows in (("train", (("2+3?", "5"), ("3+4?", "7"))), ("test", (("1+1?", "2"),))):
        lines = (json.dumps({"data": {"question": q, "gold": a}, "source": "made up"}) + "\n" for q, a in rows)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    (tmp_path / "rewards.py").write_text(FUNCTIONS)
    (tmp_path / "choose.py").write_text(SELECTOR)
    return tmp_path


def test_the_recipes_compose_and_read_the_rows(folder: Path) -> None:
    for filters in (ANSWER, PLACES):
        (folder / "mine.toml").write_text(GROUP + TASKS + filters + SELECT)
        found = preflight(load(folder / "mine.toml"))
        assert [(t.prompt, t.reference) for t in found.tasks] == [("2+3?", "5"), ("3+4?", "7")] and len(found.heldout) == 1
        assert found.recognised == "your column map: prompt from 'data.question', reference from 'data.gold'"


def test_the_functions_judge(folder: Path) -> None:
    from gfcr.context import Build
    from gfcr.registry import Slot, find, settings_of

    task = Task("t", "2+3?", "5", meta={"data_source": "made up"})

    def judge(slot: Slot, name: str, text: str):
        found = find(slot, f"{folder / 'rewards.py'}:{name}")
        assert found.cls is not None
        return found.cls(settings_of(found, {}), Build(0, (task,), 1, 1, 1)).judge(task, text, StopReason.EOS)

    for name in ("right", "accuracy", "compute_score"):
        assert [judge(Slot.VERIFIER, name, text).correct for text in ("5", "6")] == [True, False]
    assert judge(Slot.VERIFIER, "compute_score", "5").evidence == "made up"
    assert [judge(Slot.GATE, "polite", text).status for text in ("#5", "5")] == [Status.SCORED, Status.INVALID]


def test_the_script(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with RunDirectory.read(tmp_path / "my-run") as run:
        assert run.recipe["recipe"]["filter"]["verifiers"][0]["name"] == f"{tmp_path.resolve() / 'mine.py'}:right"
        members = [m for step in run.steps() for g in run.groups(step) for m in g.members.values()]
    assert members and all(m.signals.primary == "mine:right" and m.signals.correct is not None for m in members)
    assert (tmp_path / "my-run.tasks.jsonl").exists()


def test_every_command_it_names_exists() -> None:
    from typer.testing import CliRunner

    from gfcr.cli.main import app

    for command in set(re.findall(r"^gfcr (\w+)", TEXT, re.MULTILINE)):
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0
