"""Recipes against each other, each at its best of three learning rates, 5 paired seeds that no tuning has seen.

    python -m bench campaign [--out DIR] [--pools B3,HARD,B1,B2] [--seeds 11-15] [--jobs 2]
    python -m bench campaign --pools trees         independent answers against three trees, on D and on B2

Hours of CPU; run it in the background, it goes on where it stopped. AUC = accuracy integrated over generated tokens / budget.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

from bench.runs import LEARNING_RATES, REPORTING_SEEDS, compare


class Pool(NamedTuple):
    arms: tuple[str, ...]
    budget: int
    """Generated tokens a run."""
    samples: int = 2
    """Answers per held-out task and evaluation."""
    settings: tuple[str, ...] = ()
    """Of every arm."""
    tasks: str | None = None
    """Pool of the tasks; None = the comparison has its name."""


SELECTING = ("grpo", "dapo", "informative", "four_modules")
TREES = ("grpo", "treepo", "treerl", "treerpo")
GUIDANCE = ("grpo", "ar3po", "reflect", "hint", "reference", "sft_reference")
"""From the policy's own means to the task's solution; the last is the supervised control."""
POOLS = {
    "B3": Pool((*SELECTING, "oracle"), 150_000),
    "HARD": Pool(("grpo", "ar3po"), 120_000, settings=("train.kl=0",)),  # measured before the recipes had their anchor
    "B1": Pool(SELECTING, 75_000, samples=1),
    "B2": Pool(SELECTING, 75_000, samples=1),
    # small last rounds, because what a tree may need at most is far more than it needs
    "trees-D": Pool(TREES, 75_000, settings=("control.min_groups=2",), tasks="D"),
    "trees-B2": Pool(TREES, 75_000, settings=("control.min_groups=2",), tasks="B2"),
    "guidance": Pool(GUIDANCE, 120_000, settings=("train.kl=0", "control.min_groups=2"), tasks="HARD"),
}
ALIASES = {"trees": ("trees-D", "trees-B2")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/campaign"))
    parser.add_argument("--pools", default="B3,HARD,B1,B2")
    parser.add_argument("--seeds", default=REPORTING_SEEDS)
    parser.add_argument("--rates", default=LEARNING_RATES, help="e.g. train.lr=6e-4 for one")
    parser.add_argument("--jobs", default="2")
    args = parser.parse_args()
    for name in [pool for asked in args.pools.split(",") for pool in ALIASES.get(asked, (asked,))]:
        pool = POOLS[name]
        settings = (f"tasks.pool={pool.tasks or name}", f"evaluate.samples={pool.samples}", *pool.settings)
        result = compare(
            args.out / name,
            pool.arms,
            args.seeds,
            "--budget",
            str(pool.budget),
            "--vary",
            args.rates,
            *(part for setting in settings for part in ("--set", setting)),
            "--jobs",
            args.jobs,
        )
        print(json.dumps({"pool": name, **{k: result[k] for k in result if k in ("differences", "gain_shares")}}, indent=1))


if __name__ == "__main__":
    main()
