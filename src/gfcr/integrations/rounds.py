"""Rounds for a trainer that is not ours: it publishes its weights, asks for the next batch, trains as it likes.

Invariants: a round is committed, durable, before its batch is handed out, so a killed trainer finds every batch it had and every
one it had not got to; a cursor (`resume_at`) decides which is next, and stored rounds come back in order, with proof that the
weights are those they were sampled with; nothing is generated twice; rounds without a batch are bounded, and every end has a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from gfcr.build import RolloutParts
from gfcr.context import View
from gfcr.drivers.making import make_driver
from gfcr.engine.contract import WeightsRef
from gfcr.errors import DataError
from gfcr.round import Round
from gfcr.round_parking import can_go_on
from gfcr.run.budget import Budget
from gfcr.run.directory import RunDirectory, RunDirectoryError, StepRecord
from gfcr.run.engine_faults import EngineFaults
from gfcr.run.ledger import Ledger
from gfcr.run.metrics import EMPTY, ledger_metrics, parked_metrics, step_metrics
from gfcr.run.session import FutileRun, environment
from gfcr.types import Batch, Cost, Group


@dataclass(frozen=True, slots=True, eq=False)
class Fed:
    """One batch for the foreign trainer."""

    index: int
    """Counts the batches of a run from 0."""
    round: int
    """Its round; rounds that gave no batch lie between."""
    version: int
    """The trainer's own count of the weights it was sampled with."""
    fingerprint: str
    """Of those weights, as the engine answered."""
    batch: Batch
    groups: list[Group] | None
    """None for a batch read back from the run directory."""
    metrics: Mapping[str, Any]
    """The round's metrics row."""

    @property
    def replayed(self) -> bool:
        return self.groups is None


