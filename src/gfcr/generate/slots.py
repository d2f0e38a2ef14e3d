"""Generate's slots."""

from __future__ import annotations

from typing import Protocol

from gfcr.context import Seed, Stream, View
from gfcr.types import Group, Path, Sampling


class Topology(Protocol):
    """How an allocation of n rollouts becomes streams."""

    def streams(self, group: Group, n: int, base: Path, sampling: Sampling, max_tokens: int, view: View) -> list[Stream]:
        """n streams from `base` (prompt and guidance)."""


class Seeder(Protocol):
    """Guidance, prefixes and drafts that condition a group's generation."""

    def seed(self, group: Group, view: View) -> Seed | None: ...
