"""Where every token went. Invariants: `generated` equals the engine's own count of sampled tokens; every generated token is
either trained on, discarded under exactly one reason, or waits in a parked group; each is booked once, in the round it was generated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from gfcr.filter.judging import Judging
from gfcr.types import COST_FIELDS, Cost, Drop, Group, GroupState, LossRole, Member, Segment, SegmentKind

NOTHING = Cost()


@dataclass(slots=True)
class Ledger:
    """Cumulative compute of a run."""

    total: Cost = Cost()
    discarded: Counter[str] = field(default_factory=Counter)
    """Generated tokens that reached no loss, by drop reason."""
    parked: int = 0
    """Generated tokens of groups that wait for a later round."""
    stops: Counter[str] = field(default_factory=Counter)
    """Fresh rollouts by stop reason."""
    lost_steps: Counter[str] = field(default_factory=Counter)
    """Of `total.env_steps`: those of rollouts that reached no loss, by drop reason, and of what failed, by failure."""
    drops: Counter[str] = field(default_factory=Counter)
    """Members by drop reason."""
    decisions: Counter[str] = field(default_factory=Counter)
    """Decisions as `slot:action`."""
    judging: Judging = field(default_factory=Judging)
    """What verification cost, by verifier, and how often the cheap ones are wrong; the cascade writes it."""

    def add(self, cost: Cost) -> None:
        self.total = self.total + cost

    def settle_round(
        self,
        groups: list[Group],
        failed: dict[str, int],
        failed_context: Cost = NOTHING,
        booked: Mapping[str, Cost] = MappingProxyType({}),
        failed_steps: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Book a finished round: its fresh members' generation, what of it was discarded, and what failed requests cost:
        generated tokens by reason; context tokens, environment steps and tool seconds. `booked`: what earlier rounds booked of
        rollouts that waited, by id; `failed_steps`: environment steps of what failed, by reason."""
        sums = Counter[str]()
        seconds = 0.0
        wasted = Counter[str]()
        for group in groups:
            trained = _trained_nodes(group)
            seen: set[str] = set()
            waits = group.state is GroupState.PARKED
            for member in group.members.values():
                if member.drop is not None and not waits:
                    self.drops[member.drop] += 1
                if not member.sampled:
                    continue
                cost, before = member.rollout.cost, booked.get(member.rollout.id, NOTHING)
                sums["generated"] += cost.generated - before.generated
                sums["prefilled"] += cost.prefilled - before.prefilled
                sums["cached"] += cost.cached - before.cached
                sums["env_steps"] += (steps := cost.env_steps - before.env_steps)
                seconds += cost.tool_seconds - before.tool_seconds
                judged = cost.judged + sum(verdict.tokens for verdict in member.signals.verdicts.values())
                sums["judged"] += judged - before.judged
                self.parked -= before.generated
                if waits:
                    self.parked += cost.generated
                    continue
                self.stops[member.rollout.stop] += 1
                if steps and not _reached(group, member):
                    self.lost_steps[member.drop or group.state] += steps
                own = [node for node in member.rollout.path if node.id not in seen]
                seen.update(node.id for node in own)
                if _reached(group, member) and before is not NOTHING:
                    wasted[Drop.STALE] += sum(len(node.segment) for node in own if _masked(node.segment))
                elif not _reached(group, member) and cost.generated:
                    # what it shares with a member in the loss was trained on
                    kept = sum(len(node.segment) for node in own if node.id in trained)
                    if kept < cost.generated:
                        wasted[member.drop or group.state] += cost.generated - kept
        for reason, tokens in failed.items():
            sums["generated"] += tokens
            wasted[reason or Drop.FAILED] += tokens
        self.discarded.update(wasted)
        self.lost_steps.update({reason: steps for reason, steps in failed_steps.items() if steps})
        self.add(Cost(**sums, discarded=wasted.total(), tool_seconds=seconds) + failed_context)

    def state_dict(self) -> dict[str, Any]:
        return {
            "total": asdict(self.total),
            "discarded": dict(self.discarded),
            "parked": self.parked,
            "lost_steps": dict(self.lost_steps),
            "stops": dict(self.stops),
            "drops": dict(self.drops),
            "decisions": dict(self.decisions),
            "judging": self.judging.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = Cost(**{name: state["total"].get(name, 0) for name in COST_FIELDS})
        self.parked = int(state.get("parked", 0))
        self.lost_steps = Counter(state.get("lost_steps", {}))
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


def _masked(segment: Segment) -> bool:
    """Sampled, and out of the loss because its weights are too old (generate.partial.train)."""
    return segment.kind is SegmentKind.ACTION and segment.role is LossRole.NONE
