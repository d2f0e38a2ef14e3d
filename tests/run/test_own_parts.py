"""Whole runs with the user's own tasks, verifier and selector, and what a resume says when their code changed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import function_cases
import gfcr
from gfcr.errors import ConfigError
from gfcr.recipe import load
from gfcr.run.directory import RunDirectory, RunDirectoryError
from gfcr.run.session import Session
from gfcr.types import Status

SMALL = (
    "control.groups=3",
    "generate.topology.k=3",
    "generate.max_tokens=16",
    "budget.tokens=none",
    "budget.steps=3",
    "evaluate.every_tokens=none",
    "evaluate.samples=1",
    "filter.gates=none",
)
ROWS = [{"question": p, "answer": a} for p, a in (("gsh-i*j-?13", "11"), ("i*jsk*l-?61", "06"), ("bsc-d-e-?03", "30"))]
HELD = [{"question": "osp-?52", "answer": "45"}]
RULES = "def right(text, reference):\n    return text.rpartition('#')[2] == reference if '#' in text else None\n"


def chosen(path: Path) -> list[str]:
    with RunDirectory.read(path) as run:
        return [group.task.prompt for step in run.steps() for group in run.groups(step)]


def test_a_run_with_everything_of_ones_own_is_resumed_bit_equal(tmp_path: Path) -> None:
    def start(name: str, stop_at: int) -> Path:
        def progress(row: dict[str, object]) -> None:
            if row["step"] == stop_at:
                raise KeyboardInterrupt

        session = gfcr.session(
            "grpo",
            tmp_path / name,
            seed=3,
            set=SMALL,
            tasks=ROWS,
            heldout=HELD,
            verifiers=[function_cases.right],
            select=function_cases.drawn,
            progress=progress,
        )
        with contextlib.suppress(KeyboardInterrupt):
            session.run()
        return tmp_path / name

    whole, killed = start("whole", 99), start("killed", 1)
    assert Session.resume(killed).run() == "steps"
    assert chosen(whole) == chosen(killed) and len(chosen(whole)) == 9
    with RunDirectory.read(whole) as a, RunDirectory.read(killed) as b:
        for step in a.steps():
            mine, theirs = ([list(g.members) for g in run.groups(step)] for run in (a, b))
            assert mine == theirs
        assert a.recipe["recipe"]["filter"]["verifiers"] == [{"name": "function_cases:right", "right_at": 1.0}]
        assert a.recipe["tasks"] == {
            "count": 3,
            "heldout": 1,
            "recognised": "columns of the library verifiers: prompt from 'question', reference from 'answer'",
            "notes": 0,
            "first_notes": [],
        }
        members = [m for step in a.steps() for g in a.groups(step) for m in g.members.values()]
        assert {m.signals.primary for m in members} == {"function_cases:right"}
        assert all(m.signals.correct is not None for m in members)


def test_a_resume_says_whose_code_changed(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(RULES)
    rows = [
        {"question": row["question"], "answer": f"worked out, that is\n#### {row['answer']}"} for row in ROWS
    ]  # as GSM8K has them
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.toml").write_text(
        '[generate]\ntopology = { name = "group", k = 3 }\n[tasks]\nsource = "file"\npath = "tasks.jsonl"\n[filter]\nverifiers = [{ name = "rules.py:right" }, '
        '{ name = "answer", mode = "last-number" }]\n'
    )
    recipe = load(tmp_path / "mine.toml", SMALL)
    place = f"{tmp_path / 'rules.py'}:right"
    assert recipe.filter.verifiers[0].name == place  # from wherever it is resumed
    Session.create(recipe, 0, tmp_path / "run").run()
    with RunDirectory.read(tmp_path / "run") as run:
        assert run.recipe["tasks"]["recognised"].startswith(
            "GSM8K columns: prompt from 'question', reference from 'answer', of it"
        )
        groups = [g for step in run.steps() for g in run.groups(step)]
        signals = [m.signals for g in groups for m in g.members.values()]
    assert {g.task.reference for g in groups} <= {"11", "06", "30"}
    assert all(
        s.primary in ("rules:right", "answer") and s.correct is not None for s in signals
    )  # who abstains leaves it to the next
    assert all((s.primary == "answer") == (s.verdicts["rules:right"].status is Status.UNSCORABLE) for s in signals)
    Session.resume(tmp_path / "run").close()
    (tmp_path / "rules.py").write_text(RULES.replace("==", "!="))
    with pytest.raises(RunDirectoryError) as caught:
        Session.resume(tmp_path / "run")
    assert f"environment: code of filter.verifiers {place}: '" in caught.value.what and "tasks: " not in caught.value.what
    Session.resume(tmp_path / "run", any_environment=True).close()


def test_a_script_without_its_guard_is_told_so(tmp_path: Path) -> None:
    script = (
        "import gfcr\n\ndef right(text, reference):\n    return text == reference\n\n"
        f"GUARD gfcr.session('grpo', {str(tmp_path / 'run')!r}, set={SMALL!r}, tasks={ROWS!r}, verifiers=[right]).run()\n"
        "GUARD print('ended')\n"
    )

    def run(guard: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(script.replace("GUARD ", guard))
        environment = {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, str(tmp_path / "script.py")], env=environment, capture_output=True, text=True, timeout=900
        )

    unguarded = run("")
    assert unguarded.returncode and "under `if __name__ ==" in unguarded.stderr
    assert not (tmp_path / "run").exists()
    guarded = run("if __name__ == '__main__': ")
    assert "ended" in guarded.stdout, guarded.stderr


def test_what_cannot_be_given_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no name"):
        gfcr.session("grpo", tmp_path / "r", tasks=ROWS, verifiers=[lambda text: 1.0])
    with pytest.raises(ConfigError, match="is no method"):
        gfcr.session("grpo", tmp_path / "r", verifiers=[3])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="without tasks to train on"):
        gfcr.session("grpo", tmp_path / "r", heldout=HELD)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "notes.txt").write_text("mine")
    with pytest.raises(RunDirectoryError, match="is not empty"):
        gfcr.session("grpo", tmp_path / "r", tasks=ROWS)
    assert not (tmp_path / "r.tasks.jsonl").exists()
