"""Generate's slots."""

from __future__ import annotations

from collections.abc import Sequence
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


class Seeder(Protocol):
    """Guidance, prefixes and drafts that condition generation. May have `more(group, view) -> Allocation`: rollouts for a group that
    the allocator would close, because guidance may help it (n = 0: none)."""

    def seed(self, group: Group, n: int, view: View) -> Sequence[Seed | None]:
        """What conditions each of the n rollouts of the stage to come (None = nothing); `group` has those before it, judged."""
