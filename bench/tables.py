"""compare.json to Markdown: the tables of docs/benchmarks.md.

python -m bench tables DIR [DIR ...]     directories that `gfcr compare` or `bench campaign` made
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def table(result: dict[str, Any]) -> str:
    """Every arm at its best variation, its paired difference to the first, and the share of the oracle's gain it recovers."""
    differences = {d["arm"]: d for d in result["differences"] if d["measure"] == "auc"}
    shares = {s["arm"]: s for s in result["gain_shares"]}
    lines = [
        "| arm | best | n | AUC | final | greedy | steps | discarded | AUC − first (95 %) | seeds ahead | of the oracle's gain (95 %) |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for arm in result["arms"]:
        best = next(v for v in arm["variations"] if v["label"] == arm["best"])
        lines.append(
            f"| {arm['name']} | {best['label'].removeprefix('train.')} | {best['auc']['n']} | {_spread(best['auc'])} | "
            f"{_spread(best['final'])} | {_spread(best['final_greedy'])} | {best['steps']['mean']:.0f} | "
            f"{best['discarded_share']['mean']:.0%} | {_interval(differences.get(arm['name']))} | "
            f"{_ahead(differences.get(arm['name']))} | {_interval(shares.get(arm['name']))} |"
        )
    return "\n".join(lines)


def variations(result: dict[str, Any]) -> str:
    """Mean AUC of every variation."""
    labels = [v["label"] for v in result["arms"][0]["variations"]]
    lines = ["| arm | " + " | ".join(label.removeprefix("train.") for label in labels) + " |", "|---" * (len(labels) + 1) + "|"]
    for arm in result["arms"]:
        lines.append(f"| {arm['name']} | " + " | ".join(_spread(v["auc"]) for v in arm["variations"]) + " |")
    return "\n".join(lines)


def _ahead(difference: dict[str, Any] | None) -> str:
    """In how many paired seeds the arm's AUC is above the first arm's."""
    return "" if difference is None else f"{difference['wins']} of {difference['n']}"


def _spread(s: dict[str, Any]) -> str:
    if s["mean"] is None:
        return "–"
    return f"{s['mean']:.3f}" + (f" ± {s['sd']:.3f}" if s.get("sd") is not None else "")


def _interval(found: dict[str, Any] | None) -> str:
    if found is None or found["value"] is None:
        return ""
    bounds = "" if found["low"] is None else f" [{found['low']:+.3f}, {found['high']:+.3f}]"
    return f"{found['value']:+.3f}{bounds}"


def main() -> None:
    for name in sys.argv[1:]:
        result = json.loads((Path(name) / "compare.json").read_text())
        print(f"### {result['tasks']['pool']}, {result['budget']:,} tokens\n\n{table(result)}\n\n{variations(result)}\n")


if __name__ == "__main__":
    main()
