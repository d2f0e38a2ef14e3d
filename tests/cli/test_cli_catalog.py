"""`methods` and `check`, and what they must not import."""

from __future__ import annotations

import subprocess
import sys
from shutil import copytree, ignore_patterns

import pytest

from gfcr.engine.models import model_path
from gfcr.recipe import load, shipped_names
from gfcr.registry import all_methods


def test_methods_lists_every_method_with_its_settings(cli) -> None:
    found = {(m["slot"], m["name"]): m for m in cli.json("methods")["methods"]}
    assert set(found) == {(str(m.slot), m.name) for m in all_methods()}
    grpo = found["filter.credit", "grpo"]
    assert grpo["arxiv"] == "2402.03300" and grpo["summary"]
    eps = next(s for s in grpo["settings"] if s["name"] == "eps")
    assert eps["default"] == 1e-4 and "Added to the std" in eps["meaning"]
    undocumented = [(m["name"], s["name"]) for m in found.values() for s in m["settings"] if not s["meaning"]]
    assert not undocumented


def test_methods_of_a_slot_and_of_a_room(cli) -> None:
    assert {m["slot"] for m in cli.json("methods", "--slot", "control.select")["methods"]} == {"control.select"}
    assert {m["slot"].split(".")[0] for m in cli.json("methods", "--slot", "control")["methods"]} == {"control"}
    assert "did you mean 'control.select'?" in cli.error("methods", "--slot", "control.selct")
    assert "arXiv:2402.03300" in cli("methods", "--slot", "filter.credit").stdout


LAB = [name for name in shipped_names() if not name.startswith("smollm2")]


@pytest.mark.parametrize("name", LAB)
def test_shipped_recipes_compose(cli, name: str) -> None:
    found = cli.json("check", name)
    assert found["composes"] and found["findings"] == [] and found["tasks"]["heldout"] >= 400
    assert "composes" in cli("check", name).stdout


def test_shipped_recipes_share_model_and_training() -> None:
    """Those that generate and learn alike differ in the methods they show alone; the others say what is their own."""
    recipes = [load(name) for name in LAB]
    for section in ("model", "engine"):
        assert len({getattr(r, section).model_dump_json() for r in recipes}) == 1, section
    plain = [r for r in recipes if r.generate == load("grpo").generate and r.tasks.pool == "B3"]
    assert {"grpo", "dapo", "informative", "mopps"} <= {r.name for r in plain}
    for section in ("budget", "evaluate"):
        assert len({getattr(r, section).model_dump_json() for r in plain}) == 1, section
    alike = [r for r in plain if r.name not in {"ppo", "cispo", "gspo", "dpo", "rft"}]  # each its own loss
    for section in ("train", "loss"):
        assert len({getattr(r, section).model_dump_json() for r in alike}) == 1, section
    assert len({r.name for r in recipes}) == len(recipes)


@pytest.mark.parametrize("name", sorted(set(shipped_names()) - set(LAB)))
def test_recipes_for_smollm2_compose_and_name_what_is_missing(cli, monkeypatch, tmp_path, name: str) -> None:
    pytest.importorskip("reasoning_gym")
    copytree(model_path("lab"), tmp_path / "silent", ignore=ignore_patterns("tokenizer.json"))  # its alphabet is not SmolLM2's
    found = cli.json("check", name, "--set", f"model.path={tmp_path}/silent")
    assert found["composes"] and found["findings"] == [] and found["tasks"]["heldout"] == 100
    monkeypatch.setenv("GFCR_SMOLLM2", str(tmp_path))
    assert "make smollm2" in cli.json("check", name, code=1)["findings"][0]["remedy"]


def test_check_lists_all_findings_with_remedies(cli) -> None:
    found = cli.json(
        "check", "grpo", "--set", "generate.topology.k=1", "--set", "train.tis_cap=2", "--set", "control.min_groups=99", code=1
    )
    assert {"group_of_one", "min_groups"} <= {f["rule"] for f in found["findings"]} and all(
        f["remedy"] for f in found["findings"]
    )
    assert "remedy: use generate.topology" in " ".join(
        cli("check", "grpo", "--set", "generate.topology.k=1", code=1).stdout.split()
    )


def test_check_sees_a_model_directory_that_is_none(cli) -> None:
    found = cli.json("check", "grpo", "--set", "model.path=/none", code=1)
    assert "/none" in found["findings"][0]["why"]


def test_check_tells_what_a_task_file_repeats(cli, tmp_path) -> None:
    rows = [f'{{"prompt": "{n}+1", "answer": "{n}"}}\n' for n in range(9)]
    (tmp_path / "t.jsonl").write_text("".join(rows * 2) + '{"prompt": "3+1", "answer": "another"}\n')
    given = ("--set", "tasks.source=file", "--set", f"tasks.path={tmp_path / 't.jsonl'}")
    found = cli.json("check", "grpo", *given)
    assert found["tasks"] == {"tasks": 9, "heldout": 0} and len(found["notes"]) == 10
    assert found["notes"][0] == "t.jsonl:19 repeats t.jsonl:4 with ANOTHER reference; t.jsonl:4 was kept"
    shown = cli("check", "grpo", *given).stdout
    assert shown.count("note: ") == 6 and "and 5 more like these" in shown and "ANOTHER" in shown


def test_check_refuses_what_a_method_refuses(cli) -> None:
    found = cli.json("check", "grpo", "--set", 'control.select={name="oracle", tasks="nobody"}', code=1)
    assert "nobody" in found["findings"][0]["why"]


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        ["methods", "--json"],
        ["check", "quickstart"],
        ["check", "grpo", "--set", 'generate.seed={name="mode", think="#", quiet="?"}'],  # texts, held against the alphabet
        ["compare", "--help"],
    ],
)
def test_no_torch(args: list[str]) -> None:
    code = (
        "import sys\nfrom gfcr.cli.main import app\ntry: app(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
