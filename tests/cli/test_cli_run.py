"""Runs from the command line, from beginning to end, with budgets of a few rounds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gfcr.cli.main import app

TINY = [
    "--set",
    "control.groups=2",
    "--set",
    "control.min_groups=1",
    "--set",
    "budget.tokens=1200",
    "--set",
    "evaluate.limit=4",
    "--set",
    "generate.max_tokens=16",
    "--set",
    "evaluate.samples=1",
    "--set",
    "evaluate.every_tokens=600",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A finished run, and what it wrote on stdout and stderr."""
    directory = tmp_path_factory.mktemp("cli") / "run"
    result = CliRunner().invoke(app, ["run", "four_modules", "--out", str(directory), "--seed", "3", *TINY, "--json"])
    assert result.exit_code == 0, result.output
    return directory, result.stdout, result.stderr


def test_run_prints_one_json_object(finished: tuple[Path, str, str]) -> None:
    directory, out, err = finished
    data = json.loads(out)
    assert data["recipe"] == "four-modules" and data["ended"] == "budget" and data["steps"] >= 1
    assert 0 < data["tokens"] <= 1200 and 0 <= data["final"] <= 1 and data["directory"] == str(directory)
    assert Path(data["report"]).is_file()
    assert "Warning" not in err and "Loading" not in err


def test_metrics_have_what_the_issue_names(finished: tuple[Path, str, str]) -> None:
    rows = [json.loads(line) for line in (finished[0] / "metrics.jsonl").read_text().splitlines()]
    names = {
        "step",
        "tokens_generated",
        "tokens_discarded",
        "seconds",
        "reward_mean",
        "share_all_wrong",
        "share_mixed",
        "share_all_right",
        "response_length_mean",
        "entropy_mean",
        "heldout_accuracy",
        "heldout_greedy",
    }
    assert all(names <= set(row) for row in rows)
    assert rows[0]["step"] == 0 and rows[0]["reward_mean"] is None and rows[0]["heldout_accuracy"] is not None
    assert rows[-1]["ended"] == "budget" and rows[-1]["heldout_accuracy"] is not None


def test_resume_of_a_finished_run_says_so(cli, finished: tuple[Path, str, str]) -> None:
    before = (finished[0] / "metrics.jsonl").read_bytes()
    assert "is finished (budget); nothing to do" in " ".join(cli("resume", finished[0]).stdout.split())
    assert cli.json("resume", finished[0])["already_finished"] is True
    assert (finished[0] / "metrics.jsonl").read_bytes() == before


def test_report_is_written_again(cli, finished: tuple[Path, str, str]) -> None:
    (finished[0] / "report.html").unlink()
    assert Path(cli.json("report", finished[0])["report"]).read_text().startswith("<!doctype html>")


def test_ctrl_c_tells_how_to_go_on_and_resume_goes_on(cli, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "gfcr.cli.main",
        "run",
        "grpo",
        "--out",
        str(directory),
        "--json",
        *TINY,
        "--set",
        "budget.tokens=none",
        "--set",
        "budget.steps=30",
        "--set",
        "evaluate.every_tokens=none",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rows = directory / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while not (rows.exists() and rows.read_text().count("\n") >= 3) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"gfcr resume {directory}" in err and "Traceback" not in err
    assert json.loads(out) == {"error": {"kind": "Interrupted", "what": "interrupted", "remedy": f"gfcr resume {directory}"}}
    committed = rows.read_text().count("\n")
    assert committed < 31
    assert "not finished" in Path(cli.json("report", directory)["report"]).read_text()
    assert cli.json("resume", directory)["ended"] == "steps"
    assert [json.loads(line)["step"] for line in rows.read_text().splitlines()] == list(range(31))


def test_compare_runs_and_then_skips(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["compare", "grpo", "dapo", "--seeds", "0", "--out", tmp_path / "c", *TINY, "--set", "control.max_waves=2"]
    first = cli.json(*command)
    assert [arm["name"] for arm in first["arms"]] == ["grpo", "dapo"]
    assert {run["state"] for arm in first["arms"] for v in arm["variations"] for run in v["runs"]} == {"done"}
    assert (tmp_path / "c" / "report.html").is_file() and (
        tmp_path / "c" / "grpo" / "base" / "seed-0" / "report.html"
    ).is_file()
    monkeypatch.setattr("gfcr.compare.pool.command_of", lambda cell, going_on: pytest.fail("started again"))
    again = cli.json(*command)
    assert again["arms"] == first["arms"]
    assert json.loads((tmp_path / "c" / "compare.json").read_text())["arms"] == first["arms"]
