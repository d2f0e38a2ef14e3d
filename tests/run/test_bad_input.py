"""Bad input through the command line: exit code 1, a few lines that name what, where, which value and what to do, no traceback,
and no directory left behind."""

from __future__ import annotations

import builtins
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import resume

import gfcr.domains.programs

CHECKPOINT = Path(gfcr.domains.programs.__file__).parent / "checkpoint"
TASK = '{"prompt": "ms?65", "answer": "56"}\n'
LONG = json.dumps({"prompt": "m+" * 80 + "?65", "answer": "56"}) + "\n"
FOREIGN = json.dumps({"prompt": "Was ist 2 + 2?", "answer": "4"}) + "\n"


@pytest.fixture
def refused(tmp_path: Path, gfcr_cli: Callable[..., str]) -> Callable[..., str]:
    """`refused(*overrides)`: what `gfcr run` says; it must refuse and leave no directory."""

    def call(*overrides: str, recipe: str = "four_modules", out: Path | None = None) -> str:
        where = out or tmp_path / "run"
        given = [*resume.small(tmp_path), "budget.steps=2", *overrides]
        said = gfcr_cli(1, "run", recipe, "--out", str(where), *[part for item in given for part in ("--set", item)])
        assert "remedy: " in said and (out or not where.exists())
        return said

    return call


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("train.lrr=1", "unknown key 'train.lrr'\n  remedy: did you mean 'lr'?"),
        ("trian.lr=1", "did you mean 'train'?"),
        ("filter.credit.name=gppo", "filter.credit: there is no method 'gppo'\n  remedy: did you mean 'grpo'?"),
        ("filter.credit.stdd=x", "filter.credit 'grpo': unknown key 'stdd'"),
        ("generate.topology.k=1", "groups have one rollout: every advantage would be 0"),
        ("generate.topology.k=0", "k: Input should be greater than or equal to 1 (got 0)"),
        ("budget.tokens=0", "budget.tokens: Input should be greater than 0 (got 0)"),
        ("budget.tokens=100", "budget.tokens = 100 cannot carry one round's smallest batch"),
        ("budget.steps=none", "neither budget.tokens nor budget.steps limits the run"),
        ("generate.sampling.temperature=-1", "generate.sampling.temperature = -1.0"),
        ("generate.sampling.temperature=nan", "temperature: Input should be a finite number"),
        ("generate.sampling.top_p=0", "generate.sampling.top_p = 0.0"),
        ("generate.sampling.banned=[999]", "banned holds the token 999, the model's are 0 to 36"),
        ("generate.sampling.banned=[-1]", "banned holds the token -1"),
        (f"generate.sampling.banned={list(range(37))}", "banned holds all 37 tokens"),
        ("control.configure={name='by-category',laws={\"\"={banned=[999]}}}", "'by-category': banned holds the token 999"),
        (f"control.configure={{name='by-category',laws={{''={{banned={list(range(37))}}}}}}}", "banned holds all 37 tokens"),
        ('generate.stop_strings=[""]', "stop_strings.0: String should have at least 1 character"),
        ("generate.max_tokens=128", "generate.max_tokens = 128 leaves no room for a prompt: the model takes 128 tokens"),
        ("train.lr=nan", "train.lr: Input should be a finite number (got nan)"),
        ("train.lr=-1", "train.lr: Input should be greater than 0 (got -1"),
        ("train.grad_clip=inf", "train.grad_clip: Input should be a finite number (got inf)"),
        ("train.device=banana", "the model cannot be put on the device 'banana'"),
        ("engine.device=cuda:77", "the model cannot be put on the device 'cuda:77'"),
        ("train.lr", "--set 'train.lr' is not KEY=VALUE"),
        ("tasks.path=/nowhere.jsonl", "there is no file /nowhere.jsonl"),
        ("tasks.path=none", "tasks.source = 'file' without tasks.path"),
        ("tasks.pool=X", ""),
    ],
)
def test_settings(override: str, named: str, refused: Callable[..., str]) -> None:
    if override == "tasks.pool=X":
        assert "there is no pool 'X'" in refused("tasks.source=programs", "tasks.path=none", "tasks.heldout=none", override)
    elif "banned" in override:  # under bans, old answers cannot be scored again
        assert named in refused(override, "replay.augment=none")
    else:
        assert named in refused(override)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "has no rows"),
        ("\n\n", "has no rows"),
        (TASK + "{nope\n", "tasks.jsonl:2 is not JSON"),
        (TASK + '{"prompt": "", "answer": "1"}\n{"answer": "1"}\n', "2 of 3 rows"),
        ('{"x": 1}\n', "has no column for the prompt: looked for prompt, question"),
        (FOREIGN + TASK, "1 of 2 tasks cannot be rendered, the first: task"),
        (
            LONG + TASK,
            "1 of 2 tasks have prompts longer than 88 tokens (the model takes 128, answers up to 40); the longest has 16",
        ),
        ('{"prompt": [{"role": "user", "content": "ms?65"}], "answer": "56"}\n', "the tokenizer has no chat template"),
    ],
    ids=["empty", "blank", "not JSON", "bad rows", "no columns", "unknown characters", "too long", "chat without template"],
)
def test_tasks(text: str, named: str, tmp_path: Path, refused: Callable[..., str]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "tasks.jsonl").write_text(text)
    assert named in refused(f"tasks.path={other / 'tasks.jsonl'}")
    if text not in ("", "\n\n"):
        (other / "mine.jsonl").write_text(TASK.replace("ms?65", "l+?60"))
        assert named in refused(f"tasks.path={other / 'mine.jsonl'}", f"tasks.heldout={other / 'tasks.jsonl'}").replace(
            "held-out ", ""
        )


