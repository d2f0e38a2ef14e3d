"""What the training benches share: running `gfcr compare` and reading its result."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LEARNING_RATES = "train.lr=3e-4,6e-4,1e-3"
"""Tried for every arm; the best by mean AUC is reported."""
TUNING_SEEDS = "100-102"
"""Seeds that chose the recipes' settings; never reported."""
REPORTING_SEEDS = "11-15"


def compare(out: Path, recipes: Sequence[str], seeds: str, *options: str) -> dict[str, Any]:
    """Run (or go on with) a comparison and return its compare.json."""
    command = [sys.executable, "-m", "gfcr.cli.main", "compare", *recipes, "--seeds", seeds, "--out", str(out), *options]
    subprocess.run(command, check=True)
    return json.loads((out / "compare.json").read_text())


def rows(directory: Path) -> list[dict[str, Any]]:
    """The metrics of one run."""
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
