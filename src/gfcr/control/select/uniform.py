"""Uniform selection: every task once per epoch, in a shuffled order.

Invariant: the cursor counts tasks that were handed to a round; it is committed with that round, so nothing is skipped or
repeated across a resume.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from gfcr.context import Build, View
from gfcr.control.slots import Pick
from gfcr.registry import Faithfulness, Settings, Slot, method
from gfcr.run.seeds import generator
from gfcr.types import Group, Task


class Epochs:
    """An endless stream over `tasks`: a fresh shuffle each epoch, each task once in it."""

    def __init__(self, seed: int, tasks: Sequence[Task]) -> None:
        self.seed, self.tasks = seed, tasks
        self.epoch = self.cursor = 0
        self.waiting: list[int] = []
        """Tasks of this epoch that were passed over because the round had them already; they come first next time."""
        self._order = self._shuffle()

    def _shuffle(self) -> list[int]:
        return generator(self.seed, "select", "epoch", self.epoch).permutation(len(self.tasks)).tolist()

    def take(self, n: int, exclude: Set[str]) -> list[Pick]:
        """Up to n tasks outside `exclude`, no task twice; fewer when the rest of the epoch is excluded."""
        picks: list[Pick] = []
        taken = set(exclude)

        def offer(index: int) -> bool:
            task = self.tasks[index]
            if task.id in taken:
                return False
            taken.add(task.id)
            picks.append(Pick(task, f"epoch {self.epoch}"))
            return True

        self.waiting = [i for i in self.waiting if len(picks) == n or not offer(i)]
        while len(picks) < n:
            if self.cursor == len(self._order):
                if self.waiting or not self._order:
                    break
                self.epoch, self.cursor = self.epoch + 1, 0
                self._order = self._shuffle()
            index = self._order[self.cursor]
            self.cursor += 1
            if not offer(index):
                self.waiting.append(index)
        return picks

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "cursor": self.cursor, "waiting": list(self.waiting)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.cursor, self.waiting = int(state["epoch"]), int(state["cursor"]), [int(i) for i in state["waiting"]]
        self._order = self._shuffle()


@method("uniform", Slot.SELECT, title="uniform, shuffled epochs", criterion="coverage", faithfulness=Faithfulness.CONFIRMED)
class Uniform:
    """Every task once per epoch."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.epochs = Epochs(build.seed, build.tasks)

    def select(self, n: int, exclude: Set[str], view: View) -> list[Pick]:
        return self.epochs.take(n, exclude)

    def observe(self, groups: Sequence[Group], view: View) -> None:
        """Learns nothing."""

    def state_dict(self) -> dict[str, Any]:
        return self.epochs.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epochs.load_state_dict(state)
