"""Recipes against each other, each at its best of three learning rates, 5 paired seeds that no tuning has seen.

    python -m bench campaign [--out DIR] [--pools B3,HARD,B1,B2] [--seeds 11-15] [--jobs 2]

Hours of CPU; run it in the background, it goes on where it stopped. AUC = accuracy integrated over generated tokens / budget.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.runs import LEARNING_RATES, REPORTING_SEEDS, compare

ARMS = {
    "B3": ("grpo", "dapo", "informative", "quickstart", "oracle"),
    "HARD": ("grpo", "ar3po"),
    "B1": ("grpo", "dapo", "informative", "quickstart"),
    "B2": ("grpo", "dapo", "informative", "quickstart"),
}
BUDGET = {"B3": 150_000, "HARD": 120_000, "B1": 150_000, "B2": 150_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/campaign"))
    parser.add_argument("--pools", default="B3,HARD,B1,B2")
    parser.add_argument("--seeds", default=REPORTING_SEEDS)
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--budget", type=int, help="generated tokens a run; default: the pool's")
    parser.add_argument("--samples", type=int, default=2, help="answers per held-out task and evaluation")
    args = parser.parse_args()
    for pool in args.pools.split(","):
        result = compare(
            args.out / pool,
            ARMS[pool],
            args.seeds,
            "--budget",
            str(args.budget or BUDGET[pool]),
            "--vary",
            LEARNING_RATES,
            "--set",
            f"tasks.pool={pool}",
            "--set",
            f"evaluate.samples={args.samples}",
            "--jobs",
            args.jobs,
        )
        print(json.dumps({"pool": pool, **{k: result[k] for k in result if k in ("differences", "gain_shares")}}, indent=1))


if __name__ == "__main__":
    main()
