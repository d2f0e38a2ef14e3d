"""Laws that differ between groups: by what the task is, and by how hard it seems."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from gfcr.context import Build, Configuration, View
from gfcr.control.configure.base import Change, altered, tokens_allowed, traits_of
from gfcr.errors import ConfigError
from gfcr.filter.semantic import cluster_entropy, clusters
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Group


@method(
    "by-category",
    Slot.CONFIGURE,
    title="law by the task's category",
    criterion="coverage",
    faithfulness=Faithfulness.OURS,
)
class ByCategory:
    """A law and a length per kind of task. Our design."""

    class Settings(FrozenModel):
        key: str = "category"
        """What tells the kind: the task's category, or the name of something in its `meta`."""
        laws: dict[str, Change] = Field(default_factory=dict)
        """By kind, as text; kinds that are not named stay as they were."""

        def traits(self) -> frozenset[str]:
            return frozenset().union(*[change.traits() for change in self.laws.values()])

    def __init__(self, settings: Settings, build: Build) -> None:
        self.key, self.laws = settings.key, settings.laws
        for change in self.laws.values():
            tokens_allowed("by-category", change.max_tokens or 1, build.max_tokens)
        known = {self._kind(task.category, task.meta) for task in build.tasks}
        if strangers := sorted(set(self.laws) - known):
            shown = ", ".join(sorted(k for k in known if k)[:8]) or "none"
            raise ConfigError(
                f"control.configure 'by-category': no task has {self.key} = {strangers[0]!r}", f"tasks have: {shown}"
            )

    def _kind(self, category: str, meta: object) -> str:
        found = category if self.key == "category" else meta.get(self.key, "") if isinstance(meta, dict) else ""
        return str(found)

    def edit(self, how: Configuration, group: Group, view: View) -> Configuration:
        change = self.laws.get(self._kind(group.task.category, group.task.meta))
        return how if change is None else change.of(how)


@method(
    "uncertain",
    Slot.CONFIGURE,
    title="temperature by difficulty or by false agreement",
    criterion="coverage",
    faithfulness=Faithfulness.OURS,
)
class Uncertain:
    """Hotter where the policy fails, and most where it fails in one voice. Our design, after the signals of G-18 (survey
    arXiv:2605.02913): T = low + (high - low) h with h = 1 - E[p] of the task's Beta posterior, or h = w (1 - S / ln n) of the n
    answers of the group's earlier stages, w the share of wrong ones among those judged, S their discrete semantic entropy
    (arXiv:2302.09664). A group without judged answers keeps its law (`answers` needs an allocator with stages)."""

    class Settings(FrozenModel):
        by: Literal["posterior", "answers"] = "posterior"
        """What is asked: the posterior of the task, or the answers of earlier stages."""
        low: float = Field(0.8, ge=0)
        """Temperature where h = 0."""
        high: float = Field(1.2, ge=0)
        """Temperature where h = 1."""

        def traits(self) -> frozenset[str]:
            stages = frozenset({"needs: stages"}) if self.by == "answers" else frozenset()
            return stages | traits_of({"temperature": self.low}) | traits_of({"temperature": self.high})

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def edit(self, how: Configuration, group: Group, view: View) -> Configuration:
        heat = self._posterior(group, view) if self.settings.by == "posterior" else self._answers(group)
        if heat is None:
            return how
        s = self.settings
        return altered(how, temperature=round(s.low + (s.high - s.low) * heat, 3))  # few laws: an engine keeps those it met

    @staticmethod
    def _posterior(group: Group, view: View) -> float | None:
        a, b = view.difficulty.beta([group.task.id])
        return float(b[0] / (a[0] + b[0]))

    @staticmethod
    def _answers(group: Group) -> float | None:
        judged = [m for m in group.fresh() if m.signals.correct is not None]
        if not judged:
            return None
        wrong = sum(not m.signals.correct for m in judged) / len(judged)
        spread = cluster_entropy(clusters(judged)) / math.log(len(judged)) if len(judged) > 1 else 0.0
        return wrong * (1.0 - spread)
