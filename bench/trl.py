"""TRL's own GRPO against gfcr inside TRL and against the reference trainer, on pool D of the lab domain:

    python -m bench trl [--out DIR] [--seeds 3] [--arms trl,a,...] [--target 0.7] [--tokens 120000]

Same model, tasks, optimiser settings, clipping, two updates a round, seeds; the arms of a seed take turns in one process, so that
the box's moods hit all alike. CPU seconds are the process's, from the first step on, without evaluation (the same for all:
400 held-out tasks, one answer each at temperature 1, by gfcr's evaluator, from 30,000 tokens on). A run ends when the target is passed. Finished runs
are kept in DIR, so a stopped bench goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.record import emit, machine

ARMS = {
    "trl": "TRL 1.16 GRPOTrainer, model.generate",
    "a": "(a) GfcrGRPOTrainer, recipe trl_grpo: the same objective",
    "a-drop": "(a) with zero-variance groups dropped (gfcr's default)",
    "a-behaviour": "(a) with train.ratio_base = behaviour: the engine's log-probabilities, no extra pass",
    "b": "(b) GfcrRolloutWorker in AsyncGRPOTrainer",
    "c": "(c) GfcrRolloutFunc in GRPOTrainer",
    "gfcr": "reference trainer, durable store (`gfcr run`)",
}
OVERRIDES = {"a-drop": ["filter.admission.drop_zero_variance=true"], "a-behaviour": ["train.ratio_base=behaviour"]}
TRAIN = ("train.lr=4e-4", "train.minibatches=2", "train.kl=0")
COMMON = {"use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_steps": 50}
FIRST, EVERY, TASKS, SAMPLES = 30_000, 10_000, 400, 1


class Meter:
    """CPU seconds of a run without its evaluations, and by part."""

    def __init__(self, target: float, tokens: int) -> None:
        self.target, self.tokens = target, tokens
        self.points: list[dict[str, float]] = []
        self.parts: Counter[str] = Counter()
        self.began = time.process_time()
        self.outside = 0.0
        self._due = FIRST
        self._inside = 0.0
        """CPU seconds of timed methods inside the one that runs."""

    def seconds(self) -> float:
        return time.process_time() - self.began - self.outside

    def timed(self, owner: Any, method: str, part: str) -> None:
        """Book the CPU seconds of `owner.method` under `part`, without those of other timed methods that it calls."""
        inner = getattr(owner, method)

        def outer(*args: Any, **named: Any) -> Any:
            at, before = time.process_time(), self._inside
            self._inside = 0.0
            try:
                return inner(*args, **named)
            finally:
                took = time.process_time() - at
                self.parts[part] += took - self._inside
                self._inside = before + took

        setattr(owner, method, outer)

    def look(self, tokens: int, accuracy: Any) -> bool:
        """Evaluate when due; whether the run may end."""
        if tokens < self._due:
            return False
        self._due = (tokens // EVERY + 1) * EVERY
        seconds, at = self.seconds(), time.process_time()
        point = {"tokens": tokens, "seconds": round(seconds, 3), "accuracy": accuracy()}
        self.outside += time.process_time() - at
        self.points.append(point)
        print(json.dumps(point), flush=True)
        return point["accuracy"] >= self.target or tokens >= self.tokens

    def result(self) -> dict[str, Any]:
        return {"points": self.points, "parts": {k: round(v, 3) for k, v in self.parts.items()}, "seconds": self.seconds()}


def recipe(arm: str, tokens: int) -> Any:
    from gfcr.recipe import load

    budget = [f"budget.tokens={tokens + 40_000}", f"evaluate.every_tokens={EVERY}"]
    return load("trl_grpo", [*budget, *TRAIN, *OVERRIDES.get(arm, [])])


def accuracy_of(parts: Any, model: Any) -> Any:
    """An evaluation of a TRL trainer's weights by an engine of its own."""
    from gfcr.engine.contract import WeightsRef
    from gfcr.integrations.weights import full_weights, twin_engine
    from gfcr.run.evaluate import evaluate

    engine = twin_engine(parts.recipe, model, parts.cascade.decode)

    def accuracy() -> float:
        with full_weights(model) as tensors:
            engine.load(WeightsRef(0, "memory:"), tensors)
        heldout, longest = parts.heldout[:TASKS], parts.recipe.generate.max_tokens
        return float(
            evaluate(engine, parts.cascade, parts.renderer, heldout, SAMPLES, False, longest, parts.stop).accuracy or 0.0
        )

    return accuracy


def watch(meter: Meter, tokens: Any, accuracy: Any) -> Any:
    """A TRL callback that looks after every update and stops at the target."""
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % 2 == 0 and meter.look(tokens(), accuracy()):
                control.should_training_stop = True

    return Watch()


