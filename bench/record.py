"""What every measurement ends with: one JSON object that holds its figures and the facts of the machine they are from.

Invariants: a result without machine facts does not exist; facts that could not be found out are null; the load of the machine at the
end is among them, because figures from a busy box are read with care.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

OUT = "GFCR_BENCH_OUT"
"""Environment variable: a folder in which each result is kept as NAME.json."""


def machine() -> dict[str, Any]:
    """Facts of this machine and of what ran on it."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory(),
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "transformers", "numpy", "gfcr")},
        "commit": _commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def emit(bench: str, result: dict[str, Any]) -> None:
    """Print the result with the machine's facts as the last line of stdout, and keep it where OUT says."""
    whole = {"bench": bench, "machine": machine(), **result}
    print(json.dumps(whole), flush=True)
    if folder := os.environ.get(OUT):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{bench}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        if name != "gfcr":
            return None
        from gfcr import __version__

        return __version__


def _commit() -> str | None:
    try:
        command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
