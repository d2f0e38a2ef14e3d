"""Pools of tasks for environments with tools.

Invariants: a task is a pure function of pool, number and VERSION; no task occurs twice, neither in a pool nor in a pool and its held-out
set; references are computed by the code that makes the task, never guessed. tests/domains/test_tool_pools.py holds the digests of what
this version gives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random

from gfcr.domains.tools import functions, puzzles, sums, tables
from gfcr.errors import ConfigError
from gfcr.types import Task

VERSION = "1"
MAKERS: dict[str, Callable[[Random, str], Task]] = {
    "calculator": sums.task,
    "python": puzzles.task,
    "sqlite": tables.task,
    "repair": functions.task,
}
SIZES = {"calculator": (512, 128), "python": (512, 128), "sqlite": (384, 96), "repair": (256, 64)}
"""Tasks to train on and held-out ones. The environment of a pool's name plays it."""
_TRIES = 40
"""Draws for each task wanted, before a maker counts as exhausted."""


def load_pool(name: str) -> list[Task]:
    """Raises ConfigError for an unknown name."""
    return list(_made(_known(name))[: SIZES[name][0]])


def load_heldout(name: str) -> list[Task]:
    """As load_pool."""
    return list(_made(_known(name))[SIZES[name][0] :])


def _known(name: str) -> str:
    if name not in MAKERS:
        raise ConfigError(f"there is no pool {name!r} of tasks for tools", f"set tasks.pool to one of {', '.join(MAKERS)}")
    return name


@lru_cache
def _made(name: str) -> tuple[Task, ...]:
    wanted = sum(SIZES[name])
    found: dict[str, Task] = {}
    for number in range(_TRIES * wanted):
        task = MAKERS[name](Random(f"{name}/{VERSION}/{number}"), VERSION)
        found.setdefault(task.id, task)
        if len(found) == wanted:
            return tuple(found.values())
    raise AssertionError(f"the pool {name} has only {len(found)} different tasks")
