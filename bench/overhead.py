"""CPU of the lifecycle itself, per rollout of about 64 tokens, with a scripted engine: rounds, judging, credit, batch, store
and fsync.

    python -m bench overhead [rollouts ...]      default 1000 3000 10000; needs no torch

A round has 128 groups of 8; each is committed. `floor` is an asyncio task and a dict per rollout in the same process, as the
measure of the box. CPU is process time (user + system), so waiting for the disk does not count; wall is printed beside it.
A virtual core's clock may halve when its neighbour works, so every round is followed by a fixed loop: `cpu_us` is the mean over
all rounds, `full_clock_us` the mean over those whose loop took at most 1.15 times the run's fastest.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.record import emit
from gfcr.build import make_slots
from gfcr.cli.prepare import settle_collector
from gfcr.context import Build, View
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import StopSpec
from gfcr.engine.scripted import ScriptedEngine, ScriptedSettings
from gfcr.filter.cascade import Cascade
from gfcr.recipe import parse
from gfcr.round import Round, RoundSettings
from gfcr.run.budget import Budget
from gfcr.run.directory import RunDirectory, StepRecord
from gfcr.run.ledger import Ledger
from gfcr.run.metrics import ledger_metrics, step_metrics
from gfcr.types import Segment, SegmentKind, Status, StopReason, Task, Verdict

GROUPS, K, TOKENS = 128, 8, 64


class Parity:
    """A verifier that costs next to nothing: right iff the answer's length is even."""

    name, version, bounded = "parity", "1", True

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        right = len(text) % 2 == 0
        return Verdict(self.name, self.version, Status.SCORED, float(right), right, "parity of the length", 1e-9)


def measure(rollouts: int, directory: Path) -> dict[str, float]:
    """Microseconds of CPU and wall per rollout, over ceil(rollouts / 1024) committed rounds."""
    tasks = [Task("scripted", f"task {i}") for i in range(2048)]
    recipe = parse(
        {"schema": 1, "generate": {"max_tokens": TOKENS, "topology": {"name": "group", "k": K}}, "control": {"groups": GROUPS}}
    )
    slots = make_slots(recipe, Build(0, tasks, GROUPS, K, TOKENS))
    engine = ScriptedEngine(settings=ScriptedSettings(mean_length=TOKENS, sigma=1e-6))
    driver = WaveDriver(engine, Cascade(lambda ids: "x" * int(ids.sum() % 7), [], [Parity()]))
    budget, ledger, tokens = Budget(None), Ledger(), 0
    prompts = {t.id: Segment(SegmentKind.PROMPT, np.arange(1, 17, dtype=np.int32)) for t in tasks}
    run = RunDirectory.create(directory, recipe.frozen(), {})
    wall = time.perf_counter()
    rounds: list[tuple[float, int, float]] = []
    """CPU seconds, rollouts and seconds of the fixed loop of each round."""
    done = step = 0
    while done < rollouts:
        cpu, before = time.process_time(), done
        view = View(step, step, 0, slots.posterior, slots.memory)
        groups = min(GROUPS, -(-(rollouts - done) // K))
        round_ = Round(
            step, slots, RoundSettings(groups=groups, k=K, max_tokens=TOKENS), view, budget, lambda t: prompts[t.id], StopSpec()
        )
        driver.drive(round_)
        held = list(round_.groups.values())
        ledger.settle_round(held, dict(round_.failed))
        row = {"step": step, **step_metrics(held, round_.decisions), **ledger_metrics(ledger, 0.0)}
        state = {"slots": slots.state_dict(), "ledger": ledger.state_dict()}
        run.commit(StepRecord(step, step, step, held, round_.ready(), 0.0, round_.decisions, row, state, None))
        done, step = done + sum(len(g.members) for g in held), step + 1
        tokens = ledger.total.generated
        rounds.append((time.process_time() - cpu, done - before, clock()))
    cpu = time.process_time()
    run.close()
    closing = time.process_time() - cpu
    wall = time.perf_counter() - wall
    cpu = closing + sum(seconds for seconds, _, _ in rounds)
    fastest = min(loop for _, _, loop in rounds)
    steady = [(seconds, n) for seconds, n, loop in rounds if loop <= 1.15 * fastest]
    return {
        "rollouts": done,
        "tokens_per_rollout": tokens / done,
        "cpu_us": cpu / done * 1e6,
        "full_clock_us": sum(s for s, _ in steady) / sum(n for _, n in steady) * 1e6,
        "full_clock_rounds": len(steady) / len(rounds),
        "loop_ns": fastest * 1e9,
        "wall_us": wall / done * 1e6,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def clock(n: int = 100_000) -> float:
    """Seconds of CPU of one turn of a fixed loop."""
    started, total = time.process_time(), 0
    for i in range(n):
        total += i
    return (time.process_time() - started) / n


def floor(n: int = 10_000) -> float:
    """Microseconds of CPU of an asyncio task and a dict entry."""

    async def one(i: int) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"id": i}

    async def all_() -> None:
        await asyncio.gather(*(one(i) for i in range(n)))

    started = time.process_time()
    asyncio.run(all_())
    return (time.process_time() - started) / n * 1e6


def main() -> None:
    sizes = [int(a) for a in sys.argv[1:]] or [1000, 3000, 10_000]
    settle_collector()  # as `gfcr run` does
    with tempfile.TemporaryDirectory() as place:
        measure(200, Path(place) / "warm")
        rows = [measure(n, Path(place) / str(n)) for n in sizes]
    ratio = rows[-1]["cpu_us"] / rows[0]["cpu_us"]
    emit("overhead", {"floor_us": floor(), "rows": rows, "last_over_first": ratio, "torch_imported": "torch" in sys.modules})


if __name__ == "__main__":
    main()
