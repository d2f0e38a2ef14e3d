"""Where every token went. Invariants: `generated` equals the engine's own count of sampled tokens; every generated token is
either trained on or discarded under exactly one reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gfcr.filter.judging import Judging
from gfcr.types import COST_FIELDS, Cost, Drop, Group, GroupState, Member, SegmentKind

NOTHING = Cost()


@dataclass(slots=True)
class Ledger:
    """Cumulative compute of a run."""

    total: Cost = Cost()
    discarded: Counter[str] = field(default_factory=Counter)
    """Generated tokens that reached no loss, by drop reason."""
    stops: Counter[str] = field(default_factory=Counter)
    """Fresh rollouts by stop reason."""
    drops: Counter[str] = field(default_factory=Counter)
    """Members by drop reason."""
    decisions: Counter[str] = field(default_factory=Counter)
    """Decisions as `slot:action`."""
    judging: Judging = field(default_factory=Judging)
    """What verification cost, by verifier, and how often the cheap ones are wrong; the cascade writes it."""

    def add(self, cost: Cost) -> None:
        self.total = self.total + cost

    def settle_round(self, groups: list[Group], failed: dict[str, int], failed_context: Cost = NOTHING) -> None:
        """Book a finished round: its fresh members' generation, what of it was discarded, and what failed requests cost:
        generated tokens by reason, context tokens."""
        sums = Counter[str]()
        wasted = Counter[str]()
        for group in groups:
            trained = _trained_nodes(group)
            booked: set[str] = set()
            for member in group.members.values():
                if member.drop is not None:
                    self.drops[member.drop] += 1
                if not member.sampled:
                    continue
                cost = member.rollout.cost
                self.stops[member.rollout.stop] += 1
                sums["generated"] += cost.generated
                sums["prefilled"] += cost.prefilled
                sums["cached"] += cost.cached
                sums["env_steps"] += cost.env_steps
                sums["judged"] += cost.judged + sum(verdict.tokens for verdict in member.signals.verdicts.values())
                own = [node for node in member.rollout.path if node.id not in booked]
                booked.update(node.id for node in own)
                if not _reached(group, member) and cost.generated:
                    # what it shares with a member in the loss was trained on
                    kept = sum(len(node.segment) for node in own if node.id in trained)
                    if kept < cost.generated:
                        wasted[member.drop or group.state] += cost.generated - kept
        for reason, tokens in failed.items():
            sums["generated"] += tokens
            wasted[reason or Drop.FAILED] += tokens
        self.discarded.update(wasted)
        self.add(Cost(**sums, discarded=wasted.total()) + failed_context)

    def state_dict(self) -> dict[str, Any]:
        return {
            "total": asdict(self.total),
            "discarded": dict(self.discarded),
            "stops": dict(self.stops),
            "drops": dict(self.drops),
            "decisions": dict(self.decisions),
            "judging": self.judging.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = Cost(**{name: state["total"].get(name, 0) for name in COST_FIELDS})
        self.discarded, self.stops = Counter(state["discarded"]), Counter(state["stops"])
        self.drops, self.decisions = Counter(state["drops"]), Counter(state["decisions"])
        self.judging.load_state_dict(state.get("judging", {}))

    def lose(self, tokens: Mapping[str, int]) -> int:
        """Book tokens that an engine sampled and no rollout has, by reason; returns how many."""
        n = sum(tokens.values())
        self.discarded.update(tokens)
        self.add(Cost(generated=n, discarded=n))
        return n


def _reached(group: Group, member: Member) -> bool:
    """Whether the member's tokens are in a loss."""
    return group.state is GroupState.CLOSED and member.credit is not None and member.drop is None


def _trained_nodes(group: Group) -> set[str]:
    """Sampled nodes on the paths of members that reached the loss."""
    return {
        node.id
        for member in group.members.values()
        if _reached(group, member)
        for node in member.rollout.path
        if node.segment.kind is SegmentKind.ACTION
    }
