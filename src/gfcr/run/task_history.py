"""What a run did with each task: its groups, outcomes, posterior and tokens, read from committed steps.

Invariants: one pass over the rows, no arrays read; the posterior is the run's own, replayed from the outcomes it learnt from (the
last one equals the committed state); outcomes are those of fresh answers; what nobody judged counts neither as right nor as wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Any

from gfcr.control.posterior import PosteriorTable
from gfcr.recipe import parse
from gfcr.run import decode
from gfcr.run.reading import Reader
from gfcr.types import GroupState, Role, Status, Task

EASY, HARD = 0.8, 0.2
"""Bounds of the posterior mean: from EASY on a task is easy, up to HARD it is hard."""
TRAINED = "trained on"
_FRESH = frozenset({str(Role.FRESH), str(Role.RESUMED)})


class Kind(StrEnum):
    """Where a task stands at the end."""

    EASY = "easy"
    BOUNDARY = "boundary"
    """Neither: right and wrong answers are both likely, so its groups teach."""
    HARD = "hard"
    """Solved at least once, and rarely."""
    UNSOLVED = "unsolved"
    """Judged, and never solved."""
    UNJUDGED = "not judged"
    """Met, and no answer could be judged."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One fresh answer."""

    rollout: str
    step: int
    """The step its group was committed with."""
    status: Status
    correct: bool | None
    reward: float | None
    progress: float | None
    """Mean of its step scores; None without any."""
    evidence: str
    tokens: int
    """Generated."""
    fate: str
    """`trained on`, or the reason why it reached no loss."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One group of a task."""

    step: int
    round: int
    group: str
    state: GroupState
    reason: str
    """Why it is in that state."""
    planned: int
    stages: int
    attempts: tuple[Attempt, ...]
    injected: int
    """Answers from replay beside the fresh ones."""
    before: float
    """Posterior mean before the round."""
    after: float
    """Posterior mean after it."""

    def count(self, status: Status) -> int:
        return sum(a.status is status for a in self.attempts)

    @property
    def right(self) -> int:
        return sum(a.correct is True for a in self.attempts)

    @property
    def wrong(self) -> int:
        return sum(a.correct is False for a in self.attempts)


@dataclass(slots=True)
class TaskHistory:
    """One task over the whole run."""

    task: Task
    visits: list[Visit] = field(default_factory=list)
    mean: float = 0.5
    """Posterior mean at the end."""

    def attempts(self) -> Iterator[Attempt]:
        return (attempt for visit in self.visits for attempt in visit.attempts)

    @property
    def right(self) -> int:
        return sum(visit.right for visit in self.visits)

    @property
    def wrong(self) -> int:
        return sum(visit.wrong for visit in self.visits)

    def count(self, status: Status) -> int:
        return sum(visit.count(status) for visit in self.visits)

    @property
    def kind(self) -> Kind:
        if not self.right and not self.wrong:
            return Kind.UNJUDGED
        if not self.right:
            return Kind.UNSOLVED
        return Kind.EASY if self.mean >= EASY else Kind.HARD if self.mean <= HARD else Kind.BOUNDARY

    def tokens(self) -> dict[str, int]:
        """Generated tokens by fate, `trained on` first; failed requests are in no member and not among them."""
        found = Counter[str]()
        for attempt in self.attempts():
            found[attempt.fate] += attempt.tokens
        return {name: found[name] for name in sorted(found, key=lambda name: (name != TRAINED, -found[name]))}

    def best_failed(self) -> Attempt | None:
        """The wrong answer that came nearest: highest reward, then best step scores, then the latest; None without one."""
        wrong = [attempt for attempt in self.attempts() if attempt.correct is False]
        return max(wrong, key=lambda a: (a.reward or 0.0, -1.0 if a.progress is None else a.progress, a.step), default=None)


@dataclass(frozen=True, slots=True)
class History:
    """A run, task by task."""

    tasks: Mapping[str, TaskHistory]
    """By id, in the order first met."""
    known: int | None
    """Tasks of the task set, met or not; None for a run that did not record it."""
    verdicts: Mapping[tuple[str, str], int]
    """(gate or verifier, `right`, `wrong`, `scored`, `invalid` or `unscorable`) -> fresh answers."""
    credits: Mapping[str, int]
    """`positive`, `negative`, `zero`, `per token` -> members with credit."""

    def kinds(self) -> dict[Kind, int]:
        found = Counter(task.kind for task in self.tasks.values())
        return {kind: found[kind] for kind in Kind}


