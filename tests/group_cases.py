"""Hand-built groups: members with given rewards, without a model or a round."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gfcr.filter.admission import AdmissionSettings, admit, baseline
from gfcr.types import (
    Group,
    GroupState,
    LossRole,
    Member,
    Node,
    Role,
    Rollout,
    Sampling,
    Segment,
    SegmentKind,
    Signals,
    Status,
    StopReason,
    Task,
    TokenSource,
    Verdict,
)

LAW = Sampling()


def task(name: str = "t") -> Task:
    return Task("test", name, reference="1", category="c")


def action(n: int, version: int = 0, role: LossRole = LossRole.RL, **more) -> Segment:
    return Segment(
        SegmentKind.ACTION,
        np.arange(10, 10 + n),
        np.full(n, -0.5),
        author=more.pop("author", "policy"),
        version=version,
        sampling=LAW,
        role=role,
        source=TokenSource.SAMPLED,
        **more,
    )


def plain(kind: SegmentKind, n: int, **more) -> Segment:
    return Segment(kind, np.arange(n), **more)


def rollout(name: str, *segments: Segment, stop: StopReason = StopReason.EOS, **more) -> Rollout:
    """A chain; ids of its nodes are its name and their place, except the prompt's, which siblings share."""
    parts = segments or (plain(SegmentKind.PROMPT, 2), action(3))
    path, parent = [], None
    for i, segment in enumerate(parts):
        node = Node("prompt" if i == 0 else f"{name}.{i}", parent, segment)
        path.append(node)
        parent = node.id
    return Rollout(name, "t", tuple(path), stop, **more)


def signals(reward: float | None, correct: bool | None = None, invalid: bool = False) -> Signals:
    """Reward None = unscorable."""
    if invalid:
        return Signals({"v": Verdict("v", "1", Status.INVALID)}, "v", {}, reward)
    if reward is None:
        return Signals({"v": Verdict("v", "1", Status.UNSCORABLE)}, "v")
    return Signals({"v": Verdict("v", "1", Status.SCORED, reward, correct)}, "v", {"v": reward}, reward)


def member(name: str, reward: float | None, correct: bool | None = None, role: Role = Role.FRESH, **more) -> Member:
    stop = more.pop("stop", StopReason.EOS)
    return Member(rollout(name, stop=stop), role, signals=signals(reward, correct), **more)


def group(rewards: Sequence[float | None], name: str = "g", binary: bool = False, of: Task | None = None) -> Group:
    """A closed group; with `binary`, rewards say correctness too."""
    members = {}
    for i, reward in enumerate(rewards):
        correct = bool(reward) if binary and reward is not None else None
        members[f"{name}{i}"] = member(f"{name}{i}", reward, correct)
    return Group(name, of or task(), 0, 0, planned=len(rewards), stage=1, state=GroupState.CLOSED, members=members)


def advantages(made: Group, credit, settings: AdmissionSettings | None = None) -> list[float | None]:
    """Per member after admission and credit, the one value of its own tokens; None = out of the loss."""
    admit(made, settings or AdmissionSettings())
    inside = baseline(made)
    if inside:
        credits = credit.credit(made, inside)
        for one in inside:
            if one.in_loss:
                one.credit = credits[one.rollout.id]
    return [None if m.credit is None else _one(m) for m in made.members.values()]


def _one(member: Member) -> float:
    own = np.concatenate([np.full(len(n.segment), n.segment.role is LossRole.RL) for n in member.rollout.trained_path])
    values = np.unique(np.broadcast_to(member.credit.advantage, own.shape)[own])
    assert len(values) == 1, values
    return float(values[0])


def finite(values: Sequence[float | None]) -> bool:
    return all(v is not None and math.isfinite(v) for v in values)
