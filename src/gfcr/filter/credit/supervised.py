"""Credit by cross-entropy: rejection sampling and advantage-weighted regression.

Invariants: no advantages, so nothing pushes an answer down; an answer whose own tokens another one of its group repeats counts
once where `dedupe` is on; a member without weight leaves the loss (NO_LOSS) instead of standing in it with weight 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from gfcr.context import Build
from gfcr.filter.admission import REWARD_TOLERANCE
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Credit, Group, LossRole, Member, Role


def own_ids(member: Member) -> bytes:
    """The policy's own trained tokens as bytes, equal for equal answers."""
    return b"|".join(n.segment.ids.tobytes() for n in member.rollout.trained_path if n.segment.role is LossRole.RL)


def distinct(members: Sequence[Member]) -> list[Member]:
    """The first of those that say the same."""
    return list({own_ids(m): m for m in reversed(members)}.values())[::-1]


def reward_of(member: Member) -> float:
    """The reward credit reads; members of the baseline have one."""
    reward = member.signals.credit_reward
    assert reward is not None
    return reward


@method(
    "rejection",
    Slot.CREDIT,
    title="Rejection-sampling fine-tuning (RFT), RAFT",
    arxiv="2308.01825",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=("yields: cross-entropy", "handles: uneven groups"),
)
class Rejection:
    """Cross-entropy weight 1 on right answers, 0 on the others (RFT, arXiv:2308.01825); with `keep = "best"` on the best
    answer of each group (RAFT, arXiv:2304.06767). Pair it with loss.kind = "sft"."""

    class Settings(FrozenModel):
        keep: Literal["right", "best"] = "right"
        """`right`: every right answer. `best`: the one with the highest reward, the first of equals."""
        threshold: float | None = None
        """Lowest reward that is right; None = the verifier's word on correctness. For graded rewards."""
        dedupe: bool = True
        """Answers with the same tokens count once (RFT keeps distinct reasoning paths)."""
        cap: int | None = Field(4, ge=1)
        """Answers kept per group at most, the first ones (4 to 10 are usual); None = all."""
        of: Literal["all", "demonstrations"] = "all"
        """`demonstrations`: answers that were given, not sampled, alone (supervised fine-tuning on solutions)."""
        balance: bool = False
        """Weights of a group sum to 1, so that easy tasks, with many right answers, do not dominate."""

        def traits(self) -> frozenset[str]:
            return frozenset({"ignores shaped reward"} if self.threshold is None and self.keep == "right" else ())

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, group: Group, members: Sequence[Member]) -> dict[str, Credit | None]:
        s = self.settings
        given = [m for m in members if m.role is Role.DEMO] if s.of == "demonstrations" else members
        kept = [m for m in given if m.in_loss and self._right(m)]
        if s.keep == "best" and kept:
            kept = [max(kept, key=reward_of)]
        kept = (distinct(kept) if s.dedupe else kept)[: s.cap]
        weight = 1.0 / len(kept) if s.balance and kept else 1.0
        out: dict[str, Credit | None] = {m.rollout.id: None for m in members}
        return out | {m.rollout.id: Credit(None, ce_weight=weight) for m in kept}

    def _right(self, member: Member) -> bool:
        if self.settings.threshold is None:
            return self.settings.keep == "best" or member.signals.correct is True
        return reward_of(member) >= self.settings.threshold - REWARD_TOLERANCE


@method(
    "awr",
    Slot.CREDIT,
    title="Advantage-weighted regression",
    arxiv="1910.00177",
    criterion="reliability",
    faithfulness=Faithfulness.PARTLY,
    traits=("yields: cross-entropy", "needs: group baseline", "handles: uneven groups"),
)
class AdvantageWeighted:
    """Cross-entropy weight min(exp((r - mean) / beta), most) on every answer (AWR, arXiv:1910.00177 eq. 11, with the group's
    mean as baseline where the paper has a value function). Pair it with loss.kind = "sft"."""

    class Settings(FrozenModel):
        beta: float = Field(1.0, gt=0)
        """Temperature of the weights; the paper's value depends on the task, so this is our choice."""
        most: float = Field(20.0, gt=0)
        """Largest weight (the paper's omega_max = 20)."""

    def __init__(self, settings: Settings, build: Build) -> None:
        self.settings = settings

    def credit(self, group: Group, members: Sequence[Member]) -> dict[str, Credit]:
        mean = math.fsum(map(reward_of, members)) / max(len(members), 1)
        top = math.log(self.settings.most)
        return {
            m.rollout.id: Credit(None, ce_weight=math.exp(min((reward_of(m) - mean) / self.settings.beta, top)))
            for m in members
        }
