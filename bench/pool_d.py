"""Plain GRPO on the graded pool D: 350,000 generated tokens, 2 minibatches, lr 4e-4, 3 seeds.

    python -m bench pool_d [--out DIR] [--seeds 11,12,13]

Prints the accuracy curve at temperature 1 and the greedy end point, mean and standard deviation over seeds.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from bench.record import emit
from bench.runs import compare, rows

OPTIONS = (
    "--budget",
    "350000",
    "--set",
    "tasks.pool=D",
    "--set",
    "train.minibatches=2",
    "--set",
    "train.lr=4e-4",
    "--set",
    "evaluate.every_tokens=50000",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-pool-d"))
    parser.add_argument("--seeds", default="11,12,13")
    args = parser.parse_args()
    compare(args.out, ["grpo"], args.seeds, *OPTIONS)
    curves = [
        [
            (r["tokens_generated"], r["heldout_accuracy"], r["heldout_greedy"])
            for r in rows(m.parent)
            if r["heldout_accuracy"] is not None
        ]
        for m in sorted(args.out.rglob("metrics.jsonl"))
    ]
    final, greedy = ([c[-1][i] for c in curves] for i in (1, 2))
    emit("pool_d", {"curves": curves, "final": _spread(final), "greedy": _spread(greedy)})


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": statistics.mean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


if __name__ == "__main__":
    main()
