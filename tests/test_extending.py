"""docs/extending.md does what it says: its module, entry points, recipe and script, as a reader would copy them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "extending.md").read_text()
POOL = ROOT / "src/gfcr/domains/programs/data"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def run(tmp_path):
    """Runs Python in a directory where the document's package is installed."""
    points = blocks("toml")[0].split("\n", 1)[1].replace('"', "")
    info = tmp_path / "site" / "my_methods-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-methods\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[gfcr.methods]\n{points}")
    (tmp_path / "site" / "my_methods.py").write_text(blocks("python")[0])
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT / "src")])

    def go(*arguments):
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return go


GFCR = ("-c", "from gfcr.cli.main import app; app()")


def test_the_methods_and_the_recipe(run, tmp_path):
    for name, file in (("tasks", "B2.jsonl"), ("heldout", "B2.heldout.jsonl")):
        rows = [json.loads(line) for line in (POOL / file).read_text().splitlines()[:60]]
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps({"question": r["prompt"], "answer": r["final"]}) + "\n" for r in rows)
        )
    (tmp_path / "mine.toml").write_text(blocks("toml")[1])
    assert "Subtracted from every reward." in run(*GFCR, "methods", "--slot", "filter.credit")
    found = json.loads(
        run(*GFCR, "run", "mine.toml", "--out", "r", "--json", "--set", "budget.tokens=3000", "--set", "evaluate.limit=5")
    )
    assert found["steps"] >= 1 and found["discarded_share"] == 0


def test_the_script(run):
    said = run("-c", blocks("python")[1])
    assert "ended: budget" in said and "mixed" in said


def test_a_topology_a_seeder_and_a_rule_by_place(run, tmp_path):
    (tmp_path / "mine.py").write_text(blocks("python")[2])
    sample = ("sample", "grpo", "--task", "0", "--json", "--set", "tasks.pool=D")
    named = [part for line in blocks("toml")[2].splitlines()[1:] for part in ("--set", f"generate.{line.partition('   #')[0]}")]
    found = json.loads(run(*GFCR, *sample, *named))
    assert len(found["rollouts"]) == 4
    assert [rollout["role"] for rollout in found["rollouts"]] == ["fresh", "guided"] * 2
    rule = 'generate.topology={name="best-first", k=4, segment=8, prune="mine.py:long_ones"}'
    assert json.loads(run(*GFCR, *sample, "--set", rule))["rollouts"]


def test_a_trainer_of_ones_own(run):
    assert "ended: steps" in run("-c", blocks("python")[3])
