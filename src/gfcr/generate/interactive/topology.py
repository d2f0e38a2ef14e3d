"""Rollouts of several turns as a topology (StarPO/RAGEN, arXiv:2504.20073). Invariant: what an episode does depends on its own outcomes
alone, so neither its siblings nor the order in which things end changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gfcr.context import Build, Configuration, View
from gfcr.environments.contract import Said
from gfcr.errors import ConfigError
from gfcr.generate.dialogue import Dialogue
from gfcr.generate.growth import Copied, Outcome, Want
from gfcr.generate.interactive.episode import Episode
from gfcr.generate.interactive.plan import Plan
from gfcr.generate.interactive.settings import InteractiveSettings
from gfcr.registry import Faithfulness, Slot, method
from gfcr.run.seeds import stream_key
from gfcr.types import Group, Path


@dataclass
class Episodes(Copied):
    """The rollouts of one allocation."""

    episodes: dict[str, Episode]

    def start(self) -> list[Want]:
        return [want for episode in self.episodes.values() for want in episode.start()]

    def tell(self, outcome: Outcome) -> Sequence[Want]:
        return self.episodes[outcome.name.partition(".")[0]].tell(outcome)


@method(
    "interactive",
    Slot.TOPOLOGY,
    title="multi-turn rollouts with an environment",
    arxiv="2504.20073",
    criterion="coverage",
    faithfulness=Faithfulness.CONFIRMED,
    traits=("iid group", "interactive", "needs: environment"),
)
class Interactive:
    """K rollouts per prompt, each in turns with an environment of its own (`generate.environment`), from equal initial states."""

    class Settings(InteractiveSettings):
        pass

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings, self.build = settings, build
        self.agents = {agent.name: agent for agent in settings.agents}
        if len(self.agents) < len(settings.agents):
            raise ConfigError(
                f"generate.topology: two agents have one name: {', '.join(a.name for a in settings.agents)}",
                "give each a name of its own",
            )
        if self.agents and not any(agent.trained for agent in settings.agents):
            raise ConfigError(
                "generate.topology: none of its agents is trained, so nothing would be learnt",
                "set trained = true for one of them",
            )

    def grow(self, group: Group, bases: Sequence[Path], how: Configuration, view: View) -> Episodes:
        plan = self.plan(group, how, view)
        return Episodes({str(i): Episode(plan, i, base) for i, base in enumerate(bases)})

    def plan(self, group: Group, how: Configuration, view: View, held: bool = False) -> Plan:
        """What the group's episodes have in common."""
        dialogue, own = self.build.dialogue, self.settings.initial == "rollout"
        if dialogue is None:
            raise ConfigError("turns need a tokenizer, and none was given", "build the topology with a renderer")

        def seed(index: int) -> int:
            names = (group.id, group.stage, index) if own else (group.id,)
            return stream_key(view.seed, "environment", *names) >> 1  # 63 bits: it fits a signed integer

        return Plan(
            self.settings,
            group.task,
            how,
            f"{group.id}.{group.stage}",
            seed,
            dialogue,
            self.build.drift or _unwatched,
            self.build.read or Said,
            self.build.again,
            self.build.max_context,
            self.agents,
            frozenset(name for name, agent in self.agents.items() if not agent.trained),
            held,
        )


def _unwatched(index: int, dialogue: Dialogue) -> str:
    return ""