def run_trl(arm: str, seed: int, meter: Meter, place: Path) -> None:
    from trl import GRPOTrainer

    from gfcr.build import model_path, rollout_parts
    from gfcr.engine.models import load_model, load_tokenizer
    from gfcr.integrations.trl import GfcrGRPOTrainer, GfcrRolloutFunc, GfcrRolloutWorker, async_grpo_config, grpo_config
    from gfcr.integrations.trl.tasks import reward_function, task_dataset
    from gfcr.integrations.weights import twin_engine
    from gfcr.task_sets import load_tasks

    chosen, out = recipe(arm, meter.tokens), str(place / "trl")
    lab = model_path("lab")
    state: dict[str, Any] = {}
    seen = watch(meter, lambda: state["tokens"](), lambda: state["accuracy"])
    settings = COMMON | {"seed": seed}
    loaded, tokenizer, model = load_tasks(chosen.tasks), load_tokenizer(lab), load_model(lab, "cpu", "float32")
    decode = lambda ids: tokenizer.decode(ids, skip_special_tokens=True)  # noqa: E731
    parts = rollout_parts(chosen, seed, loaded, tokenizer, twin_engine(chosen, model, decode), model)
    if arm == "b":
        from trl.experimental.async_grpo import AsyncGRPOTrainer

        worker = GfcrRolloutWorker(chosen, seed, run_dir=place / "rounds")
        trainer: Any = AsyncGRPOTrainer(
            worker.model_path,
            args=async_grpo_config(chosen, out, **settings),
            train_dataset=worker.dataset,
            rollout_worker=worker,
            weight_transfer=worker,
            callbacks=[worker.callback, seen],
        )
        state["tokens"] = lambda: worker.rounds.budget.spent if worker.rounds else 0
        meter.timed(worker, "produce", "rounds")
    elif arm == "c":
        rollouts = GfcrRolloutFunc(chosen, seed)
        args = grpo_config(chosen, out, **settings)
        named = {"train_dataset": rollouts.dataset, "rollout_func": rollouts, "processing_class": tokenizer}
        trainer = GRPOTrainer(model, rollouts.reward, args=args, callbacks=[seen], **named)
        state["tokens"] = lambda: rollouts.tokens
        meter.timed(trainer, "rollout_func", "rounds")
        meter.timed(trainer, "_generate_and_score_completions", "rewards and old log-probabilities")
    elif arm == "trl":
        judged = reward_function(parts.cascade, loaded.tasks, parts.stop.eos)
        counted = {"tokens": 0}

        def reward(**columns: Any) -> list[float | None]:
            counted["tokens"] += sum(map(len, columns["completion_ids"]))
            return judged(**columns)

        args = grpo_config(chosen, out, **settings)
        trainer = GRPOTrainer(
            model, reward, args=args, train_dataset=task_dataset(loaded.tasks), processing_class=tokenizer, callbacks=[seen]
        )
        state["tokens"] = lambda: counted["tokens"]
        meter.timed(trainer, "_generate_single_turn", "generation")
        meter.timed(trainer, "_generate_and_score_completions", "rewards and old log-probabilities")
    else:
        trainer = GfcrGRPOTrainer(
            chosen,
            model,
            grpo_config(chosen, out, **settings),
            seed,
            place / "rounds",
            processing_class=tokenizer,
            callbacks=[seen],
        )
        state["tokens"] = lambda: trainer.rounds.budget.spent
        meter.timed(trainer.rounds.driver, "drive", "generation and verdicts")
        meter.timed(trainer.rounds, "_commit", "commit")
        meter.timed(trainer.rounds, "publish", "publication")
        meter.timed(trainer, "_prepare_round", "old log-probabilities")
    meter.timed(trainer, "training_step", "forward, loss, backward")
    state["accuracy"] = accuracy_of(parts, trainer.accelerator.unwrap_model(trainer.model))
    meter.began = time.process_time()
    trainer.train()


def run_gfcr(seed: int, meter: Meter, place: Path) -> None:
    from gfcr.run.evaluate import evaluate
    from gfcr.run.session import Session

    session = Session.create(recipe("gfcr", meter.tokens), seed, place / "run")
    parts = session.parts

    def accuracy() -> float:
        heldout, longest = parts.heldout[:TASKS], parts.recipe.generate.max_tokens
        return float(
            evaluate(parts.engine, parts.cascade, parts.renderer, heldout, SAMPLES, False, longest, parts.stop).accuracy or 0.0
        )

    def evaluation(due: bool) -> dict[str, Any]:
        if meter.look(session.budget.spent, accuracy):
            session.ended = session.ended or "target"
        return {"heldout_accuracy": None, "heldout_greedy": None, "heldout_unscorable": None}

    session._evaluation = evaluation  # type: ignore[method-assign]
    meter.timed(session.driver, "drive", "generation and verdicts")
    meter.timed(session.directory, "commit", "commit")
    meter.timed(parts.trainer, "step", "old log-probabilities, forward, loss, backward, AdamW")
    meter.began = time.process_time()
    session.run()


