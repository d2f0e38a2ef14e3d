"""Training on a verifier that errs, and on its corrected rewards: pool D, GRPO without std, equal generated tokens.

    python -m bench noise [--out DIR] [--seeds 11-13] [--tokens 40000] [--jobs 1]

Arms: `clean`; `constant`, a fifth of the right answers called wrong and a twentieth of the wrong ones right; `differing`, the same
on average, but by a coin one half is judged without errors and the other at twice the rates; that corrected `backward` and `forward`.
Held-out tasks are judged without errors. Goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.record import emit
from bench.runs import compare

RATES = {"false_negative": 0.2, "false_positive": 0.05}
TWICE = {name: 2 * rate for name, rate in RATES.items()}
CONSTANT = [{"name": "noisy", **RATES}]
DIFFERING = [{"name": "noisy", "label": "rule", "share": 0.5, **TWICE}, {"name": "exact"}]


def arms() -> dict[str, dict[str, Any]]:
    """Filter section of each arm."""

    def corrected(form: str) -> dict[str, Any]:
        return {"verifiers": DIFFERING, "shape": {"name": "noise-correction", "form": form, "by": {"rule": TWICE}}}

    found: dict[str, dict[str, Any]] = {
        "clean": {"verifiers": [{"name": "exact"}]},
        "constant": {"verifiers": CONSTANT},
        "differing": {"verifiers": DIFFERING},
        "backward": corrected("backward"),
        "forward": corrected("forward"),
    }
    return {name: {"credit": {"name": "dr-grpo"}, **section} for name, section in found.items()}


def recipe(name: str, section: dict[str, Any], tokens: int) -> dict[str, Any]:
    """A frozen recipe's data; the rest is the shipped `grpo` on pool D."""
    from gfcr.recipe import load

    data = load("grpo", [f"budget.tokens={tokens}", "tasks.pool=D", "evaluate.samples=2", "evaluate.greedy=false"]).frozen()
    data["evaluate"]["every_tokens"] = tokens // 4
    return {**data, "name": name, "filter": {**data["filter"], "shape": None, **section}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-noise"))
    parser.add_argument("--seeds", default="11-13")
    parser.add_argument("--tokens", type=int, default=40_000)
    parser.add_argument("--jobs", default="1")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    files = []
    for name, section in arms().items():
        files.append(args.out / f"{name}.json")
        files[-1].write_text(json.dumps(recipe(name, section, args.tokens), indent=1) + "\n", encoding="utf-8")
    result = compare(args.out / "runs", [str(f) for f in files], args.seeds, "--budget", str(args.tokens), "--jobs", args.jobs)
    measures = ("auc", "final", "steps")
    found = {
        "tokens": args.tokens,
        "seeds": result["seeds"],
        "start": result["arms"][0]["variations"][0]["start"],
        "arms": {arm["name"]: {m: arm["variations"][0][m] for m in measures} for arm in result["arms"]},
        "differences": [d for d in result["differences"] if d["measure"] == "auc"],
    }
    emit("noise", found)


if __name__ == "__main__":
    main()