class Rounds:
    """The lifecycle up to the batch, in a run directory of its own."""

    def __init__(
        self, parts: RolloutParts, path: str | Path | None, any_environment: bool = False, any_weights: bool = False
    ) -> None:
        """`path`: the run directory, made or continued; None = nothing is kept, and there is no resume. `any_environment`,
        `any_weights`: accept what would end bit-equality. Raises RunDirectoryError for another recipe or seed."""
        self.parts, self.recipe, self.any_weights = parts, parts.recipe, any_weights
        self.budget, self.ledger = Budget(parts.recipe.budget.tokens), Ledger(judging=parts.cascade.judging)
        self.faults = EngineFaults(parts, self.ledger, self.budget)
        self.driver = make_driver(self.recipe.run.driver, parts.engine, parts.cascade, parts.slots.judge, parts.host)
        self.round = self.empty = 0
        self.ended = ""
        """Why there are no more batches; empty while there are."""
        self.version, self.fingerprint = -1, ""
        """Of the weights published last; -1 and empty before."""
        self._stored: list[dict[str, Any]] = []
        """Metrics rows of the committed rounds with a batch, in order."""
        self._next = 0
        self._before, self._started = 0.0, perf_counter()
        self.directory = None if path is None else self._open(Path(path), any_environment)

    def _open(self, path: Path, any_environment: bool) -> RunDirectory:
        """Make the run directory, or go on in it."""
        parts = self.parts
        facts = {"recipe": self.recipe.frozen(), "seed": parts.seed, "hash": self.recipe.hash(), "tasks": parts.about_tasks}
        if not RunDirectory.exists(path):
            return RunDirectory.create(path, facts, environment(self.parts))
        directory = RunDirectory.open(path, facts)
        try:
            directory.check_environment(environment(self.parts), allow=any_environment)
            if (last := directory.last_step()) is not None:
                state = directory.state(last)
                if "rounds" not in state:
                    raise RunDirectoryError(
                        f"{path} holds a run of gfcr's own trainer", "give the rounds a directory of their own"
                    )
                self.parts.slots.load_state_dict(state["slots"], directory.rollout)
                self.budget.load_state_dict(state["budget"])
                self.ledger.load_state_dict(state["ledger"])
                own = state["rounds"]
                self.round, self.empty, self._before = own["round"], own["empty"], own["seconds"]
                self.ended = own["ended"]
                self._stored = [row for row in directory.metrics() if row["rows"]]
        except BaseException:
            directory.close()
            raise
        return directory

    # ---- the trainer's side ------------------------------------------------------------------------------------

    @property
    def stored(self) -> int:
        """Batches in the run directory."""
        return len(self._stored)

    def resume_at(self, index: int) -> None:
        """The next batch is number `index`, counted from 0. Raises DataError for one beyond those committed."""
        if index > self.stored:
            raise DataError(
                f"the trainer's checkpoint comes after {index} batches, the run directory holds {self.stored}",
                "resume with the run directory that the checkpoint's run wrote",
            )
        self._next = index

    def publish(self, version: int, weights: Any) -> str:
        """Serve these weights; returns the engine's fingerprint of them. `version`: the trainer's own count of its updates. `weights`: a
        full state dict or the model itself (an adapter is merged for the moment of the copy); they are copied."""
        if isinstance(weights, Mapping):
            self.parts.engine.load(WeightsRef(version, "memory:"), weights)
        else:
            from gfcr.integrations.weights import full_weights

            with full_weights(weights) as tensors:
                self.parts.engine.load(WeightsRef(version, "memory:"), tensors)
        self.version, self.fingerprint = version, self.parts.engine.fingerprint()
        return self.fingerprint

    def next(self) -> Fed | None:
        """The next batch, sampled with the weights published last or read back; None when the run is over (`ended`).

        Raises FutileRun after `control.max_empty` rounds in a row without a batch, DataError when a stored batch belongs to other
        weights than those published.
        """
        if self._next < self.stored:
            return self._replay(self._stored[self._next])
        while not self.over():
            round_ = self._drive()
            batch = round_.ready()
            fed = self._commit(round_, batch)
            if fed is not None:
                self._next += 1
                return fed
            if self.empty >= self.recipe.control.max_empty + self.parts.round_settings.patience:
                raise FutileRun(
                    f"{self.empty} rounds in a row had nothing to train on: {round_.causes()}",
                    "easier or harder tasks, a more lenient verifier, or a larger K",
                )
        return None

    def current(self, index: int) -> Fed:
        """A committed batch again, without a look at the weights: its training has begun already."""
        assert self.directory is not None
        return self._read(self._stored[index], index)

    def close(self) -> None:
        self.parts.engine.close()
        self.parts.cascade.close()
        if self.parts.host is not None:
            self.parts.host.close()
        if self.directory is not None:
            self.directory.close()

    def over(self) -> bool:
        """Whether nothing is left: no stored batch, and no further round can start (`ended` says why)."""
        if self._next < self.stored:
            return False
        settings, steps = self.parts.round_settings, self.recipe.budget.steps
        affordable = self.budget.affordable(settings.group_tokens)
        if steps is not None and self.round >= steps:
            self.ended = "steps"
        elif (
            affordable is not None
            and affordable < settings.min_groups
            and not can_go_on(self.parts.slots, self.budget, settings)
        ):
            self.ended = "budget"
        return bool(self.ended)

    # ---- one round ---------------------------------------------------------------------------------------------

    def _drive(self) -> Round:
        parts = self.parts
        self.faults.of_the_rest()  # what publishing lost
        scored = parts.engine.usage().scored
        over = self.budget.over(self.round, self.recipe.budget.steps)
        view = View(self.round, self.version, parts.seed, parts.slots.posterior, parts.slots.memory, over)
        round_ = Round(self.round, parts.slots, parts.round_settings, view, self.budget, parts.renderer, parts.stop)
        self.driver.drive(round_)
        self.ledger.settle_round(
            list(round_.groups.values()), dict(round_.failed), round_.failed_context, round_.booked, round_.failed_steps
        )
        self.faults.of_a_round()
        self.ledger.add(Cost(scored=parts.engine.usage().scored - scored))
        return round_

    def _commit(self, round_: Round, batch: Batch | None) -> Fed | None:
        """Make the round durable; the batch to hand out, if it has rows."""
        rows = 0 if batch is None else len(batch)
        number, progress = self.round, self.budget.progress
        groups = list(round_.groups.values())
        seconds = self._before + perf_counter() - self._started
        self.round, self.empty = self.round + 1, 0 if rows else self.empty + 1
        self.ended = "no_tasks" if round_.reason == "no_tasks" else ""
        row: dict[str, Any] = {
            **dict.fromkeys((*EMPTY, "heldout_accuracy", "heldout_greedy", "heldout_unscorable", "ended")),
            "step": self.round,
            **step_metrics(groups, round_.decisions),
            **parked_metrics(groups, number, self.version),
            "round": self.round,
            "version": self.version,
            "weights": self.fingerprint,
            "rows": rows,
            **({} if rows else {"untrained": round_.reason or round_.causes()}),
            **ledger_metrics(self.ledger, seconds),
            **self.faults.row(),
        }
        if self.directory is not None:
            state = {
                "slots": self.parts.slots.state_dict(),
                "budget": self.budget.state_dict(),
                "ledger": self.ledger.state_dict(),
                "rounds": {"round": self.round, "empty": self.empty, "seconds": seconds, "ended": self.ended},
            }
            self.directory.commit(
                StepRecord(self.round, self.round, self.version, groups, batch, progress, round_.decisions, row, state)
            )
        if batch is None or not rows:
            return None
        self._stored.append(row)
        return Fed(self._next, number, self.version, self.fingerprint, batch, groups, row)

    # ---- a stored round ----------------------------------------------------------------------------------------

    def _read(self, row: Mapping[str, Any], index: int) -> Fed:
        assert self.directory is not None
        batch = self.directory.batch(row["step"])
        assert batch is not None
        return Fed(index, batch.round, int(row["version"]), str(row["weights"]), batch, None, row)

    def _replay(self, row: Mapping[str, Any]) -> Fed:
        fed = self._read(row, self._next)
        if not self.any_weights and (fed.version, fed.fingerprint) != (self.version, self.fingerprint):
            raise DataError(
                f"round {fed.round} of the run directory was sampled with weights {fed.fingerprint[:12]} (version "
                f"{fed.version}); the trainer has {self.fingerprint[:12]} (version {self.version})",
                "resume from a checkpoint of the same run with the same settings, on the same kind of machine; or pass "
                "any_weights=True to train on the stored rounds all the same",
            )
        self._next += 1
        return fed