_QUERY = "SELECT step, key, id, task_id, round, state, planned, stage, body FROM groups ORDER BY step, key"


def read_history(run: Reader) -> History:
    """The run's history, in one pass over its rows."""
    tasks = {task.id: task for task in run.tasks()}
    table = PosteriorTable(list(tasks.values()), parse(run.recipe["recipe"], str(run.path)).control.posterior)
    found = {task_id: TaskHistory(task) for task_id, task in tasks.items()}
    verdicts, credits = Counter[tuple[str, str]](), Counter[str]()
    last: dict[str, int] = dict(run.db.execute("SELECT id, max(step) FROM groups GROUP BY id"))
    waited: dict[tuple[int, int], decode.StoredRollout] = {}
    """Rollouts of groups that were parked: the row of their last round refers to them."""
    for step, rows in groupby(run.db.execute(_QUERY), key=lambda row: row[0]):
        visits = [(row, decode.body(row[8])) for row in rows]
        ids = [row[3] for row, _ in visits]
        before = _means(table, ids)
        stored = waited | {(step, r.key): r for _, parts in visits for r in parts.rollouts}
        waited |= {(step, r.key): r for row, parts in visits if row[5] == GroupState.PARKED for r in parts.rollouts}
        # answers of a group that goes on later count there, once
        visits = [(row, parts._replace(members=[]) if last[row[2]] > step else parts) for row, parts in visits]
        made = [_visit(row, parts, stored, mean, verdicts, credits) for (row, parts), mean in zip(visits, before, strict=True)]
        closed = [(i, v.right, v.wrong) for i, v in zip(ids, made, strict=True) if v.state is GroupState.CLOSED]
        table.observe_outcomes(closed)
        for task_id, visit, mean in zip(ids, made, _means(table, ids), strict=True):
            found[task_id].visits.append(replace(visit, after=mean))
    for task_id, mean in zip(found, _means(table, list(found)), strict=True):
        found[task_id].mean = mean
    return History(found, (run.recipe.get("tasks") or {}).get("count"), verdicts, credits)


def _means(table: PosteriorTable, ids: list[str]) -> list[float]:
    a, b = table.beta(ids)
    return [float(x) for x in a / (a + b)]


def _visit(
    row: Any,
    parts: decode.Body,
    stored: Mapping[tuple[int, int], decode.StoredRollout],
    mean: float,
    verdicts: Counter[tuple[str, str]],
    credits: Counter[str],
) -> Visit:
    """`stored`: the step's rollouts by (step, key)."""
    step, _, group, _, round_, state, planned, stages, _ = row
    attempts, injected = [], 0
    for found in parts.members:
        _, role, _, _, _, dropped, _, correct, signals, credit, *_ = found
        if credit is not None and dropped is None:
            advantage = credit[0]
            sign = (
                "per token"
                if advantage is None or isinstance(advantage, list)
                else "positive"
                if advantage > 0
                else "negative"
                if advantage < 0
                else "zero"
            )
            credits[sign] += 1
        if role not in _FRESH:
            injected += 1
            continue
        said, primary, reward, steps = signals[0], signals[1], signals[3], signals[5]
        for name, verdict in said.items():
            status, right = verdict[2], verdict[4]
            word = status if status != Status.SCORED or right is None else "right" if right else "wrong"
            verdicts[name, word] += 1
        main = said.get(primary) if primary else None
        values = [s[3] for s in steps if s[3] is not None]
        reached = state == GroupState.CLOSED and credit is not None and dropped is None
        rollout = stored[decode.member_at(found, step)]
        attempts.append(
            Attempt(
                rollout.id,
                step,
                Status(main[2]) if main else Status.UNSCORABLE,
                correct,
                reward,
                sum(values) / len(values) if values else None,
                main[5] if main else "",
                int(rollout.cost[0]),
                TRAINED if reached else (dropped or state).replace("_", " "),
            )
        )
    return Visit(step, round_, group, GroupState(state), parts.reason, planned, stages, tuple(attempts), injected, mean, mean)