def test_held_out_tasks_among_the_tasks(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "held-out tasks" in refused(f"tasks.heldout={tmp_path / 'tasks.jsonl'}")


def config(**changes: Any) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        data = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**data, **changes}))

    return change


def cut(share: float) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        raw = (place / "model.safetensors").read_bytes()
        (place / "model.safetensors").write_bytes(raw[: int(len(raw) * share)])

    return change


def small_vocabulary(place: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(place / "model.safetensors")
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:20].contiguous()
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    config(vocab_size=20)(place)


MODELS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "absent": (shutil.rmtree, "no model directory at"),
    "empty": (lambda place: [file.unlink() for file in place.iterdir()], "holds no"),
    "a file": (lambda place: (shutil.rmtree(place), place.write_text("x")), "it is a file"),
    "corrupt config": (lambda place: (place / "config.json").write_text("{nonsense"), "config.json"),
    "unknown type": (config(model_type="banana"), "`banana`"),
    "no weights": (lambda place: (place / "model.safetensors").unlink(), "no file named model.safetensors"),
    "half the weights": (cut(0.5), "cannot be read"),
    "no bytes": (cut(0), "cannot be read"),
    "other shapes": (config(hidden_size=32), "have other shapes than config.json says"),
    "a layer too few": (config(num_hidden_layers=3, layer_types=["full_attention"] * 3), "lack model.layers.2."),
    "corrupt tokenizer": (lambda place: (place / "tokenizer.json").write_text("{}"), "the tokenizer in"),
    "no tokenizer": (lambda place: (place / "tokenizer_config.json").unlink(), "holds no tokenizer_config.json"),
    "tokenizer of another model": (small_vocabulary, "the model's vocabulary is 20"),
}


@pytest.mark.parametrize("what", MODELS)
def test_models(what: str, tmp_path: Path, refused: Callable[..., str]) -> None:
    place = tmp_path / "model"
    shutil.copytree(CHECKPOINT, place)
    change, named = MODELS[what]
    change(place)
    said = refused(f"model.path={place}")
    assert named in said
    assert str(place) in said or what == "tokenizer of another model"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"schema = ", "is not TOML"),
        (b"tasks = 3", "tasks takes a section, and 3 was given"),
        (b"schema = 99", "schema = 99"),
        (b"[filter]\ncredit = 'grpo'", "filter.credit"),
        (b"[filter]\ncredit = {}", "filter.credit.name"),
    ],
)
def test_recipe_files(text: bytes, named: str, tmp_path: Path, gfcr_cli: Callable[..., str]) -> None:
    file = tmp_path / "my.toml"
    file.write_bytes(text)
    assert named in gfcr_cli(1, "run", str(file), "--out", str(tmp_path / "run")) and not (tmp_path / "run").exists()


def test_recipe_names(tmp_path: Path, gfcr_cli: Callable[..., str]) -> None:
    assert "did you mean 'quickstart'? Otherwise give a TOML file, or one of: ar3po" in gfcr_cli(
        1, "run", "quikstart", "--out", str(tmp_path / "run")
    )
    assert "a directory, not a recipe" in gfcr_cli(1, "run", str(tmp_path), "--out", str(tmp_path / "run"))


def test_seeds(tmp_path: Path, gfcr_cli: Callable[..., str]) -> None:
    assert "--seed" in gfcr_cli(2, "run", "four_modules", "--out", str(tmp_path / "run"), "--seed", "-1")


def test_a_missing_extra_is_named(tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return whole(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / "x.parquet").write_bytes(b"x")
    assert 'pip install "gfcr[parquet]"' in refused(f"tasks.path={tmp_path / 'x.parquet'}")


def test_directories(tmp_path: Path, refused: Callable[..., str], gfcr_cli: Callable[..., str]) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    assert "holds no run: it has no run.sqlite, it is empty" in gfcr_cli(1, "resume", str(foreign))
    (foreign / "thesis.txt").write_text("x")
    assert "is not empty: thesis.txt" in refused(out=foreign)
    assert "holds no run: it has no run.sqlite, but thesis.txt" in gfcr_cli(1, "resume", str(foreign))
    (foreign / "run.sqlite").write_text("no database" * 100)
    assert "is no database of a gfcr run" in gfcr_cli(1, "resume", str(foreign))
    assert "is not empty: run.sqlite, thesis.txt" in refused(out=foreign)
    assert "is no directory" in gfcr_cli(1, "resume", str(tmp_path / "nowhere"))
    assert "is no directory" in gfcr_cli(1, "resume", str(foreign / "thesis.txt"))
    assert "is a file" in refused(out=foreign / "thesis.txt")
    assert "no run was begun" in refused(out=foreign / "thesis.txt" / "run")
    if Path("/proc/self").is_dir():
        assert "no run was begun" in refused(out=Path("/proc/nowhere/run"))
    if os.getuid() and os.access("/", os.R_OK):
        assert "access refused" in refused(out=Path("/gfcr-run"))
