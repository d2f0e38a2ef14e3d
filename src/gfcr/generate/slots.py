"""Generate's slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from gfcr.context import Configuration, Seed, Stream, View
from gfcr.generate.growth import Growth
from gfcr.types import Group, Path


class Topology(Protocol):
    """Rollouts that know nothing of each other, one request each."""

    def streams(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> list[Stream]:
        """One stream per base (prompt and guidance)."""


@runtime_checkable
class GrowingTopology(Protocol):
    """Rollouts whose next request depends on what came of the last: trees, turns, second attempts. Its settings have `k`, the
    leaves a group plans, and may have `worst_tokens(max_tokens)`, the most tokens a group may generate."""

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Growth:
        """`bases`: prompt and guidance of each of the rollouts that were allocated."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What guidance makes of a closed group's members."""

    replaced: frozenset[str] = frozenset()
    """Rollout ids that leave the baseline and the loss, because guided ones took their place."""
    cohorts: Mapping[str, str] = field(default_factory=dict)
    """Rollout id -> the cohort it is normalised in; the others keep theirs."""
    reason: str = ""


class Seeder(Protocol):
    """Guidance, prefixes and drafts that condition generation.

    May also have, all of them or none of `more` and `guide`:
    `more(group, view) -> Allocation`: rollouts for a group that the allocator would close, because guidance may help it (n = 0: none);
    `guide(group, n, view) -> Sequence[Seed | None]`: what conditions each of those;
    `settle(group, view) -> Settled | None`: what the guided ones are to the others, once the group is closed;
    `observe(closed, view)`: every completed group of the round, before that; and state_dict, load_state_dict for what it learns."""

    def seed(self, group: Group, n: int, view: View) -> Sequence[Seed | None]:
        """What conditions each of the n rollouts of the stage to come (None = nothing); `group` has those before it, judged."""
