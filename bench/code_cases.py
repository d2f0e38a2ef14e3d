"""The given code cases with the limits of the file, several times and several at once; prints JSON and fails where one is wrong.

    python -m bench code_cases [--times 3] [--workers 1,8]      minutes; needs no torch

Checked besides verdicts: the rows' own post-checks, that no process of ours and no listening port is left, that no file has appeared in
the temporary directory, and that this process lives.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.record import emit
from gfcr.filter.verifiers.code.rows import case
from gfcr.filter.verifiers.code.verifier import Code
from gfcr.types import Status, StopReason

CASES = Path(__file__).parents[1] / "tests" / "cases" / "code_given.jsonl"


def children() -> set[int]:
    found = [os.getpid()]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return set(found[1:])


def ports() -> set[str]:
    """Listening sockets of this machine."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {fields[1] for fields in lines if fields[3] == "0A"}


def post_checks(row: dict[str, Any]) -> list[str]:
    wrong = []
    for check in row.get("post_checks", ()):
        path = Path(os.path.expanduser(check.get("path", "")))
        if check["type"] == "path_absent" and path.exists():
            wrong.append(f"{row['id']}: {path} exists")
        if check["type"] == "file_lacks" and path.exists() and check["text"] in path.read_text(errors="replace"):
            wrong.append(f"{row['id']}: {path} holds the marker")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench code_cases")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--workers", default="1,8")
    args = parser.parse_args()
    rows = [json.loads(line) for line in CASES.read_text().splitlines()]
    judge = Code(Code.Settings(), None)
    before, listening, files = children(), ports(), set(os.listdir(tempfile.gettempdir()))
    passes, wrong = [], []
    for workers in map(int, args.workers.split(",")):
        for _ in range(args.times):
            started = time.perf_counter()
            with ThreadPoolExecutor(workers) as threads:
                verdicts = list(threads.map(lambda row: judge.judge(*case(row), StopReason.EOS), rows))
            right = 0
            for row, verdict in zip(rows, verdicts):
                ok = verdict.status is Status.SCORED and row["expected"] in (None, verdict.correct)
                right += ok
                wrong += [] if ok else [f"{row['id']}: {verdict.status}, {verdict.correct}, {verdict.evidence}"]
                wrong += post_checks(row)
            passes.append(
                {"workers": workers, "right": right, "of": len(rows), "seconds": round(time.perf_counter() - started, 1)}
            )
            print(passes[-1], file=sys.stderr)
    appeared = sorted(
        name for name in set(os.listdir(tempfile.gettempdir())) - files if name.startswith(("gfcr-", "rl_escape"))
    )
    left = {"processes": len(children() - before), "ports": len(ports() - listening), "files": appeared}
    emit("code_cases", {"passes": passes, "left": left, "wrong": wrong})
    if wrong or any(left.values()):
        raise SystemExit("; ".join([*wrong, json.dumps(left)]))


if __name__ == "__main__":
    main()
