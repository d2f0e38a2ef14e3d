"""The run's one table of difficulty posteriors.

Invariants: updated once a round, from the correctness of fresh members of every completed group; forgetting decays the
observations of visited tasks toward the prior, never the prior itself; buckets share what their tasks showed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from gfcr.registry import FrozenModel
from gfcr.types import Group, Task


class PosteriorSettings(FrozenModel):
    strength: float = Field(2.0, gt=0)
    """Weight of a bucket's prior, in observations (`learning.md`: 2)."""
    forgetting: float = Field(0.7, ge=0, le=1)
    """What is kept of a task's earlier observations at each visit; 1 = all."""
    bucket: Literal["category", "prompt_length", "none", "flat"] = "category"
    """What tasks share a prior over: their category, the length of their prompt text, or one bucket for all (`none`). `flat`:
    nothing is shared and every prior has mean 1/2, e.g. Beta(1, 1) at strength 2."""


class PosteriorTable:
    """Per task: Beta(a, b) with a = strength * m + successes, b = strength * (1 - m) + failures, where m is the mean that
    the bucket's tasks show (empirical Bayes, one pseudo-observation of each kind), or 1/2 where no bucket shares."""

    def __init__(self, tasks: Sequence[Task], settings: PosteriorSettings) -> None:
        self.settings = settings
        self.ids = [t.id for t in tasks]
        self._index = {task_id: i for i, task_id in enumerate(self.ids)}
        labels = [_BUCKETS[settings.bucket](t) for t in tasks]
        self.buckets = sorted(set(labels))
        number = {label: i for i, label in enumerate(self.buckets)}
        self._bucket = np.array([number[label] for label in labels], np.int64)
        self._right = np.zeros(len(tasks))
        self._wrong = np.zeros(len(tasks))
        self._visits = np.zeros(len(tasks), np.int64)

    def bucket_mean(self) -> np.ndarray:
        """float64[buckets]: mean success the bucket's tasks show."""
        n = len(self.buckets)
        if self.settings.bucket == "flat":
            return np.full(n, 0.5)
        right = np.bincount(self._bucket, self._right, n)
        wrong = np.bincount(self._bucket, self._wrong, n)
        return (right + 1.0) / (right + wrong + 2.0)

    def beta(self, ids: Sequence[str] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(a, b), float64[n] each, of these tasks, or of all in table order. Raises KeyError for an unknown task."""
        at = slice(None) if ids is None else np.array([self._index[i] for i in ids], np.int64)
        mean = self.bucket_mean()[self._bucket[at]]
        s = self.settings.strength
        return s * mean + self._right[at], s * (1.0 - mean) + self._wrong[at]

    def observe(self, groups: Sequence[Group]) -> None:
        """Take a round's completed groups."""
        self.observe_outcomes([(group.task.id, *group.outcomes()) for group in groups])

    def observe_outcomes(self, outcomes: Iterable[tuple[str, int, int]]) -> None:
        """Take a round's (task id, right answers, wrong answers), one entry a group."""
        right, wrong = np.zeros_like(self._right), np.zeros_like(self._wrong)
        visited: set[int] = set()
        for task_id, r, w in outcomes:
            i = self._index.get(task_id)
            if i is None:
                continue
            if r + w:
                right[i] += r
                wrong[i] += w
                visited.add(i)
                self._visits[i] += 1
        at = sorted(visited)
        self._right[at] = self._right[at] * self.settings.forgetting + right[at]
        self._wrong[at] = self._wrong[at] * self.settings.forgetting + wrong[at]

    @property
    def visits(self) -> np.ndarray:
        """int64[n]: judged groups per task."""
        return self._visits

    def state_dict(self) -> dict[str, Any]:
        return {"right": self._right.copy(), "wrong": self._wrong.copy(), "visits": self._visits.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if len(state["right"]) != len(self._right):
            raise ValueError(f"posterior of {len(state['right'])} tasks does not fit a task set of {len(self._right)}")
        self._right, self._wrong = np.array(state["right"], np.float64), np.array(state["wrong"], np.float64)
        self._visits = np.array(state["visits"], np.int64)


_BUCKETS: dict[str, Callable[[Task], str]] = {
    "category": lambda t: t.category,
    "prompt_length": lambda t: str(
        len(t.prompt) if isinstance(t.prompt, str) else sum(len(p.text or "") for m in t.prompt for p in m.parts)
    ),
    "none": lambda t: "",
    "flat": lambda t: "",
}
