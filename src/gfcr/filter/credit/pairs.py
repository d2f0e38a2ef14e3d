"""Preference pairs from a group's rewards.

Invariants: a pair is (higher, lower) by more than `margin`, so ties never pair; pairs are made of members in the loss only and
name them by rollout id; a member in no pair leaves the loss (NO_LOSS); the choice is a function of the group alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from gfcr.context import Build
from gfcr.filter.admission import REWARD_TOLERANCE
from gfcr.filter.credit.supervised import distinct, reward_of
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Credit, Group, LossRole, Member, Preference


@method(
    "pairs",
    Slot.CREDIT,
    title="Preference pairs (DPO, IPO)",
    arxiv="2305.18290",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=("yields: pairs", "needs: two answers", "handles: uneven groups"),
)
class PreferencePairs:
    """Pairs of a group's better and worse answers for loss.kind = "dpo" (arXiv:2305.18290) or "ipo". Which of them to pair is
    in no paper; the rules and the cap are common practice."""

    class Settings(FrozenModel):
        rule: Literal["best-worst", "cross", "matched"] = "cross"
        """`best-worst`: the highest against the lowest reward, one pair a group. `cross`: the answers least used so far first,
        then the largest difference of rewards. `matched`: least used first, then the nearest lengths, so that length is not
        what tells chosen from rejected."""
        margin: float = Field(0.0, ge=0)
        """Rewards of a pair differ by more than this."""
        most: int = Field(4, ge=1)
        """Pairs a group yields at most; `best-worst` yields one."""
        nll: float = Field(0.0, ge=0)
        """Cross-entropy weight of chosen answers beside the preference loss, against a falling chosen probability (IRPO,
        arXiv:2404.19733)."""
        dedupe: bool = True
        """Answers with the same tokens count once."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, group: Group, members: Sequence[Member]) -> dict[str, Credit | None]:
        found = self.pairs([m for m in members if m.in_loss])
        group.preferences = [Preference(chosen.rollout.id, rejected.rollout.id) for chosen, rejected in found]
        out: dict[str, Credit | None] = {m.rollout.id: None for m in members}
        out |= {rejected.rollout.id: Credit(None) for _, rejected in found}
        return out | {chosen.rollout.id: Credit(None, ce_weight=self.settings.nll) for chosen, _ in found}

    def pairs(self, members: Sequence[Member]) -> list[tuple[Member, Member]]:
        """(chosen, rejected), in the order they were chosen."""
        s = self.settings
        members = [m for m in members if _length(m)]
        members = distinct(members) if s.dedupe else members
        open_ = [
            (a, b)
            for a in range(len(members))
            for b in range(len(members))
            if reward_of(members[a]) - reward_of(members[b]) > s.margin + REWARD_TOLERANCE
        ]
        uses: Counter[int] = Counter()

        def rank(pair: tuple[int, int]) -> tuple[float, ...]:
            a, b = members[pair[0]], members[pair[1]]
            gap = reward_of(a) - reward_of(b)
            if s.rule == "best-worst":
                return -gap, *pair
            apart = abs(_length(a) - _length(b)) if s.rule == "matched" else -gap
            return uses[pair[0]] + uses[pair[1]], apart, *pair

        out: list[tuple[Member, Member]] = []
        while open_ and len(out) < (1 if s.rule == "best-worst" else s.most):
            best = min(open_, key=rank)
            open_.remove(best)
            uses.update(best)
            out.append((members[best[0]], members[best[1]]))
        return out


def _length(member: Member) -> int:
    """Own tokens of the trained path."""
    return sum(len(n.segment) for n in member.rollout.trained_path if n.segment.role is LossRole.RL)
