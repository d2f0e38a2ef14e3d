"""Does a run that dies come back as the run that never died? With the lab model and the real session:

    python -m bench resume                      both of the following
    python -m bench resume --only ""            every failpoint in every mode, checkpoints every 1 and 3 steps
    python -m bench resume --only checkpoint    failpoints whose name contains this
    python -m bench resume --kills 30           kill -9 at random moments, resume until done

A case passes when weights, optimiser state, token arrays, metrics (wall seconds apart) and ledger equal those of the
uninterrupted run byte for byte, every step is there once, and the directory verifies. Exit code 1 when one does not.
Cases run in children of a fork server that has torch loaded, so that one costs about the time of the run itself.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.record import emit

SMALL = (
    "evaluate.samples=1",
    "evaluate.every_tokens=400",
    "control.groups=3",
    "generate.topology.k=3",
    "generate.max_tokens=40",
    "budget.tokens=none",
    "budget.steps=7",
    "tasks.source=file",
    "tasks.domain=programs",
)
"""The four-module recipe, small: seven steps that select, inject, train, evaluate and store."""
TASKS = (("gsh-i*j-?13", "11"), ("i*jsk*l-?61", "06"), ("bsc-d-e-?03", "30"), ("m+n*o-ps?51", "15"))
HELDOUT = (("j-k+l-m+n*o-p*?44", "64"), ("osp-?52", "45"))
SEED = 1
"""With these tasks it injects at steps 3 and 7."""
CRASHED, REFUSED = 137, 3
"""Exit codes of a child: what a failpoint's `exit` and `torn` leave, and what an error with a remedy leaves."""


def small(place: Path) -> list[str]:
    """Write the tasks into `place`; what to set on a four-module recipe to make a small run of it."""
    for name, rows in (("tasks", TASKS), ("heldout", HELDOUT)):
        text = "".join(json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in rows)
        (place / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return [*SMALL, f"tasks.path={place / 'tasks.jsonl'}", f"tasks.heldout={place / 'heldout.jsonl'}"]


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["torch", "transformers.models.qwen3.modeling_qwen3", "gfcr.run.session", "gfcr.train.trainer", "gfcr.engine.embedded"]
)


def play(
    path: Path,
    overrides: Sequence[str] = (),
    failpoint: str | None = None,
    recipe: str = "four_modules",
    seed: int = SEED,
) -> None:
    """Run or resume in `path` to the end, in a child; ends the process. `failpoint` as in GFCR_FAILPOINT."""
    import torch

    from gfcr.errors import GfcrError
    from gfcr.recipe import load
    from gfcr.run import failpoints
    from gfcr.run.directory import RunDirectory
    from gfcr.run.session import Session

    torch.set_num_threads(1)
    failpoints.arm(failpoint)
    try:
        known = RunDirectory.exists(path)
        session = Session.resume(path) if known else Session.create(load(recipe, overrides), seed, path)
        session.run()
    except GfcrError as error:
        print(f"  {error}".replace("\n", "\n  "), file=sys.stderr)
        os._exit(REFUSED)


def start(path: Path, overrides: Sequence[str] = (), failpoint: str | None = None, recipe: str = "four_modules") -> Any:
    """A child at work in `path`."""
    target = import_module("bench.resume").play  # by that name in the child too, whatever this module was run as
    process = _context.Process(target=target, args=(path, tuple(overrides), failpoint, recipe))
    process.start()
    return process


def finish(path: Path, overrides: Sequence[str] = (), failpoint: str | None = None, recipe: str = "four_modules") -> int:
    """Run or resume in a child; its exit code."""
    process = start(path, overrides, failpoint, recipe)
    process.join()
    return int(process.exitcode)


# ---- comparing -------------------------------------------------------------------------------------------------


def content(path: Path) -> dict[str, Any]:
    """What must be equal in two finished runs, by name."""
    from gfcr.run.directory import RunDirectory

    with RunDirectory.read(path) as run:
        last = run.last_step()
        assert last is not None, f"{path}: nothing was committed"
        out: dict[str, Any] = {
            "verify": [str(d) for d in run.verify()],
            "steps": run.steps(),
            "ledger": _timeless(run.state(last)["ledger"]),
        }
        for row in run.metrics():
            out[f"metrics {row['step']}"] = repr(_timeless(row))  # as text: NaN equals itself there
        for name in ("model", "trainer"):
            out[f"{name}.safetensors"] = (run.checkpoint_path(last) / f"{name}.safetensors").read_bytes()
        for step in run.steps():
            out[f"arrays of step {step}"] = run.payload_file(step).read_bytes()
    return out


def _timeless(data: Any) -> Any:
    """JSON data without wall seconds."""
    return {k: _timeless(v) for k, v in data.items() if "seconds" not in k} if isinstance(data, dict) else data


def differences(path: Path, expected: dict[str, Any]) -> list[str]:
    """Names of what differs; empty when the run in `path` equals the expected content."""
    found = content(path)
    assert found["verify"] == [], found["verify"]
    assert found["steps"] == list(range(len(found["steps"]))), found["steps"]
    return [name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)]


# ---- cases -----------------------------------------------------------------------------------------------------


