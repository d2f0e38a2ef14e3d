"""CPU and memory of rollouts of 1 to 20 turns with a scripted engine and a quick environment: rounds, growths, dialogue, host, judging, credit,
batch, store and fsync.

    python -m bench turns [rollouts ...]      default 1000 3000 10000; needs no torch

A turn is about 16 sampled tokens and 4 read ones; a rollout's number of turns is drawn from its environment's seed. A round has 128 groups of 8,
each is committed. `cpu_us` is process time (user + system) per turn, the scripted engine's own (`engine_us`) included; `kept_bytes` is what a
held round takes in Python's memory per token of its rollouts, for short and long ones: equal where memory is linear in tokens.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.record import emit
from gfcr.build import make_cascade, make_slots, round_settings
from gfcr.cli.prepare import settle_collector
from gfcr.context import Build, View
from gfcr.domains.programs.tokenizer import END_ID, build_tokenizer
from gfcr.drivers.wave import WaveDriver
from gfcr.engine.contract import StopSpec
from gfcr.engine.scripted import ScriptedEngine, ScriptedSettings
from gfcr.environments.contract import Fragment, Said, Step
from gfcr.environments.making import make_host
from gfcr.filter.verdicts import scored
from gfcr.generate.render import TokenizerRenderer
from gfcr.recipe import parse
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.round import Round
from gfcr.run.budget import Budget
from gfcr.run.directory import RunDirectory, StepRecord
from gfcr.run.ledger import Ledger
from gfcr.run.metrics import ledger_metrics, step_metrics
from gfcr.types import Message, Part, PartKind, Task, Verdict

GROUPS, K, TOKENS = 128, 8, 16
HEARD = (Message("environment", (Part(PartKind.TEXT, "abcd"),)),)


@method("steps", Slot.ENVIRONMENT, title="so many turns", criterion="cost", faithfulness=Faithfulness.OURS)
class Steps:
    """Ends after a number of turns drawn from its seed; right iff that is even."""

    class Settings(FrozenModel):
        least: int = 1
        most: int = 20

    name, version, deterministic, snapshots, quick = "steps", "1", True, False, True

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.left, self.turns = settings, 0, 0

    def tools(self, task: Task) -> tuple[str, ...]:
        return ()

    def reset(self, task: Task, seed: int) -> Step:
        self.turns = self.left = self.settings.least + seed % (self.settings.most - self.settings.least + 1)
        return Step()

    def step(self, said: Said) -> Step:
        self.left -= 1
        return Step(HEARD, terminated=self.left == 0, state=str(self.left))

    def verify(self) -> Verdict:
        right = self.turns % 2 == 0
        return scored(self, float(right), right, "parity of the turns")

    def fragments(self) -> Sequence[Fragment]:
        return ()

    def snapshot(self) -> bytes:
        return b""

    def restore(self, task: Task, snapshot: bytes) -> None:
        """It keeps none."""

    def close(self) -> None:
        """Nothing to let go of."""


class TimedEngine(ScriptedEngine):
    """Knows its own CPU time."""

    seconds = 0.0

    def _timed(self, call: Any, *given: Any) -> Any:
        started = time.process_time()
        found = call(*given)
        self.seconds += time.process_time() - started
        return found

    def step(self, tokens: int | None = None) -> Any:
        return self._timed(super().step, tokens)

    def submit(self, request: Any) -> None:
        self._timed(super().submit, request)


class Lab:
    """The parts that live as long as a run."""

    def __init__(self, least: int = 1, most: int = 20) -> None:
        self.tasks = [Task("scripted", f"a+?{i % 7}{i // 7 % 7}", {"n": i}, meta={}, id=f"{i:032x}") for i in range(2048)]
        self.recipe = parse(
            {
                "generate": {
                    "max_tokens": 2048,
                    "topology": {"name": "interactive", "k": K, "turns": 40, "initial": "rollout"},
                    "environment": {"name": "bench.turns:Steps", "least": least, "most": most},
                },
                "filter": {"verifiers": [{"name": "environment"}]},
                "control": {"groups": GROUPS},
            }
        )
        self.renderer = TokenizerRenderer(build_tokenizer())
        self.engine = TimedEngine(settings=ScriptedSettings(mean_length=TOKENS, sigma=0.3))
        length = self.engine.capabilities().max_length
        build = Build(0, self.tasks, GROUPS, K, 2048, {}, self.renderer.decoder(), self.renderer.dialogue, max_context=length)
        self.slots, self.cascade = make_slots(self.recipe, build), make_cascade(self.recipe, build)
        self.host = make_host(self.recipe.generate.environment, self.recipe.generate.host, build)
        self.settings = round_settings(self.recipe, length)
        self.driver = WaveDriver(self.engine, self.cascade, None, self.host)

    def round(self, number: int, groups: int) -> Round:
        view = View(number, number, 0, self.slots.posterior, self.slots.memory)
        settings = self.settings.model_copy(update={"groups": groups})
        made = Round(number, self.slots, settings, view, Budget(None), self.renderer, StopSpec((END_ID,)))
        self.driver.drive(made)
        return made


def measure(rollouts: int, directory: Path) -> dict[str, float]:
    """Microseconds of CPU and wall per turn, over ceil(rollouts / 1024) committed rounds."""
    lab, ledger = Lab(), Ledger()
    run = RunDirectory.create(directory, lab.recipe.frozen(), {})
    wall, cpu = time.perf_counter(), time.process_time()
    done = step = turns = 0
    while done < rollouts:
        round_ = lab.round(step, min(GROUPS, -(-(rollouts - done) // K)))
        held = list(round_.groups.values())
        ledger.settle_round(held, dict(round_.failed), round_.failed_context)
        row = {"step": step, **step_metrics(held, round_.decisions), **ledger_metrics(ledger, 0.0)}
        state = {"slots": lab.slots.state_dict(), "ledger": ledger.state_dict()}
        run.commit(StepRecord(step, step, step, held, round_.ready(), 0.0, round_.decisions, row, state, None))
        members = [m for g in held for m in g.members.values()]
        done, step = done + len(members), step + 1
        turns += sum(m.rollout.cost.env_steps for m in members)
    run.close()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert lab.host is not None and len(lab.host) == 0
    return {
        "rollouts": done,
        "turns": turns,
        "tokens": ledger.total.generated,
        "cpu_us": cpu / turns * 1e6,
        "engine_us": lab.engine.seconds / turns * 1e6,
        "wall_us": wall / turns * 1e6,
    }


def kept(turns: int, groups: int = 16) -> float:
    """Bytes that a finished round of rollouts of so many turns holds, per token (observations included)."""
    lab = Lab(turns, turns)
    lab.round(0, 2)
    tracemalloc.start()
    round_ = lab.round(1, groups)
    bytes_ = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    tokens = sum(len(n.segment) for g in round_.groups.values() for m in g.members.values() for n in m.rollout.path)
    return bytes_ / tokens


def main() -> None:
    sizes = [int(a) for a in sys.argv[1:]] or [1000, 3000, 10_000]
    settle_collector()  # as `gfcr run` does
    with tempfile.TemporaryDirectory() as place:
        measure(64, Path(place) / "warm")
        rows = [measure(n, Path(place) / str(n)) for n in sizes]
    ratio = rows[-1]["cpu_us"] / rows[0]["cpu_us"]
    memory = {str(turns): kept(turns) for turns in (5, 10, 20)}
    emit("turns", {"rows": rows, "last_over_first": ratio, "kept_bytes": memory, "torch_imported": "torch" in sys.modules})


if __name__ == "__main__":
    main()
