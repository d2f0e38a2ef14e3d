"""Optimal integer allocation of a round's rollouts under a total budget.

Invariant: the objective must be concave in the number of rollouts from the floor on; P(a group has both outcomes) is, from
1 rollout on (not from 0), so the floor is at least 2 and the greedy solution is exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from gfcr.context import Build, View
from gfcr.control.slots import Allocation
from gfcr.errors import ConfigError
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method
from gfcr.types import Group


def informative_marginals(a: np.ndarray, b: np.ndarray, up_to: int) -> np.ndarray:
    """float64[n, up_to]: gain in E[P(informative group)] of the (j+1)-th rollout, theta ~ Beta(a, b); column j = from j to j+1.

    E[theta^j] = prod_{i<j} (a+i)/(a+b+i), likewise for failures; with f(n) = 1 - E[theta^n] - E[(1-theta)^n] for n >= 1.
    """
    steps = np.arange(up_to)
    right = np.cumprod((a[:, None] + steps) / ((a + b)[:, None] + steps), axis=1)
    wrong = np.cumprod((b[:, None] + steps) / ((a + b)[:, None] + steps), axis=1)
    value = np.concatenate([np.zeros((len(a), 1)), 1.0 - right - wrong], axis=1)
    return np.diff(value, axis=1)


def allocate_greedy(marginals: np.ndarray, total: int, floor: int, cap: int) -> np.ndarray:
    """int64[n]: exact maximiser of the summed gains with `floor` <= N_i <= `cap` and sum N_i <= total, for concave gains.

    `marginals`: float64[n, >= cap]. Ties go to the lower index. Raises ValueError when the floors alone exceed the total.
    """
    n = len(marginals)
    if n * floor > total:
        raise ValueError(f"{n} groups of at least {floor} rollouts exceed the total of {total}")
    counts = np.full(n, floor, np.int64)
    heap = [(-marginals[i, floor], i) for i in range(n) if floor < cap]
    heapq.heapify(heap)
    for _ in range(total - n * floor):
        if not heap:
            break
        _, i = heapq.heappop(heap)
        counts[i] += 1
        if counts[i] < cap:
            heapq.heappush(heap, (-marginals[i, counts[i]], i))
    return counts


@method(
    "greedy",
    Slot.ALLOCATE,
    title="exact greedy allocation",
    criterion="cost",
    faithfulness=Faithfulness.OURS,
    traits=("assumes: binary correctness", "uneven groups", "counts independent answers"),
)
class GreedyAllocation:
    """The round's K * groups rollouts go where the posterior expects the most informative groups."""

    class Settings(FrozenModel):
        floor: int = 2
        """Fewest rollouts of a group."""
        cap: int = 32
        """Most rollouts of a group."""

    def __init__(self, settings: Settings, build: Build) -> None:
        if settings.floor < 2:
            raise ConfigError(
                f"control.allocate 'greedy': floor = {settings.floor}; the objective is not concave below 2 rollouts",
                "set floor to 2 or more; leaving tasks out is the selector's decision",
            )
        if settings.floor > build.k or settings.cap < build.k:
            raise ConfigError(
                f"control.allocate 'greedy': K = {build.k} lies outside floor {settings.floor} .. cap {settings.cap}",
                "choose floor <= K <= cap",
            )
        self.settings, self.k = settings, build.k

    def allocate(self, groups: Sequence[Group], view: View) -> dict[str, Allocation]:
        new = [g for g in groups if g.stage == 0]
        out = {g.id: Allocation(0, "planned") for g in groups if g.stage > 0}
        if new:
            a, b = view.difficulty.beta([g.task.id for g in new])
            gains = informative_marginals(a, b, self.settings.cap + 1)
            counts = allocate_greedy(gains, self.k * len(new), self.settings.floor, self.settings.cap)
            out.update((g.id, Allocation(int(n), f"posterior mean {m:.2f}")) for g, n, m in zip(new, counts, a / (a + b)))
        return out
