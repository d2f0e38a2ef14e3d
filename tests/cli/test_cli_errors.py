"""Bad input: what, where, which value, what to do; exit code 1, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

import report_cases


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["trian.lr=1"], "unknown key 'trian' remedy: did you mean 'train'?"),
        (["train.lrr=1"], "unknown key 'train.lrr' remedy: did you mean 'lr'?"),
        (["control.select=informativ"], "control.select: there is no method 'informativ' remedy: did you mean 'informative'?"),
        (["control.select={name='informative', pwoer=2}"], "unknown key 'pwoer' remedy: did you mean 'power'?"),
        (["generate.topology.k=1"], "filter.credit 'grpo' subtracts the group's mean, and groups have one rollout"),
        (["budget.tokens=0"], "budget.tokens: Input should be greater than 0 (got 0)"),
        (["budget.tokens=none"], "neither budget.tokens nor budget.steps limits the run"),
        (["train.lr"], "--set 'train.lr' is not KEY=VALUE"),
        (["generate.sampling.top_p=2"], "generate.sampling.top_p"),
        (["tasks.pool=D9"], "there is no pool 'D9'"),
    ],
)
def test_recipes_that_cannot_run(cli, out: Path, settings: list[str], said: str) -> None:
    assert said in cli.error("run", "grpo", "--out", out, *(part for one in settings for part in ("--set", one)))
    assert not out.exists()


def test_no_such_recipe(cli, out: Path) -> None:
    said = cli.error("run", "grop", "--out", out)
    assert "there is no recipe: 'grop' remedy: did you mean 'grpo'? Otherwise give a TOML file, or one of: ar3po, " in said
    assert "there is no recipe" in cli.error("run", "nowhere/grpo.toml", "--out", out)


def test_a_recipe_that_is_no_toml(cli, tmp_path: Path, out: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text("name = \n")
    assert "is not TOML" in cli.error("run", file, "--out", out)
    file.write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in cli.error("run", file, "--out", out)
    assert "a directory, not a recipe" in cli.error("run", tmp_path, "--out", out)


def test_an_existing_run_is_not_touched(cli, out: Path) -> None:
    report_cases.write_run(out, report_cases.finished_rows())
    before = {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()}
    assert f"holds a run already remedy: continue it (gfcr resume {out})" in cli.error("run", "grpo", "--out", out)
    assert {name: (out / name).read_bytes() for name in before} == before


def test_a_foreign_directory_is_not_touched(cli, out: Path) -> None:
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    cli.error("run", "grpo", "--out", out)
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


def test_an_unreadable_model(cli, tmp_path: Path, out: Path) -> None:
    said = cli.error("run", "grpo", "--out", out, "--set", f"model.path={tmp_path / 'none'}")
    assert str(tmp_path / "none") in said
    assert not out.exists()


def test_an_empty_task_file(cli, tmp_path: Path, out: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("")
    said = cli.error(
        "run", "grpo", "--out", out, "--set", "tasks.source=file", "--set", f"tasks.path={tmp_path / 'tasks.jsonl'}"
    )
    assert "tasks.jsonl" in said
    assert not out.exists()


def test_resume_of_no_run(cli, tmp_path: Path) -> None:
    assert str(tmp_path) in cli.error("resume", tmp_path)


def test_report_of_no_run(cli, tmp_path: Path) -> None:
    assert "holds neither a run nor a comparison" in cli.error("report", tmp_path)


def test_an_error_as_json(cli, out: Path) -> None:
    error = cli.json("run", "nope", "--out", out, code=1)["error"]
    assert error["kind"] == "ConfigError" and "nope" in error["what"] and error["remedy"]


def test_a_traceback_only_with_debug(cli, out: Path) -> None:
    assert "Traceback" in cli("run", "nope", "--out", out, "--debug", code=1).stderr


def test_a_bug_says_so(cli, monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    monkeypatch.setattr("gfcr.recipe.load", lambda *a: 1 / 0)
    result = cli("run", "grpo", "--out", out, code=70)
    assert "a bug in gfcr" in result.stderr and "--debug" in result.stderr and "Traceback" not in result.stderr


def test_wrong_usage(cli) -> None:
    cli("run", code=2)


def test_compare_refuses_before_it_writes(cli, tmp_path: Path) -> None:
    assert "the name 'grpo'" in cli.error("compare", "grpo", "grpo", "--out", tmp_path / "c")
    assert "cannot carry one round" in cli.error("compare", "grpo", "--out", tmp_path / "c", "--budget", "100")
    assert not (tmp_path / "c").exists()


def test_a_fault_in_a_file_of_the_users_names_file_and_line(cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from gfcr.registry import Faithfulness, Slot, method\n"
        "@method('mine', Slot.SEED, title='mine', criterion='cost', faithfulness=Faithfulness.OURS)\n"
        "class Mine:\n"
        "    def __init__(self, settings, build): pass\n"
        "    def seed(self, group, n, view): raise ValueError('mine')\n"
    )
    said = cli.error("sample", "grpo", "--task", "0", "--set", f"generate.seed={tmp_path}/mine.py:Mine")
    assert "mine.py:5 raised ValueError: mine remedy: correct it" in said
