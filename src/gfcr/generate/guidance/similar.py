"""Which tasks are like another one: cosine of TF-IDF over hashed character n-grams of their questions.

Invariants: no model and no randomness, so a resume finds the same neighbours; equal questions (spelling, spaces and case apart) are never
neighbours; ties go to the task that came first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from zlib import crc32

import numpy as np

from gfcr.generate.guidance.leaks import question_of
from gfcr.types import Task

DIMENSIONS = 1 << 15
MOST_COUNTED = 20_000
"""Tasks whose questions say how rare an n-gram is; beyond them the estimate changes little."""
Vector = tuple[np.ndarray, np.ndarray]
"""(int64[n] dimensions, ascending; float64[n] values of Euclidean length 1)."""


def normal(text: str) -> str:
    """A text without case, spaces and punctuation at its ends: what makes two questions the same."""
    return re.sub(r"\s+", " ", text).strip(" .?!:").casefold()


class Similar:
    """Questions of a task set."""

    def __init__(self, tasks: Sequence[Task], n: tuple[int, int] = (3, 5)) -> None:
        """`n`: shortest and longest n-gram, in characters."""
        self.by_id = {task.id: task for task in tasks}
        self.n, self._known = n, dict[str, Vector]()
        counts = np.zeros(DIMENSIONS)
        some = list(tasks[:MOST_COUNTED])
        for task in some:
            counts[list(set(self._grams(question_of(task))))] += 1
        self._rarity = np.log((1 + len(some)) / (1 + counts)) + 1.0

    def _grams(self, text: str) -> Iterable[int]:
        text = f" {normal(text)} "
        for size in range(self.n[0], self.n[1] + 1):
            for start in range(len(text) - size + 1):
                yield crc32(text[start : start + size].encode()) % DIMENSIONS

    def vector(self, task: Task) -> Vector:
        found = self._known.get(task.id)
        if found is None:
            dims, counts = np.unique(np.fromiter(self._grams(question_of(task)), np.int64), return_counts=True)
            values = (1 + np.log(counts)) * self._rarity[dims]
            found = self._known[task.id] = dims, values / (np.sqrt((values**2).sum()) or 1.0)
        return found

    def nearest(self, task: Task, among: Iterable[str], k: int, least: float) -> list[tuple[Task, float]]:
        """The k tasks of these ids most like it, the nearest first, with their cosine (`least` or more). None of them asks the same
        question, and no two of them do."""
        query = np.zeros(DIMENSIONS)
        dims, values = self.vector(task)
        query[dims] = values
        found = []
        for place, name in enumerate(among):
            other = self.by_id.get(name)
            if other is None or other.id == task.id:
                continue
            at, weights = self.vector(other)
            found.append((-float(weights @ query[at]), place, other))
        taken, out = {normal(question_of(task))}, list[tuple[Task, float]]()
        for score, _, other in sorted(found, key=lambda f: f[:2]):
            if len(out) == k or -score < least:
                break
            if (question := normal(question_of(other))) not in taken:
                taken.add(question)
                out.append((other, -score))
        return out
