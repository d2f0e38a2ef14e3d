"""Every measurement, one after the other, each in a process of its own.

    python -m bench all [--quick] [--long] [--only engine,store] [--out runs/bench]

`--quick`: small sizes, minutes of CPU; `--long`: also the runs that train for hours (control, pool_d). Results: OUT/NAME.json with the
machine's facts, all.json, benchmarks.md. A measurement that fails is named, the others go on, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from bench.markdown import document, read
from bench.record import OUT, machine

QUICK: dict[str, list[str]] = {
    "engine": ["--repeats", "1"],
    "workers": ["--repeats", "1"],
    "train_step": ["--quick"],
    "store": ["1000"],
    "overhead": ["1000", "3000"],
    "resume": ["--kills", "3"],
}
FULL: dict[str, list[str]] = {"engine": [], "workers": [], "train_step": [], "store": [], "overhead": [], "resume": []}
LONG: dict[str, list[str]] = {"control": [], "pool_d": []}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", default="", help="names by comma")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    args = parser.parse_args()
    chosen = {**(QUICK if args.quick else FULL), **(LONG if args.long else {})}
    wanted = [name for name in args.only.split(",") if name] or list(chosen)
    if unknown := [name for name in wanted if name not in {**FULL, **LONG}]:
        parser.error(f"there is no bench {unknown[0]!r}; there are {', '.join({**FULL, **LONG})}")
    args.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in wanted:
        print(f"{name} ...", file=sys.stderr, flush=True)
        options = chosen.get(name, LONG.get(name, []))
        place = ["--out", str(args.out / "runs" / name)] if name in LONG else []
        command = [sys.executable, "-m", "bench", name, *options, *place]
        code = subprocess.run(command, env={**os.environ, OUT: str(args.out)}).returncode
        if code:
            failed.append({"bench": name, "exit_code": code})
    results = read(args.out)
    whole = {"machine": machine(), "quick": args.quick, "failed": failed, "results": results}
    (args.out / "all.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    (args.out / "benchmarks.md").write_text(document(results), encoding="utf-8")
    print(
        f"{args.out}: {', '.join(results) or 'nothing'}"
        + (f"; failed: {', '.join(f['bench'] for f in failed)}" if failed else "")
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
