"""What sampling alone gives on tasks of pool D: the shipped checkpoint, no training.

    python -m bench sampling [--tasks 200] [--k 8] [--seed 0] [--pool D]

Per arm: accuracy (mean over answers), pass@k, distinct answers per task, and the cost of an answer in tokens decoded and scored. An arm
that costs more must be held against temperature 1 with as many more answers (last column: pass@k of as many answers as its
decoded tokens buy).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from bench.record import emit
from gfcr.build import build
from gfcr.context import View
from gfcr.drivers.wave import WaveDriver
from gfcr.filter.semantic import clusters
from gfcr.recipe import parse
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.run.ledger import Ledger

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pool", default="D")
    args = parser.parse_args()
    found = {name: measure(args, heat, dict(topology)) for name, (heat, topology) in ARMS.items()}
    plain = measure(args, 1.0, {"name": "group", "k": 8 * args.k})
    for arm in found.values():
        n = max(1, min(8 * args.k, round(args.k * arm["decoded"] / plain["decoded"])))
        arm["plain_pass"] = pass_at(plain.get("right", []), plain["k"], n)
    for arm in (*found.values(), plain):
        arm.pop("right")
    emit("sampling", {"tasks": args.tasks, "k": args.k, "pool": args.pool, "arms": found})


def measure(args: argparse.Namespace, heat: float, topology: dict[str, Any]) -> dict[str, Any]:
    k = topology.setdefault("k", args.k)
    if topology["name"] == "n-best":
        topology["n"] = 4 * k
    recipe = parse(
        {
            "tasks": {"pool": args.pool},
            "generate": {"topology": topology, "sampling": {"temperature": heat}, "max_tokens": 64},
            "filter": {"admission": {"drop_zero_variance": False}},
            "control": {"groups": args.tasks},
            "budget": {"tokens": None, "steps": 1},
        }
    )
    parts = build(recipe, args.seed)
    slots, engine = parts.slots, parts.engine
    before = engine.usage()
    view = View(0, 0, args.seed, slots.posterior, slots.memory)
    round_ = Round(0, slots, parts.round_settings, view, Budget(None), parts.renderer, parts.stop)
    WaveDriver(engine, parts.cascade, slots.judge).drive(round_)
    after = engine.usage()
    groups = list(round_.groups.values())
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
    }


def pass_at(right: list[int], n: int, k: int) -> float:
    """Unbiased pass@k of n answers per task (arXiv:2107.03374)."""
    k = min(k, n)
    missed = [np.prod([(n - c - i) / (n - i) for i in range(k)]) if n - c >= k else 0.0 for c in right]
    return float(1 - np.mean(missed))


if __name__ == "__main__":
    main()
