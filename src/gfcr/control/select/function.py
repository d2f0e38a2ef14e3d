"""A user's plain function as a selector.

    def shortest_first(tasks, n): return sorted(tasks, key=lambda t: len(t.prompt))

Invariants: it is given what it asks for by name and returns tasks, ids or positions, best first; those the round has already, those
named twice and those beyond n are left out; anything else ends the run with what it was; it runs in a child process, so that one
that hangs is killed; its random numbers are drawn from the run's seed and the round, so a resumed run is bit-equal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import numpy as np
from pydantic import Field

from gfcr.context import Build, View
from gfcr.control.slots import Pick
from gfcr.errors import ConfigError, GfcrError
from gfcr.filter.killable import Broken, Killable
from gfcr.functions import load_place, parameters, short_name
from gfcr.registry import Faithfulness, FrozenModel, Method, Slot
from gfcr.run.seeds import generator
from gfcr.types import Group, Task

GIVEN = {
    "tasks": "all tasks, in a fixed order",
    "n": "how many are wanted",
    "exclude": "ids of tasks the round has already",
    "round": "number of the round",
    "rng": "a numpy Generator of its own",
    "mean": "float64[tasks]: each task's chance of a right answer, as the run's posteriors have it",
    "spread": "float64[tasks]: the posterior's standard deviation",
}


class SelectorError(GfcrError):
    """The function gave no tasks."""


class _Call:
    """In the child: the function, the tasks, and one call."""

    def __init__(self, place: str, tasks: Sequence[Task]) -> None:
        self.name, self.place, self.tasks = place, place, list(tasks)
        self._function: Callable[..., Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "place": self.place, "tasks": self.tasks, "_function": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._function = load_place(self.place)
        self._index = {task.id: i for i, task in enumerate(self.tasks)}

    def choose(self, n: int, exclude: Set[str], round_: int, seed: int, a: np.ndarray, b: np.ndarray) -> list[int]:
        """Positions of up to n tasks. Raises ValueError for an answer that names no task."""
        assert self._function is not None
        known = {
            "tasks": tuple(self.tasks),
            "n": n,
            "exclude": exclude,
            "round": round_,
            "rng": generator(seed, "select", "function", self.place, round_, len(exclude)),
            "mean": a / (a + b),
            "spread": np.sqrt(a * b / ((a + b) ** 2 * (a + b + 1))),
        }
        answer = self._function(**{k: v for k, v in known.items() if k in inspect.signature(self._function).parameters})
        if isinstance(answer, str) or not isinstance(answer, Iterable):
            raise ValueError(f"returned {answer!r}, not tasks, ids or positions")
        chosen: dict[int, None] = {}
        for item in answer:
            i = self._position(item)
            if self.tasks[i].id not in exclude:
                chosen.setdefault(i)
            if len(chosen) == n:
                break
        return list(chosen)

    def _position(self, item: Any) -> int:
        if isinstance(item, (Task, str)):
            i = self._index.get(item.id if isinstance(item, Task) else item)
        else:
            whole = isinstance(item, (int, np.integer)) and not isinstance(item, bool)
            i = int(item) if whole and 0 <= item < len(self.tasks) else None
        if i is None:
            raise ValueError(f"returned {item!r}, which is no task, no id of one and no position among {len(self.tasks)} tasks")
        return i


class FunctionSelector:
    """Asks one function."""

    place = ""

    class Settings(FrozenModel):
        seconds: float = Field(10.0, gt=0)
        """Longest one call may take; it is killed then, and the run ends with that reason."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.name = short_name(self.place)
        self.tasks, self.seed = build.tasks, build.seed
        self._ids = [task.id for task in build.tasks]
        self._child = Killable(_Call(self.place, build.tasks), settings.seconds)
        self._child.start()

    def select(self, n: int, exclude: Set[str], view: View) -> list[Pick]:
        """Raises SelectorError when the function gives no answer or one that names no task."""
        a, b = view.difficulty.beta(self._ids)
        try:
            chosen = self._child.call("choose", n, frozenset(exclude), view.round, self.seed, a, b)
        except Broken as error:
            raise SelectorError(
                f"the selector {self.name} gave no tasks in round {view.round}: {error}",
                "correct the function and resume the run (--any-environment: its code differs then), or raise its `seconds`",
            ) from None
        return [Pick(self.tasks[i], self.name, {"mean": float(a[i] / (a[i] + b[i]))}) for i in chosen]

    def observe(self, groups: Sequence[Group], view: View) -> None:
        """A function keeps nothing; what it may learn from is in `mean` and `spread`."""

    def close(self) -> None:
        """End its process."""
        self._child.close()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


def selector(place: str) -> Method:
    """The selector that asks the function at `place`. Raises ConfigError for parameters it cannot be given."""
    function = load_place(place)
    for name, parameter in parameters(function, place).items():
        if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
            continue
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigError(f"{place} takes {name!r} by position only; arguments are given by name", "take the `/` out")
        if name not in GIVEN and parameter.default is inspect.Parameter.empty:
            raise ConfigError(
                f"{place} asks for {name!r}", "a selector can have " + "; ".join(f"{k} ({v})" for k, v in GIVEN.items())
            )
    title = (inspect.getdoc(function) or "your own function").splitlines()[0]
    cls = type("FunctionSelector", (FunctionSelector,), {"place": place, "__doc__": inspect.getdoc(function)})
    return Method(place, Slot.SELECT, title, "coverage", Faithfulness.OURS, settings=FunctionSelector.Settings, cls=cls)
