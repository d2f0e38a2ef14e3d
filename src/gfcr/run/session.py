"""The whole loop on this machine: rounds, training, publication, evaluation, commits; and its resume.

Invariants: a step exists once it is committed, and everything later is derived from committed state, so a killed run goes on
bit-equal; the engine answers with the weights of the last committed step; every ending has a reason.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from gfcr import __version__
from gfcr.build import Parts, RolloutParts, build
from gfcr.context import View
from gfcr.drivers.making import make_driver
from gfcr.errors import GfcrError
from gfcr.functions import code_of
from gfcr.generate.fit import digest
from gfcr.recipe import Recipe, parse
from gfcr.round import Round
from gfcr.round_parking import can_go_on
from gfcr.run.budget import Budget
from gfcr.run.directory import ResumePoint, RunDirectory, RunDirectoryError, StepRecord, Tampered
from gfcr.run.drift import drift_metrics
from gfcr.run.engine_faults import EngineFaults
from gfcr.run.evaluate import evaluate
from gfcr.run.evaluate_turns import evaluate_turns
from gfcr.run.ledger import Ledger
from gfcr.run.metrics import EMPTY, ledger_metrics, parked_metrics, step_metrics
from gfcr.run.publish import prove, publish
from gfcr.types import Batch, Cost

Progress = Callable[[dict[str, Any]], None]
"""Called with each committed metrics row."""


class FutileRun(GfcrError):
    """Too many rounds in a row gave nothing to train on."""


@dataclass(slots=True)
class _Clock:
    """Wall seconds of the run, across resumes."""

    before: float = 0.0
    started: float = 0.0

    def seconds(self) -> float:
        return self.before + perf_counter() - self.started


class Session:
    """One run of one recipe in one directory."""

    def __init__(self, parts: Parts, directory: RunDirectory, progress: Progress | None = None) -> None:
        self.parts, self.directory, self.progress = parts, directory, progress or (lambda row: None)
        self.recipe = parts.recipe
        self.budget = Budget(self.recipe.budget.tokens)
        self.ledger = Ledger(judging=parts.cascade.judging)
        self.faults = EngineFaults(parts, self.ledger, self.budget)
        self.driver = make_driver(self.recipe.run.driver, parts.engine, parts.cascade, parts.slots.judge, parts.host)
        self.step = self.round = self.version = self.empty = 0
        self.evaluated_at = -1
        """Budget spent at the last evaluation; -1 = none yet."""
        self.ended = ""
        """Why the run is over; empty while it goes on."""
        self._clock = _Clock(started=perf_counter())

    # ---- beginnings --------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, recipe: Recipe, seed: int, path: str | Path, progress: Progress | None = None) -> Session:
        """A new run in a new directory."""
        parts = build(recipe, seed)
        directory = RunDirectory.create(
            Path(path),
            {"recipe": recipe.frozen(), "seed": seed, "hash": recipe.hash(), "tasks": parts.about_tasks},
            environment(parts),
        )
        return cls(parts, directory, progress)

    @classmethod
    def resume(cls, path: str | Path, progress: Progress | None = None, any_environment: bool = False) -> Session:
        """Continue a run from its last commit. Raises RunDirectoryError for a tampered or foreign directory, and for another
        environment unless `any_environment`."""
        directory = RunDirectory.open(Path(path))
        try:
            for found in directory.differences():  # all of it: a run goes on for hours, reading it takes seconds
                raise Tampered(f"{path}: {found}", "restore the run directory from a copy, or start again in another one")
            stored = directory.recipe
            parts = build(parse(stored["recipe"], str(path)), int(stored["seed"]))
            directory.check_environment(environment(parts), allow=any_environment)
            session = cls(parts, directory, progress)
            point = directory.resume_point()
            if point is not None:
                if "session" not in point.state:
                    raise RunDirectoryError(
                        f"{path} holds the rounds of a run that a trainer outside gfcr leads", "resume it there (docs/trl.md)"
                    )
                session._restore(point)
        except BaseException:
            directory.close()
            raise
        return session

    def _restore(self, point: ResumePoint) -> None:
        """Load the last checkpoint, replay the stored batches since it through the optimiser, restore every slot."""
        trainer = self.parts.trainer
        if point.checkpoint is not None:
            trainer.load(point.checkpoint)
        for batch, progress in point.batches:
            trainer.step(batch, progress)
        state = point.state
        self.parts.slots.load_state_dict(state["slots"], self.directory.rollout)
        self.budget.load_state_dict(state["budget"])
        self.ledger.load_state_dict(state["ledger"])
        own = state["session"]
        self.step, self.round, self.version = point.step, own["round"], own["version"]
        self.empty, self.evaluated_at, self.ended = own["empty"], own["evaluated_at"], own["ended"]
        self._clock = _Clock(own["seconds"], perf_counter())
        self._publish()

    # ---- the loop ----------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Run to the end; returns the reason. Raises FutileRun when rounds stay empty."""
        try:
            if self.directory.last_step() is None:
                self._begin(self._publish())
            while not self.ended:
                self._step()
        finally:
            self.close()
        return self.ended

    def _begin(self, probed: int) -> None:
        """Row 0: the model before training. `probed`: tokens the publication cost."""
        row: dict[str, Any] = {"step": 0, **dict.fromkeys(EMPTY), **self._prove(probed), **self._evaluation(due=True)}
        row |= {"tasks_dropped": {"prompt_too_long": self.parts.dropped} if self.parts.dropped else {}}
        self.faults.of_the_rest()
        row |= {"prompts_cut": len(self.parts.renderer.cut), **self.faults.row()}
        self._commit(row, None, None, 0.0)

    def _step(self) -> None:
        """One round, one optimiser step, one commit."""
        started = perf_counter()
        scored = self.parts.engine.usage().scored
        round_ = self._round()
        self.driver.drive(round_)
        generated = perf_counter()
        batch, progress = round_.ready(), self.budget.progress
        groups = list(round_.groups.values())
        self.ledger.settle_round(groups, dict(round_.failed), round_.failed_context, round_.booked, round_.failed_steps)
        self.faults.of_a_round()
        self.ledger.add(Cost(scored=self.parts.engine.usage().scored - scored))
        row: dict[str, Any] = {"step": self.step + 1, **step_metrics(groups, round_.decisions)}
        row |= parked_metrics(groups, round_.number, round_.view.version)
        if checked := self.recipe.generate.prompt.check_drift:
            row["drift"] = drift_metrics(groups, self.parts.renderer, checked)
        if batch is not None and len(batch):
            stats = self.parts.trainer.step(batch, progress)
            self.ledger.add(Cost(trained=stats.tokens))
            row |= {f"train_{name}": value for name, value in asdict(stats).items()}
            self.version += stats.updates > 0
            self.empty = 0
        else:
            self.empty += 1
            row["untrained"] = round_.reason or round_.causes()
        trained = perf_counter()
        row |= self._prove(self._publish())
        self.step, self.round = self.step + 1, self.round + 1
        self._decide_end(round_)
        row |= self._evaluation(due=bool(self.ended) or self._due())
        self.faults.of_the_rest()
        row |= self.faults.row()
        row |= {
            "seconds_rounds": round(generated - started, 4),
            "seconds_training": round(trained - generated, 4),
            "seconds_evaluation": round(perf_counter() - trained, 4),
        }
        self._commit(row, round_, batch, progress)
        if self.empty >= self.recipe.control.max_empty + self.parts.round_settings.patience:
            raise FutileRun(
                f"{self.empty} rounds in a row had nothing to train on: {round_.causes()}",
                "easier or harder tasks, a more lenient verifier, or a larger K; `gfcr report DIR` shows the answers and verdicts",
            )

    def _round(self) -> Round:
        parts, over = self.parts, self.budget.over(self.step, self.recipe.budget.steps)
        view = View(self.round, self.version, parts.seed, parts.slots.posterior, parts.slots.memory, over)
        return Round(self.round, parts.slots, parts.round_settings, view, self.budget, parts.renderer, parts.stop)

    def _publish(self) -> int:
        """Serve the trainer's weights; returns the tokens by which several processes proved that they all do."""
        before = self.parts.engine.usage().scored
        publish(self.parts.trainer, self.parts.engine, self.version)
        return self.parts.engine.usage().scored - before

    def _prove(self, probed: int) -> dict[str, Any]:
        """That the engine answers with them; not repeated at resume, where the step's row has it already."""
        proof = prove(self.parts.trainer, self.parts.engine, self.version)
        self.ledger.add(Cost(scored=proof.scored + probed, trained=proof.trained))
        return {"published_fingerprint": proof.fingerprint, "published_gap": proof.gap}

    def _decide_end(self, round_: Round) -> None:
        """Whether another round can start."""
        settings, steps = self.parts.round_settings, self.recipe.budget.steps
        affordable = self.budget.affordable(settings.group_tokens)
        if steps is not None and self.step >= steps:
            self.ended = "steps"
        elif affordable is not None and affordable < settings.min_groups and not self._goes_on():
            self.ended = "budget"
        elif round_.reason == "no_tasks":
            self.ended = "no_tasks"

    def _goes_on(self) -> bool:
        return can_go_on(self.parts.slots, self.budget, self.parts.round_settings)

    def _due(self) -> bool:
        every = self.recipe.evaluate.every_tokens
        return every is not None and self.budget.spent // every > self.evaluated_at // every

    def _evaluation(self, due: bool) -> dict[str, Any]:
        """Held-out figures; nulls between evaluations."""
        nothing = {"heldout_accuracy": None, "heldout_greedy": None, "heldout_unscorable": None}
        if not due or not self.parts.heldout:
            return nothing
        settings = self.recipe.evaluate
        parts = self.parts
        asked = (
            parts.engine,
            parts.cascade,
            parts.renderer,
            parts.heldout[: settings.limit],
            settings.samples,
            settings.greedy,
            self.recipe.generate.max_tokens,
            parts.stop,
        )
        result = evaluate(*asked) if parts.host is None else evaluate_turns(*asked, parts.slots, parts.host)
        self.ledger.add(Cost(evaluated=result.tokens, evaluated_context=result.context))
        self.evaluated_at = self.budget.spent
        return {"heldout_accuracy": result.accuracy, "heldout_greedy": result.greedy, "heldout_unscorable": result.unscorable}

    def _commit(self, row: dict[str, Any], round_: Round | None, batch: Batch | None, progress: float) -> None:
        seconds = self._clock.seconds()
        row |= {
            "round": self.round,
            "version": self.version,
            "ended": self.ended or None,
            **ledger_metrics(self.ledger, seconds),
        }
        checkpoint = bool(self.ended) or self.step % self.recipe.run.checkpoint_every == 0
        state = {
            "slots": self.parts.slots.state_dict(),
            "budget": self.budget.state_dict(),
            "ledger": self.ledger.state_dict(),
            "session": {
                "round": self.round,
                "version": self.version,
                "empty": self.empty,
                "evaluated_at": self.evaluated_at,
                "ended": self.ended,
                "seconds": seconds,
            },
        }
        self.directory.commit(
            StepRecord(
                self.step,
                self.round,
                self.version,
                list(round_.groups.values()) if round_ else [],
                batch,
                progress,
                round_.decisions if round_ else [],
                row,
                state,
                self.parts.trainer.save if checkpoint else None,
            )
        )
        self.progress(row)

    def close(self) -> None:
        self.parts.engine.close()
        self.parts.cascade.close()
        if self.parts.host is not None:
            self.parts.host.close()
        if (close := getattr(self.parts.slots.select, "close", None)) is not None:
            close()  # a selector with a process of its own
        self.directory.close()


def environment(parts: RolloutParts) -> dict[str, Any]:
    """Facts that must be equal for a bit-equal continuation."""
    import torch
    import transformers

    return {
        "gfcr": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "device": parts.recipe.train.device,
        "dtype": parts.recipe.train.dtype,
        "engine": parts.recipe.engine.name,
        "engine_dtype": parts.engine.capabilities().details.get("dtype"),
        "tasks": digest(parts.tasks, parts.heldout, parts.renderer),
        "workers": parts.recipe.engine.workers,
    } | {
        f"code of {found.slot} {found.name}": code
        for found, _ in parts.recipe.methods()
        if found.cls is not None and (code := code_of(found.cls, found.name)) is not None
    }


def _cpu() -> str:
    """Model name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
