"""What a model may do to the loop: babble, break, be always right, be hopeless; other architectures; every kind of law."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import real_runs
from bench import resume

import gfcr.domains.programs
from gfcr.run.directory import RunDirectory
from gfcr.run.session import FutileRun

CHECKPOINT = Path(gfcr.domains.programs.__file__).parent / "checkpoint"


def rows(path: Path) -> list[dict[str, Any]]:
    with RunDirectory.read(path) as run:
        return run.metrics()


def with_weights(place: Path, change: Callable[[Any], Any]) -> Path:
    """The lab model with changed tensors."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(CHECKPOINT, place)
    tensors = {name: change(t) for name, t in load_file(place / "model.safetensors").items()}
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    return place


def test_a_model_of_random_weights_is_judged_wrong(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    model = with_weights(tmp_path / "model", torch.randn_like)
    session = real_runs.create(tmp_path / "run", f"model.path={model}", "budget.steps=3")
    assert session.run() == "steps"
    found = rows(tmp_path / "run")
    assert found[-1]["heldout_accuracy"] == 0 and all(row["share_unscorable"] == 0 for row in found[1:])
    assert all(row["reward_mean"] == 0 and row["share_all_wrong"] == 1 for row in found[1:])
    assert "too hard or the verifier too strict" in found[-1]["untrained"]


def test_a_model_of_nan_ends_futile_with_its_causes(tmp_path: Path, gfcr_cli: Callable[..., str]) -> None:
    model = with_weights(tmp_path / "model", lambda t: t * float("nan"))
    overrides = [*resume.small(tmp_path), f"model.path={model}", "budget.steps=50", "control.max_empty=3", "control.retries=1"]
    path = tmp_path / "run"
    said = gfcr_cli(1, "run", "four_modules", "--out", str(path), *[part for item in overrides for part in ("--set", item)])
    assert "3 rounds in a row had nothing to train on" in said and "too_few_members (" in said
    found = rows(path)
    assert len(found) == 4 and found[-1]["tokens_generated"] == 0 and found[0]["heldout_accuracy"] is None
    assert found[1]["retries"] == 9 and found[0]["heldout_unscorable"] == 4
    assert "rounds in a row" in gfcr_cli(1, "resume", str(path)) and len(rows(path)) == 5  # bounded again


@pytest.mark.parametrize(
    ("task", "cause"), [(("ms?65", "56"), "too easy"), (("ms?65", "11"), "too hard")], ids=["always", "never"]
)
def test_one_task_that_teaches_nothing_ends_bounded_with_the_reason(task: tuple[str, str], cause: str, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps({"prompt": task[0], "answer": task[1]}) + "\n")
    one = (f"tasks.path={file}", "tasks.heldout=none", "budget.steps=none")
    session = real_runs.create(tmp_path / "futile", *one, "budget.tokens=100_000", "control.max_empty=4")
    with pytest.raises(FutileRun, match=cause):
        session.run()
    assert len(rows(tmp_path / "futile")) <= 30
    session = real_runs.create(tmp_path / "spent", *one, "budget.tokens=400", "control.max_empty=99")
    assert session.run() == "budget"
    assert rows(tmp_path / "spent")[-1]["tokens_generated"] <= 400


def llama(tie: bool) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=37,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            tie_word_embeddings=tie,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


def qwen3(tie: bool) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=40,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=128,
            tie_word_embeddings=tie,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


@pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("make", [llama, qwen3])
def test_other_models(make: Callable[[bool], Any], tie: bool, tmp_path: Path, gfcr_cli: Callable[..., str]) -> None:
    import torch
    from safetensors.torch import load_file

    torch.manual_seed(1)
    model = make(tie)
    place, path = tmp_path / "model", tmp_path / "run"
    model.save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(CHECKPOINT / name, place / name)
    # nobody solves a task by chance: what is to be learnt is to state a result at all
    overrides = [*resume.small(tmp_path), f"model.path={place}", "budget.steps=2", "filter.admission.invalid_reward=-1"]
    gfcr_cli(0, "run", "four_modules", "--out", str(path), *[part for item in overrides for part in ("--set", item)])
    assert [row["version"] for row in rows(path)] == [0, 1, 2]
    before, after = load_file(place / "model.safetensors"), load_file(path / "checkpoints" / "2" / "model.safetensors")
    assert any((before[name] != after[name]).any() for name in before)
    assert set(before) == set(after) and ("lm_head.weight" in after) is not tie


LAWS: dict[str, tuple[str, ...]] = {
    "temperature .7": ("generate.sampling.temperature=0.7",),
    "top-p .8": ("generate.sampling.top_p=0.8",),
    "top-k 5 and min-p": ("generate.sampling.top_k=5", "generate.sampling.min_p=0.05"),
    "stop string": ('generate.stop_strings=["#"]',),
    "penalties": ("generate.sampling.repetition_penalty=1.2", "generate.sampling.frequency_penalty=0.1"),
}


@pytest.mark.parametrize("law", LAWS)
def test_every_law_trains_on_the_probabilities_it_sampled_with(law: str, tmp_path: Path) -> None:
    session = real_runs.create(
        tmp_path / "run", *LAWS[law], "budget.steps=2", "evaluate.every_tokens=none", "replay.augment=[]"
    )
    assert session.run() == "steps"
    with RunDirectory.read(tmp_path / "run") as run:
        groups, batch = run.groups(1), run.batch(1)
        stats = run.metrics()[1]
    segments = [n.segment for g in groups for m in g.members.values() for n in m.rollout.path if n.segment.logprobs is not None]
    assert segments and all(np.isfinite(s.logprobs).all() and (s.logprobs <= 0).all() for s in segments)
    assert all(s.sampling == session.parts.slots.configure.how.sampling for s in segments)
    if law.startswith("top"):
        assert all("kept_mass" in s.tracks for s in segments)
        assert stats.get("train_ess", 1.0) > 1 - 1e-6  # the kept mass is put back: nothing is left between sampler and trainer
    if law == "penalties" and "train_ess" in stats:
        assert (
            batch is not None and np.isnan(batch.behaviour).all() and stats["train_ess"] is None and stats["train_ratio"] == 1
        )
    if law == "stop string":
        assert stats["stops"]["stop_string"] > 0 and stats["reward_mean"] == 0
    if batch is not None and law == "temperature .7":
        assert set(np.unique(batch.temperature[batch.rl_mask])) == {np.float32(0.7)}
        assert stats["train_ess"] > 1 - 1e-6  # the trainer's law is the sampler's
