"""Admission: which members enter the baseline and the loss.

Invariants: sets flags and reasons, deletes nothing; the zero-variance test reads unshaped rewards, so that a length
penalty cannot make an all-wrong group look informative; an unscorable member leaves both; a member outside the baseline
changes no other member's credit.
"""

from __future__ import annotations

from typing import Literal

from gfcr.registry import FrozenModel
from gfcr.types import Drop, Group, Member

REWARD_TOLERANCE = 1e-6
"""Rewards closer than this are one reward: float noise is no signal ([0.1]*3, [0.2]*8)."""


class AdmissionSettings(FrozenModel):
    invalid_reward: float = 0.0
    """Reward of an answer that a gate refused; 0 is the wrong answer's reward."""
    overlong: Literal["keep", "mask"] = "keep"
    """`keep`: a truncated answer counts as judged. `mask`: it leaves loss and baseline (overlong filtering,
    arXiv:2503.14476)."""
    drop_zero_variance: bool = True
    """Groups whose members all have one reward leave the batch, so they enter no denominator."""


def admit(group: Group, settings: AdmissionSettings) -> None:
    """Set in_baseline, in_loss and drop of every member."""
    for member in group.members.values():
        if member.drop is not None:
            member.in_baseline = member.in_loss = False
        elif member.signals.reward is None:
            leave(member, Drop.UNSCORABLE)
        elif settings.overlong == "mask" and member.rollout.stop.truncated and member.sampled:
            leave(member, Drop.OVERLONG)
        elif not member.in_loss:
            member.drop = Drop.NO_LOSS
    if settings.drop_zero_variance and not has_signal(group):
        drop_group(group, Drop.ZERO_VARIANCE)


def has_signal(group: Group) -> bool:
    """Whether the members in the baseline differ in unshaped reward."""
    rewards = [m.signals.reward for m in group.members.values() if m.in_baseline and m.signals.reward is not None]
    return len(rewards) > 1 and max(rewards) - min(rewards) > REWARD_TOLERANCE


def drop_group(group: Group, reason: Drop) -> None:
    """Take a whole group out of the loss."""
    for member in group.members.values():
        if member.drop is None:
            leave(member, reason)


def replace_member(member: Member) -> None:
    """An injected member takes this one's place."""
    leave(member, Drop.REPLACED)


def restore_member(member: Member) -> None:
    """The member that was to take this one's place fell out."""
    member.drop, member.in_baseline, member.in_loss = None, True, True


def leave(member: Member, reason: Drop) -> None:
    """Take a member out of baseline and loss."""
    member.drop, member.in_baseline, member.in_loss = reason, False, False


def baseline(group: Group) -> list[Member]:
    """The members credit is computed over."""
    return [m for m in group.members.values() if m.in_baseline]
