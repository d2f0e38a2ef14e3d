"""What sampling alone gives on held-out tasks of a pool: the shipped checkpoint, no training.

    python -m bench sampling [--tasks 400] [--k 8] [--seeds 0,1,2] [--pool D] [--trained-on]

Per arm: accuracy (mean over answers), pass@k, distinct answers per task, and the cost of an answer in tokens decoded and scored. An arm
that costs more must be held against temperature 1 with as many more answers (`plain_pass`: pass@k of as many answers as its
decoded tokens buy). `gain`: accuracy over the arm in `over`, on the same tasks, with its standard error over tasks (answers and seeds of a
task are averaged first: they are no independent tasks). `--trained-on`: tasks of the pool itself.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from bench.record import emit
from gfcr.build import rollout_parts
from gfcr.build_engine import make_engine
from gfcr.context import View
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.models import load_model, load_tokenizer, model_path
from gfcr.filter.semantic import clusters
from gfcr.generate.render import TokenizerRenderer
from gfcr.recipe import parse
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.run.ledger import Ledger
from gfcr.task_sets import load_tasks

POWER = {"name": "power", "alpha": 4.0, "blocks": 4}
ARMS: dict[str, tuple[float, dict[str, Any]]] = {
    "temperature 1": (1.0, {"name": "group"}),
    "temperature .5": (0.5, {"name": "group"}),
    "temperature .25": (0.25, {"name": "group"}),
    "best of 4 by mean log p": (1.0, {"name": "n-best", "by": "logprob-mean"}),
    "power 2, 4 blocks, 4 steps": (1.0, {**POWER, "alpha": 2.0, "steps": 4}),
    "power 4, 4 blocks, 2 steps": (1.0, {**POWER, "steps": 2}),
    "power 4, 4 blocks, 10 steps": (1.0, {**POWER, "steps": 10}),
}


OVER = {
    "best of 4 by mean log p": "temperature 1",
    "power 2, 4 blocks, 4 steps": "temperature .5",
    "power 4, 4 blocks, 2 steps": "temperature .25",
    "power 4, 4 blocks, 10 steps": "temperature .25",
}
"""What an arm is held against: power sampling, the temperature that it proposes from."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--pool", default="D")
    parser.add_argument("--trained-on", action="store_true")
    args = parser.parse_args()
    found = {name: over_seeds(args, heat, topology) for name, (heat, topology) in ARMS.items()}
    plain = over_seeds(args, 1.0, {"name": "group", "k": 8 * args.k})
    for name, arm in found.items():
        n = max(1, min(8 * args.k, round(args.k * arm["decoded"] / plain["decoded"])))
        arm["plain_pass"] = float(np.mean([pass_at(right, plain["k"], n) for right in plain["right"]]))
        arm["accuracy_se"] = float(standard_error(arm["by_task"]))
        if name in OVER:
            gains = arm["by_task"] - found[OVER[name]]["by_task"]
            arm |= {"over": OVER[name], "gain": float(gains.mean()), "gain_se": float(standard_error(gains))}
    for arm in found.values():
        del arm["right"], arm["by_task"]
    where = "training" if args.trained_on else "held-out"
    emit("sampling", {"tasks": args.tasks, "k": args.k, "seeds": args.seeds, "pool": args.pool, "on": where, "arms": found})


def over_seeds(args: argparse.Namespace, heat: float, topology: dict[str, Any]) -> dict[str, Any]:
    """An arm's figures, mean over seeds; `by_task`: float[tasks], accuracy per task."""
    runs = [measure(args, int(seed), heat, dict(topology)) for seed in args.seeds.split(",")]
    means = {
        name: float(np.mean([run[name] for run in runs])) for name in ("accuracy", "pass", "distinct", "decoded", "scored")
    }
    by_task = np.mean([run["by_task"] for run in runs], axis=0)
    return {"k": runs[0]["k"], **means, "right": [run["right"] for run in runs], "by_task": by_task}


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def measure(args: argparse.Namespace, seed: int, heat: float, topology: dict[str, Any]) -> dict[str, Any]:
    k = topology.setdefault("k", args.k)
    if topology["name"] == "n-best":
        topology["n"] = 4 * k
    recipe = parse(
        {
            "tasks": {"pool": args.pool},
            "generate": {"topology": topology, "sampling": {"temperature": heat}, "max_tokens": 64},
            "filter": {"admission": {"drop_zero_variance": False}},
            "control": {"groups": args.tasks, "select": {"name": "uniform"}},
            "budget": {"tokens": None, "steps": 1},
        }
    )
    loaded = load_tasks(recipe.tasks)
    chosen = (loaded.tasks if args.trained_on else loaded.heldout)[: args.tasks]
    place = model_path(recipe.model.path)
    tokenizer, model = load_tokenizer(place), load_model(place, "cpu", "float32")
    engine = make_engine(recipe, place, TokenizerRenderer(tokenizer).decoder())
    parts = rollout_parts(recipe, seed, replace(loaded, tasks=chosen, heldout=()), tokenizer, engine, model)
    slots = parts.slots
    before = engine.usage()
    view = View(0, 0, seed, slots.posterior, slots.memory)
    round_ = Round(0, slots, parts.round_settings, view, Budget(None), parts.renderer, parts.stop)
    WaveDriver(engine, parts.cascade, slots.judge).drive(round_)
    after = engine.usage()
    place_of = {task.id: i for i, task in enumerate(chosen)}
    groups = sorted(round_.groups.values(), key=lambda group: place_of[group.task.id])
    assert [group.task.id for group in groups] == [task.id for task in chosen], "not every task was asked, once"
    ledger = Ledger()
    ledger.settle_round(groups, dict(round_.failed), round_.failed_context)
    assert ledger.total.generated == after.decoded - before.decoded, "the ledger and the engine count differently"
    kept = [[m for m in g.members.values() if m.drop is None or m.drop != "surplus"] for g in groups]
    right = [sum(bool(m.signals.correct) for m in members) for members in kept]
    answers = sum(map(len, kept))
    engine.close()
    parts.cascade.close()
    return {
        "k": k,
        "accuracy": sum(right) / answers,
        "pass": pass_at(right, k, args.k),
        "distinct": float(np.mean([len(set(clusters(members))) / len(members) for members in kept])),
        "decoded": (after.decoded - before.decoded) / answers,
        "scored": (after.scored - before.scored) / answers,
        "right": right,
        "by_task": np.array([n / len(members) for n, members in zip(right, kept)]),
    }


def pass_at(right: list[int], n: int, k: int) -> float:
    """Unbiased pass@k of n answers per task (arXiv:2107.03374)."""
    k = min(k, n)
    missed = [np.prod([(n - c - i) / (n - i) for i in range(k)]) if n - c >= k else 0.0 for c in right]
    return float(1 - np.mean(missed))


if __name__ == "__main__":
    main()
