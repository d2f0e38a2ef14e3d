"""One row per group, in which tokens that several members share stand once.

Invariant: the gradient is that of one row per member: advantages are sums over the leaves that pass through a token, already
times their weights and, under sequence-mean, 1 / length of each leaf; `multiplicity` keeps the denominators.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gfcr.types import Group, LossRole, Member, Normalise, Segment


@dataclass(frozen=True, slots=True, eq=False)
class PackedRow:
    """The members of one group that are in the loss."""

    segments: tuple[Segment, ...]
    """In row order."""
    same_context: tuple[bool, ...]
    """By segment: trained under the context it was sampled in, so that its log-probabilities hold."""
    parents: np.ndarray
    """int32[n]: index in the row of the token before, -1 at a root."""
    advantages: np.ndarray
    """float32[n]: sum over leaves; 0 on tokens without an RL loss."""
    multiplicity: np.ndarray
    """float32[n]: leaves that pass through a token."""
    leaves: int
    """Members with an RL token."""
    rollout_ids: tuple[str, ...]


def packed_row(group: Group, normalise: Normalise) -> PackedRow | None:
    """None when no member is in the loss. Raises ValueError for preference labels and cross-entropy credit, which need one row
    per member."""
    members = [(m, m.credit) for m in group.members.values() if m.in_loss and m.credit is not None]
    if not members:
        return None
    if group.preferences or any(credit.ce_weight or credit.advantage is None for _, credit in members):
        raise ValueError(
            f"group {group.id}: preference labels, cross-entropy credit and a critic's rewards need one row per member"
            " (packed = False)"
        )
    segments: list[Segment] = []
    same_context: list[bool] = []
    starts: dict[tuple[int, str], int] = {}
    parents: list[np.ndarray] = []
    at = 0
    for member, _ in members:
        last = -1
        for node in member.rollout.trained_path:
            n = len(node.segment)
            if (last, node.id) not in starts:
                starts[last, node.id] = at
                segments.append(node.segment)
                same_context.append(member.rollout.train_path is None)
                parents.append(np.concatenate([[last], np.arange(at, at + n - 1)])[:n])
                at += n
            last = starts[last, node.id] + n - 1 if n else last
    advantages, multiplicity = np.zeros(at), np.zeros(at)
    leaves = 0
    for member, credit in members:
        length = rl_length(member)
        leaves += length > 0
        scale = credit.weight / (max(length, 1) if normalise is Normalise.SEQUENCE_MEAN else 1)
        offset, last = 0, -1
        for node in member.rollout.trained_path:
            n, start = len(node.segment), starts[last, node.id]
            if node.segment.role is LossRole.RL:
                value = credit.advantage
                assert value is not None
                advantages[start : start + n] += scale * (
                    value[offset : offset + n] if isinstance(value, np.ndarray) else value
                )
            multiplicity[start : start + n] += 1
            offset += n
            last = start + n - 1 if n else last
    return PackedRow(
        tuple(segments),
        tuple(same_context),
        np.concatenate(parents).astype(np.int32),
        advantages.astype(np.float32),
        multiplicity.astype(np.float32),
        leaves,
        tuple(m.rollout.id for m, _ in members),
    )


def rl_length(member: Member) -> int:
    """Tokens of the member with an RL loss."""
    return sum(len(n.segment) for n in member.rollout.trained_path if n.segment.role is LossRole.RL)
