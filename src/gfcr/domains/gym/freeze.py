"""Makes the frozen held-out sets: `python -m gfcr.domains.gym.freeze`. Invariant: everything follows from SETS and the version
of reasoning-gym (0.1.25); a set is made once and never again, because runs are compared on it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from gfcr.domains.gym.entries import draw

DATA = Path(__file__).parent / "data"
SIZE = 100
SETS: dict[str, tuple[str, dict[str, Any], int]] = {
    "chain_sum": ("chain_sum", {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}, 20_261_129),
    "basic_arithmetic": (
        "basic_arithmetic",
        {
            "min_terms": 2,
            "max_terms": 3,
            "min_digits": 1,
            "max_digits": 1,
            "operators": ["+", "-", "*"],
            "allow_parentheses": True,  # without, 0.1.25 works from left to right: its key of 2 + 3 * 4 is 20
        },
        20_271_129,
    ),
    "digit_sums": ("chain_sum", {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}, 20_291_129),
    "answer_tags": ("chain_sum", {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}, 20_281_129),
}
"""Set -> data set, parameters, seed; far from small seeds, since several data sets seed entry i with seed + i."""


def main() -> None:
    """Write every set and SHA256SUMS."""
    lines = []
    for name, (dataset, parameters, seed) in sorted(SETS.items()):
        rows = [json.dumps(entry, sort_keys=True) for entry in draw(dataset, parameters, seed, SIZE, ())]
        raw = ("\n".join(rows) + "\n").encode()
        (DATA / f"{name}.heldout.jsonl").write_bytes(raw)
        lines.append(f"{hashlib.sha256(raw).hexdigest()}  {name}.heldout.jsonl\n")
    (DATA / "SHA256SUMS").write_text("".join(lines))


if __name__ == "__main__":
    main()