def passages(name: str) -> tuple[int, ...]:
    """Which passages of a failpoint are tried: the first, and one in the middle of the run where there is one."""
    place = name.split(".")[0]
    return {"recipe": (1,), "create": (1,), "collect": (1,), "checkpoint": (1, 2)}.get(place, (1, 4))


def matrix() -> list[str]:
    """Every failpoint in every mode."""
    from gfcr.run import failpoints

    return [f"{name}:{mode}:{nth}" for name, modes in failpoints.names().items() for mode in modes for nth in passages(name)]


def crash_and_resume(
    spec: str, overrides: Sequence[str], expected: dict[str, Any], path: Path, recipe: str = "four_modules"
) -> str:
    """One case; empty when it passed, else what went wrong."""
    code = finish(path, overrides, spec, recipe)
    if code != (REFUSED if ":enospc" in spec else CRASHED):
        return f"the failpoint was not met: exit code {code}"
    if code := finish(path, overrides, recipe=recipe):
        return f"resume ended with exit code {code}"
    found = differences(path, expected)
    return f"differs: {', '.join(found)}" if found else ""


def kill_until_done(path: Path, overrides: Sequence[str], draw: random.Random, longest: float, most: int) -> list[int]:
    """Kill -9 after random times up to `longest` seconds, at most `most` times, resuming until done; after each kill, the last
    committed step (-1 = the run was not yet created or had none)."""
    kills: list[int] = []
    while True:
        process = start(path, overrides)
        if len(kills) < most:
            process.join(draw.random() * longest)
            if process.exitcode is None:
                os.kill(process.pid, signal.SIGKILL)
        process.join()
        if process.exitcode == -signal.SIGKILL:
            kills.append(committed(path))
        elif process.exitcode:
            raise SystemExit(f"after {len(kills)} kills a resume in {path} ended with exit code {process.exitcode}")
        else:
            return kills


def committed(path: Path) -> int:
    """The last committed step; -1 = none."""
    from gfcr.run.directory import RunDirectory

    if not RunDirectory.exists(path):
        return -1
    with RunDirectory.read(path) as run:
        last = run.last_step()
        return -1 if last is None else last


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for the cases, removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="gfcr-resume-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="kill -9 N times")
    parser.add_argument("--only", default=None, metavar="TEXT", help="failpoints whose name contains this")
    parser.add_argument("--seed", type=int, default=0, help="of the kills' moments")
    chosen = parser.parse_args()
    with scratch() as place:
        both = chosen.only is None and not chosen.kills
        cases, failures = _matrix(place, chosen.only or "") if both or chosen.only is not None else (0, 0)
        kills, differing = _kills(place, chosen.kills or 30, chosen.seed) if both or chosen.kills else (0, 0)
    emit("resume", {"cases": cases, "failures": failures, "kills": kills, "runs_that_differ": differing})
    return bool(failures or differing)


def _matrix(place: Path, only: str) -> tuple[int, int]:
    """(cases, failures)"""
    specs, failures, began = [spec for spec in matrix() if only in spec], [], time.perf_counter()
    for every in (1, 3):
        reference, overrides = place / f"uninterrupted-{every}", [*small(place), f"run.checkpoint_every={every}"]
        assert finish(reference, overrides) == 0
        expected = content(reference)
        for i, spec in enumerate(specs, 1):
            path = place / f"case-{every}-{i}"
            if problem := crash_and_resume(spec, overrides, expected, path):
                failures.append(f"{spec}, checkpoints every {every}: {problem}")
                print(f"FAILED {failures[-1]}", flush=True)
            shutil.rmtree(path, ignore_errors=True)
            if i % 20 == 0 or i == len(specs):
                print(
                    f"checkpoints every {every}: {i}/{len(specs)}, {len(failures)} failed, {time.perf_counter() - began:.0f} s",
                    flush=True,
                )
    print(f"{2 * len(specs)} cases, {len(failures)} failed")
    return 2 * len(specs), len(failures)


def _kills(place: Path, wanted: int, seed: int) -> tuple[int, int]:
    """(kills, runs that differ)"""
    draw, kills, runs, failures, whole = random.Random(seed), [], 0, 0, 0.0
    for every in (1, 1, 3):  # the first time starts the fork server
        shutil.rmtree(place / f"uninterrupted-{every}", ignore_errors=True)
        began = time.perf_counter()
        assert finish(place / f"uninterrupted-{every}", [*small(place), f"run.checkpoint_every={every}"]) == 0
        whole = time.perf_counter() - began
    while len(kills) < wanted:
        every = (1, 3)[runs % 2]
        path = place / f"killed-{runs}"
        here = kill_until_done(path, [*small(place), f"run.checkpoint_every={every}"], draw, 0.9 * whole, wanted - len(kills))
        found = differences(path, content(place / f"uninterrupted-{every}"))
        kills, runs, failures = kills + here, runs + 1, failures + bool(found)
        state = f"differs: {', '.join(found)}" if found else "equal"
        print(f"run {runs} (checkpoints every {every}): killed after steps {here}, {state}", flush=True)
    print(f"{len(kills)} kills in {runs} runs, {failures} of the runs differ")
    return len(kills), failures


if __name__ == "__main__":
    sys.exit(main())
