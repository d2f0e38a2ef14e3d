"""Applies each patch of this folder to a copy of the tree and demands that a test it names turns red.

A patch begins with comment lines: `# invariant: N`, `# tests: FILE ...`. A mutant survives when all named tests pass; a patch
that does not apply, an import that breaks, a time-out, or tests that are red without any patch are faults of their own.

    python tests/mutants/run.py [NAME ...] [--jobs N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PARTS = ("src", "tests", "recipes", "bench", "pyproject.toml", "README.md")
INVARIANTS = {str(n) for n in range(1, 13)}
SECONDS = 300


@dataclass(frozen=True)
class Mutant:
    name: str
    invariant: str
    tests: tuple[str, ...]


def read(patch: Path) -> Mutant:
    head = dict(line[2:].split(": ", 1) for line in patch.read_text().splitlines() if line.startswith("# ") and ": " in line)
    return Mutant(patch.stem, head["invariant"], tuple(head["tests"].split()))


def copy_tree(place: Path) -> Path:
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, place / part, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".hypothesis"))
        elif source.exists():
            shutil.copy(source, place / part)
    return place


def pytest(tree: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """(exit code, last lines); -1 for a time-out."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return -1, ""
    return done.returncode, done.stdout + done.stderr


def judge(mutant: Mutant) -> tuple[Mutant, str, str, float]:
    """(mutant, outcome, red test, seconds); outcome `killed` is the only good one."""
    started = perf_counter()
    with tempfile.TemporaryDirectory(prefix="gfcr-mutant-") as folder:
        tree = copy_tree(Path(folder))
        patch = HERE / f"{mutant.name}.patch"
        applied = subprocess.run(["git", "apply", "-p1", str(patch)], cwd=tree, capture_output=True, text=True, check=False)
        if applied.returncode:
            return mutant, "DOES NOT APPLY", applied.stderr.strip().splitlines()[0], perf_counter() - started
        code, output = pytest(tree, mutant.tests)
        red = next(
            (line.removeprefix("FAILED ").split(" - ")[0] for line in output.splitlines() if line.startswith("FAILED ")), ""
        )
        outcome = {0: "SURVIVED", 1: "killed", -1: "TIMED OUT"}.get(code, f"BROKEN (pytest exit code {code})")
        return mutant, outcome if code != 1 or red else "BROKEN (an error, not a failure)", red, perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    mutants = [m for m in map(read, sorted(HERE.glob("*.patch"))) if not options.names or m.name in options.names]
    if unknown := set(options.names) - {m.name for m in mutants}:
        print(f"no such mutant: {', '.join(sorted(unknown))}")
        return 2
    with tempfile.TemporaryDirectory(prefix="gfcr-mutant-") as folder:
        code, output = pytest(copy_tree(Path(folder)), tuple(sorted({t for m in mutants for t in m.tests})))
    if code:
        print(output[-2000:], "\nthe tests are red without any mutant", sep="")
        return 1
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(judge, mutants))
    width = max(len(m.name) for m in mutants)
    for mutant, outcome, red, seconds in sorted(results, key=lambda r: (int(r[0].invariant), r[0].name)):
        print(f"{mutant.invariant:>2}  {mutant.name:<{width}}  {outcome}  {seconds:4.0f} s  {red.split('/')[-1]}")
    bad = [m.name for m, outcome, _, _ in results if outcome != "killed"]
    missing = INVARIANTS - {m.invariant for m in mutants} if not options.names else set()
    if missing:
        print(f"invariants without a mutant: {', '.join(sorted(missing, key=int))}")
    print(f"{len(results) - len(bad)} of {len(results)} mutants killed")
    return 1 if bad or missing else 0


if __name__ == "__main__":
    sys.exit(main())
