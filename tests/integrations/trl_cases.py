"""Trainers for the TRL tests: the lab model, small rounds, one CPU thread; and children that train until they are killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

CPU: dict[str, Any] = {"use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no", "disable_tqdm": True}
SMALL = (
    "control.groups=3",
    "generate.topology.k=4",
    "generate.max_tokens=24",
    "budget.tokens=none",
    "budget.steps=2",
    "train.minibatches=2",
    "train.kl=0",
)


def recipe(name: str = "trl_grpo", *overrides: str) -> Any:
    import torch

    from gfcr.recipe import load

    torch.set_num_threads(1)
    return load(name, [*SMALL, *overrides])


def lab_model() -> Any:
    from gfcr.build import model_path
    from gfcr.engine.models import load_model

    return load_model(model_path("lab"), "cpu", "float32")


def lab_tokenizer() -> Any:
    from gfcr.build import model_path
    from gfcr.engine.models import load_tokenizer

    return load_tokenizer(model_path("lab"))


# ---- children that are killed ----------------------------------------------------------------------------------

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["trl.trainer.grpo_trainer", "gfcr.integrations.trl.trainer", "gfcr.engine.embedded"])


def child(play: str, *args: Any) -> int:
    """Run `play` of this module in a child; its exit code."""
    process = _context.Process(target=getattr(import_module("tests.integrations.trl_cases"), play), args=args)
    process.start()
    process.join(600)
    assert process.exitcode is not None, "the child hangs"
    return int(process.exitcode)


def _log(place: Path, **row: Any) -> None:
    with (place / "log.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def log_of(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "log.jsonl").read_text().splitlines()]


def play_ours(place: Path, overrides: tuple[str, ...], save_steps: int, kill_at: int, at_save: bool, resume: bool) -> None:
    """GfcrGRPOTrainer; killed in the training step after `kill_at` updates, or when that checkpoint has been saved; 0 = never."""
    import torch
    from transformers import TrainerCallback

    from gfcr.integrations.trl import GfcrGRPOTrainer, grpo_config
    from gfcr.recipe import load

    torch.set_num_threads(1)

    class Logged(GfcrGRPOTrainer):
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            if kill_at and not at_save and self.state.global_step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            rows = self._slices[self._step % self.args.steps_per_generation]
            out = super().training_step(model, inputs, num_items_in_batch)
            ids = [self._fed.batch.rollout_ids[i] for i in rows]
            _log(place, step=self.state.global_step, round=self._fed.round, replayed=self._fed.replayed, rows=ids)
            return out

    class Kill(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if kill_at and at_save and state.global_step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    chosen = load("four_modules", list(overrides))
    args = grpo_config(chosen, str(place / "out"), **CPU | {"save_strategy": "steps", "save_steps": save_steps})
    trainer = Logged(chosen, args=args, seed=1, run_dir=place / "rounds", callbacks=[Kill()])
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(str(place / "final"))
    trainer.rounds.close()


def play_trl(place: Path, kill_at: int, resume: bool) -> None:
    """TRL alone: two generation batches of four prompts, two updates each; killed when a checkpoint has been saved."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    tokenizer = lab_tokenizer()

    class Logged(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            _log(place, kind="generated", prompts=[row["prompt"] for row in inputs])
            return super()._generate_and_score_completions(inputs)

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            texts = tokenizer.batch_decode(inputs["prompt_ids"], skip_special_tokens=True)
            _log(place, kind="trained", prompts=texts)
            return super()._compute_loss(model, inputs)

    class Kill(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if kill_at and state.global_step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    settings = CPU | {"save_strategy": "steps", "save_steps": 1, "shuffle_dataset": False, "max_steps": 4}
    args = GRPOConfig(
        str(place / "out"),
        per_device_train_batch_size=8,
        steps_per_generation=2,
        num_generations=4,
        max_completion_length=16,
        **settings,
    )
    prompts = [f"{letter}+?{i}1" for i, letter in enumerate("abcdef")] + ["a-?12", "b-?34"]
    trainer = Logged(
        lab_model(),
        lambda completions, **_: [float(len(c) % 2) for c in completions],
        args=args,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        callbacks=[Kill()],
    )
    trainer.train(resume_from_checkpoint=resume or None)
