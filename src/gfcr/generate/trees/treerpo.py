"""TreeRPO's sampling (arXiv:2506.05183): an N-ary tree of steps. Invariants: every step that goes on has all its children; a path that
reaches the last step without an end is cut there, and judged as cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field, model_validator

from gfcr.context import Build, Configuration, View
from gfcr.generate.growth import Sample
from gfcr.generate.trees.plan import Grove, Plan
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group, Path, StopReason

MOST_LEAVES = 4096
"""Of one tree."""


class TreeRPOSettings(FrozenModel):
    children: int = Field(8, ge=1)
    """N: continuations of every step. UNCONFIRMED."""
    depth: int = Field(3, ge=1)
    """D: steps of one answer at most. UNCONFIRMED."""
    step: int = Field(384, ge=1)
    """L_step: tokens of a step. UNCONFIRMED."""

    @model_validator(mode="after")
    def _bounded(self) -> TreeRPOSettings:
        if self.k > MOST_LEAVES:
            raise ValueError(
                f"children = {self.children} and depth = {self.depth} make {self.k} leaves; at most {MOST_LEAVES} are grown"
            )
        return self

    @property
    def k(self) -> int:
        """Leaves planned: N^D, reached where no path ends before the last step."""
        return int(self.children**self.depth)

    def worst_tokens(self, max_tokens: int) -> int:
        """Most tokens a group generates: N^d steps at each depth d."""
        steps = (min(self.step, max(max_tokens - d * self.step, 0)) for d in range(self.depth))
        return sum(int(self.children ** (d + 1)) * step for d, step in enumerate(steps))


@method(
    "treerpo",
    Slot.TOPOLOGY,
    title="TreeRPO",
    arxiv="2506.05183",
    criterion="coverage",
    faithfulness=Faithfulness.PARTLY,
    traits=("breaks: iid group", "shares prefixes", "grows in pieces", "fixed shape"),
)
class TreeRPOTopology:
    """N continuations of at most L_step tokens after every step, D steps deep (TreeRPO, arXiv:2506.05183; constants UNCONFIRMED)."""

    Settings = TreeRPOSettings

    def __init__(self, settings: TreeRPOSettings, build: Build) -> None:
        self.settings = settings

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Grove:
        return _Growing(Plan.by_shape(group, bases, how, view, self.settings.k), self.settings)


class _Growing(Grove):
    def __init__(self, plan: Plan, settings: TreeRPOSettings) -> None:
        super().__init__(plan)
        self.settings = settings
        self.live: list[str] = []
        """Shoots asked for in the last round."""

    def sprout(self) -> Iterator[Sample]:
        s = self.settings
        came, self.live = [self.shoots[name] for name in self.live if name in self.shoots], []
        for tree in range(len(self.plan.roots)) if self.rounds == 1 else ():
            for _ in range(s.children):
                self.live.append(f"1.{len(self.live)}")
                yield self.shoot(self.live[-1], tree, limit=s.step)
        for shoot in came:
            if shoot.stop is not StopReason.MAX_TOKENS:
                self.finish(shoot)
            elif self.rounds > s.depth or self.room(shoot.tree, shoot.end) < 1:
                self.finish(shoot, StopReason.MAX_TOKENS)
            else:
                for _ in range(s.children):
                    self.live.append(f"{self.rounds}.{len(self.live)}")
                    yield self.shoot(self.live[-1], shoot.tree, shoot, limit=s.step)