def child(arm: str, seed: int, out: Path, target: float, tokens: int) -> None:
    import tempfile

    import torch

    torch.set_num_threads(1)
    meter = Meter(target, tokens)
    with tempfile.TemporaryDirectory(prefix="gfcr-trl-") as place:
        run_gfcr(seed, meter, Path(place)) if arm == "gfcr" else run_trl(arm, seed, meter, Path(place))
    result = {"arm": arm, "seed": seed, "target": target, **meter.result()}
    part = out.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1))
    part.replace(out)


# ---- the report ------------------------------------------------------------------------------------------------


def crossing(run: dict[str, Any], target: float, axis: str) -> float | None:
    """Where the accuracy first passes the target, between two evaluations; None = never."""
    last: dict[str, float] | None = None
    for point in run["points"]:
        if point["accuracy"] >= target:
            if last is None:
                return float(point[axis])
            share = (target - last["accuracy"]) / (point["accuracy"] - last["accuracy"])
            return float(last[axis] + share * (point[axis] - last[axis]))
        last = point
    return None


def summary(runs: list[dict[str, Any]], target: float) -> list[dict[str, Any]]:
    """Per arm: medians over seeds, and the paired ratio to TRL's seconds."""
    base = {r["seed"]: crossing(r, target, "seconds") for r in runs if r["arm"] == "trl"}
    rows = []
    for arm in ARMS:
        mine = [r for r in runs if r["arm"] == arm]
        seconds = {r["seed"]: crossing(r, target, "seconds") for r in mine}
        tokens = [x for r in mine if (x := crossing(r, target, "tokens")) is not None]
        ratios = [s / b for seed, s in seconds.items() if s is not None and (b := base.get(seed))]
        spent = [r["points"][-1]["tokens"] / r["points"][-1]["seconds"] for r in mine if r["points"][-1]["seconds"]]
        parts: Counter[str] = Counter()
        for r in mine:
            total = r["points"][-1]["tokens"] or 1
            parts.update({k: 1e3 * v / total / len(mine) for k, v in r["parts"].items()})
        reached = [s for s in seconds.values() if s is not None]
        rows.append(
            {
                "arm": arm,
                "what": ARMS[arm],
                "seeds": len(mine),
                "reached": len(reached),
                "seconds": statistics.median(reached) if reached else None,
                "tokens": statistics.median(tokens) if tokens else None,
                "ratio": statistics.median(ratios) if ratios else None,
                "ratios": [round(x, 3) for x in sorted(ratios)],
                "tokens_per_cpu_second": statistics.median(spent) if spent else None,
                "cpu_seconds_per_1000_tokens_by_part": {k: round(v, 3) for k, v in parts.items()},
            }
        )
    return [row for row in rows if row["seeds"]]


def markdown(rows: list[dict[str, Any]], target: float) -> str:
    lines = [
        f"| arm | seeds | CPU s to {target:g} | ratio to TRL's (paired; all) | tokens to {target:g} | trained through, tokens/CPU s | CPU s per 1,000 tokens, by part |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        parts = ", ".join(f"{k} {v:.3f}" for k, v in row["cpu_seconds_per_1000_tokens_by_part"].items())
        number = lambda x, f: "" if x is None else format(x, f)  # noqa: E731
        lines.append(
            f"| {row['what']} | {row['reached']} of {row['seeds']} | {number(row['seconds'], '.1f')} | "
            f"**{number(row['ratio'], '.2f')}** ({', '.join(map(str, row['ratios']))}) | {number(row['tokens'], ',.0f')} | "
            f"{number(row['tokens_per_cpu_second'], ',.0f')} | {parts} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-trl"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=11)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--target", type=float, default=0.7)
    parser.add_argument("--tokens", type=int, default=120_000)
    parser.add_argument("--child", nargs=2, metavar=("ARM", "SEED"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.child:
        arms, seed = chosen.child
        for arm in arms.split(","):
            print(f"{arm}, seed {seed}, load {os.getloadavg()[0]:.1f}", flush=True)
            child(arm, int(seed), chosen.out / f"{arm}-{seed}.json", chosen.target, chosen.tokens)
        return
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TRL_EXPERIMENTAL_SILENCE": "1"}
    environment |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
        arms = [arm for arm in chosen.arms.split(",") if not (chosen.out / f"{arm}-{seed}.json").is_file()]
        if arms:
            own = ["--out", str(chosen.out), "--target", str(chosen.target), "--tokens", str(chosen.tokens)]
            command = [sys.executable, "-m", "bench.trl", *own, "--child", ",".join(arms), str(seed)]
            subprocess.run(command, env=environment, check=True)
    runs = [json.loads(path.read_text()) for path in sorted(chosen.out.glob("*-*.json"))]
    rows = summary([r for r in runs if r["target"] == chosen.target], chosen.target)
    (chosen.out / "summary.json").write_text(
        json.dumps({"target": chosen.target, "machine": machine(), "arms": rows}, indent=1)
    )
    text = markdown(rows, chosen.target)
    (chosen.out / "summary.md").write_text(text + "\n")
    print(text)
    emit("trl", {"target": chosen.target, "arms": rows})


if __name__ == "__main__":
    main()
