"""The control: the four-module recipe with rewards shuffled within each round. What is learnt then is learnt from nothing.

    python -m bench control [--out DIR] [--seeds 0,1,2]

Accuracy must end within .05 of its start; the mean over seeds and each seed are printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.record import emit
from bench.runs import compare, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-control"))
    parser.add_argument("--seeds", default="0,1,2")
    args = parser.parse_args()
    compare(args.out, ["four_modules"], args.seeds, "--set", "run.shuffle_rewards=true")
    drift = {}
    for metrics in sorted(args.out.rglob("metrics.jsonl")):
        measured = [r["heldout_accuracy"] for r in rows(metrics.parent) if r["heldout_accuracy"] is not None]
        drift[metrics.parent.name] = {"start": measured[0], "end": measured[-1], "change": measured[-1] - measured[0]}
    mean = sum(d["change"] for d in drift.values()) / len(drift)
    within = all(abs(d["change"]) <= 0.05 for d in drift.values())
    emit("control", {"runs": drift, "mean_change": mean, "within_.05": within})


if __name__ == "__main__":
    main()
