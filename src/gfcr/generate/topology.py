"""Linear and group topologies. Invariant: streams of a group are independent; each has its own stream key."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from gfcr.context import Build, Configuration, Stream, View
from gfcr.registry import Faithfulness, FrozenModel, Settings, Slot, method
from gfcr.types import Group, Path


class _Independent:
    """Independent streams."""

    def streams(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> list[Stream]:
        return [Stream(base, how.sampling, how.max_tokens, how.later) for base in bases]


@method(
    "group",
    Slot.TOPOLOGY,
    title="group rollout",
    arxiv="2402.03300",
    criterion="coverage",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("iid group",),
)
class GroupTopology(_Independent):
    """K independent answers per prompt."""

    class Settings(FrozenModel):
        k: int = Field(8, ge=1)
        """Answers per prompt (K, G)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings


@method(
    "linear",
    Slot.TOPOLOGY,
    title="linear rollout",
    criterion="coverage",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("group of one",),
)
class Linear(_Independent):
    """One answer per prompt; credit needs a baseline from elsewhere than the group."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings
