"""The benches' record: machine facts in every JSON, Markdown written from it, only marked places of a document touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import markdown, record

ROOT = Path(__file__).parents[1]
OVERHEAD = {
    "bench": "overhead",
    "machine": {"cpu": "a processor", "cores": 2, "memory_gb": None, "load_1min": 0.1, "python": "3.11.1", "commit": "abc"},
    "floor_us": 10.0,
    "rows": [{"rollouts": 1000, "cpu_us": 200.0, "wall_us": 300.0, "rss_mb": 75.0}],
    "last_over_first": 1.0,
}


def test_facts_are_in_every_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(record.OUT, str(tmp_path / "out"))
    record.emit("store", {"rows": []})
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "store.json").read_text())
    assert printed["bench"] == "store" and printed["machine"]["cpu"] and printed["machine"]["torch"]
    assert {"cores", "load_1min", "threads", "python", "numpy", "gfcr", "commit", "time"} <= set(printed["machine"])


def test_every_bench_ends_with_a_record() -> None:
    for name in (*markdown.WRITERS, "record"):
        text = (ROOT / "bench" / f"{name}.py").read_text()
        assert name == "record" or f'emit("{name}", ' in text, name


def test_markdown_sets_ratios_beside_figures_and_names_the_machine() -> None:
    text = markdown.section(OVERHEAD)
    assert "| 1,000 | 200 | 20.0 | 300 | 75 |" in text
    assert "a processor, 2 cores, ? GB, load 0.1" in text and "python 3.11.1; commit abc" in text


def test_only_marked_places_with_a_result_are_written() -> None:
    page = "a\n<!-- bench overhead -->\nold\n<!-- end bench -->\nb\n<!-- bench engine -->\nkept\n<!-- end bench -->\n"
    text, filled = markdown.put(page, {"overhead": OVERHEAD})
    assert filled == ["overhead"] and "old" not in text and "| 1,000 |" in text
    assert text.startswith("a\n<!-- bench overhead -->\n") and "<!-- bench engine -->\nkept\n<!-- end bench -->\n" in text
    assert markdown.put(text, {"overhead": OVERHEAD})[0] == text


def test_one_command_measures_and_writes_both(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "all", "--quick", "--only", "store", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole = json.loads((tmp_path / "all.json").read_text())
    assert whole["failed"] == [] and whole["results"]["store"]["rows"][0]["rollouts"] >= 896 and whole["machine"]["cpu"]
    assert "## store" in (tmp_path / "benchmarks.md").read_text()
    said = subprocess.run(
        [*command[:-3], "nothing", "--out", str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert said.returncode == 2 and "there is no bench 'nothing'" in said.stderr
