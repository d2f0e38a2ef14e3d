"""Groups to batch.

Invariants: RL mask only on tokens whose segment's role is RL, of members in the loss; advantages are NaN elsewhere; a
replayed answer's behaviour log-probabilities are those recomputed for it where there are any (track `proximal`), never the
ones of another context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gfcr.types import (
    Batch,
    Group,
    LossRole,
    Member,
    Normalise,
    PartKind,
    Path,
    PreferencePair,
    Rollout,
    Segment,
    TokenSource,
    path_length,
)

_FLOATS = ("advantages", "rl_weights", "behaviour", "proximal", "reference", "temperature")


def build_batch(groups: Sequence[Group], normalise: Normalise, constant: float | None, round_number: int, version: int) -> Batch:
    """One row per member in the loss, in group and member order; a batch of no rows when there are none."""
    rows: list[tuple[int, Member]] = [(g, m) for g, group in enumerate(groups) for m in group.members.values()
                                      if m.in_loss and m.credit is not None]
    columns = _Columns(sum(path_length(m.rollout.trained_path) for _, m in rows))
    offsets = [0]
    for _, member in rows:
        offsets.append(columns.add(member))
    place = {m.rollout.id: i for i, (_, m) in enumerate(rows)}
    names = sorted({name for _, m in rows for name in m.signals.rewards})
    pairs = tuple(PreferencePair(place[p.chosen], place[p.rejected], p.weight) for g in groups for p in g.preferences
                  if p.chosen in place and p.rejected in place)
    return Batch(
        offsets=np.asarray(offsets, np.int64), groups=np.asarray([g for g, _ in rows], np.int32),
        group_ids=tuple(g.id for g in groups), rollout_ids=tuple(m.rollout.id for _, m in rows), normalise=normalise,
        constant=constant, round=round_number, version=version, preferences=pairs,
        rewards={n: np.asarray([_nan(m.signals.rewards.get(n)) for _, m in rows], np.float32) for n in names},
        media={i: media for i, (g, _) in enumerate(rows) if (media := _media(groups[g]))}, **columns.arrays())


class _Columns:
    """Per-token arrays being filled, in place: one allocation per batch."""

    def __init__(self, n: int) -> None:
        self.at = 0
        self.input_ids = np.zeros(n, np.int32)
        self.rl_mask = np.zeros(n, bool)
        self.ce_weights = np.zeros(n, np.float32)
        self.versions = np.full(n, -1, np.int32)
        self.floats = {name: np.full(n, np.nan, np.float32) for name in _FLOATS}

    def add(self, member: Member) -> int:
        """Append a member's row; returns the offset after it."""
        credit = member.credit
        assert credit is not None
        start = self.at
        same_context = member.rollout.train_path is None
        for node in member.rollout.trained_path:
            segment = node.segment
            span = slice(self.at, self.at + len(segment))
            self.at = span.stop
            self.input_ids[span] = segment.ids
            if segment.version is not None:
                self.versions[span] = segment.version
            if segment.sampling is not None:
                self.floats["temperature"][span] = segment.sampling.temperature
            proximal = segment.tracks.get("proximal")
            if proximal is not None:
                self.floats["proximal"][span] = proximal
            if (reference := segment.tracks.get("reference")) is not None:
                self.floats["reference"][span] = reference
            if segment.source is TokenSource.REPLAYED and proximal is not None:
                self.floats["behaviour"][span] = proximal
            elif segment.logprobs is not None and same_context:
                self.floats["behaviour"][span] = segment.logprobs
            if segment.role is LossRole.RL:
                self.rl_mask[span] = True
                self.floats["rl_weights"][span] = credit.weight
                advantage = credit.advantage
                self.floats["advantages"][span] = advantage[span.start - start:span.stop - start] if isinstance(advantage, np.ndarray) \
                    else advantage
            elif segment.role is LossRole.CE:
                self.ce_weights[span] = credit.ce_weight
        return self.at

    def arrays(self) -> dict[str, np.ndarray]:
        return {"input_ids": self.input_ids, "rl_mask": self.rl_mask, "ce_weights": self.ce_weights, "versions": self.versions,
                **self.floats}


def rescored(rollout: Rollout, logprobs: np.ndarray) -> Rollout:
    """The rollout with `logprobs` (float32 over the path's tokens) as its actions' `proximal` track, marked as replayed."""
    path, offset = [], 0
    for node in rollout.path:
        end = offset + len(node.segment)
        if node.segment.sampling is not None:
            tracks = {**node.segment.tracks, "proximal": logprobs[offset:end]}
            node = replace(node, segment=replace(node.segment, tracks=tracks, source=TokenSource.REPLAYED))
        path.append(node)
        offset = end
    return replace(rollout, path=tuple(path))


def packed_rows(group: Group, normalise: Normalise) -> tuple[list[Segment], np.ndarray, np.ndarray, np.ndarray]:
    """A group's members in the loss as one row in which shared nodes stand once.

    Returns (segments in row order, parents int32[n], advantages float32[n], multiplicity float32[n]); advantages are the
    sums of the leaves' weighted advantages, times 1/length of each leaf under sequence-mean, so the gradient equals that
    of one row per leaf.
    """
    segments: list[Segment] = []
    starts: dict[str, int] = {}
    parents: list[np.ndarray] = []
    at = 0
    leaves = [m for m in group.members.values() if m.in_loss and m.credit is not None]
    for member in leaves:
        last = -1
        for node in member.rollout.trained_path:
            n = len(node.segment)
            if node.id not in starts:
                starts[node.id] = at
                segments.append(node.segment)
                parents.append(np.concatenate([[last], np.arange(at, at + n - 1)])[:n])
                at += n
            last = starts[node.id] + n - 1 if n else last
    advantages, multiplicity = np.zeros(at), np.zeros(at)
    for member in leaves:
        assert member.credit is not None
        length = sum(len(n.segment) for n in member.rollout.trained_path if n.segment.role is LossRole.RL)
        scale = member.credit.weight / (max(length, 1) if normalise is Normalise.SEQUENCE_MEAN else 1)
        offset = 0
        for node in member.rollout.trained_path:
            n, start = len(node.segment), starts[node.id]
            value = member.credit.advantage
            advantages[start:start + n] += scale * (value[offset:offset + n] if isinstance(value, np.ndarray) else value)
            multiplicity[start:start + n] += 1
            offset += n
    return segments, np.concatenate(parents).astype(np.int32), advantages.astype(np.float32), multiplicity.astype(np.float32)


def _media(group: Group) -> tuple[str, ...]:
    prompt = group.task.prompt
    if isinstance(prompt, str):
        return ()
    return tuple(part.uri or "" for message in prompt for part in message.parts if part.kind is not PartKind.TEXT)


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value


__all__ = ["Path", "build_batch", "packed_rows", "rescored"]
