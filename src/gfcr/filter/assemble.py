"""Groups to batch.

Invariants: RL mask only on tokens whose segment's role is RL, of members in the loss; advantages are NaN elsewhere; a
replayed answer's behaviour log-probabilities are those recomputed for it where there are any (track `proximal`), never the
ones of another context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gfcr.engine.contract import ScoreItem
from gfcr.filter.pack import packed_row
from gfcr.types import (
    Batch,
    Group,
    LossRole,
    Member,
    Normalise,
    PartKind,
    PreferencePair,
    Rollout,
    Segment,
    TokenSource,
    path_ids,
    path_length,
)

_FLOATS = ("advantages", "rl_weights", "behaviour", "proximal", "reference", "temperature")


def build_batch(
    groups: Sequence[Group], normalise: Normalise, constant: float | None, round_number: int, version: int, packed: bool = False
) -> Batch:
    """One row per member in the loss, in group and member order; a batch of no rows when there are none.

    `packed`: one row per group, in which shared tokens stand once (filter/pack.py); its rows have no rewards of their own.
    """
    if packed:
        return _packed_batch(groups, normalise, constant, round_number, version)
    rows: list[tuple[int, Member]] = [
        (g, m) for g, group in enumerate(groups) for m in group.members.values() if m.in_loss and m.credit is not None
    ]
    columns = _Columns(sum(path_length(m.rollout.trained_path) for _, m in rows))
    place = {m.rollout.id: i for i, (_, m) in enumerate(rows)}
    pairs = tuple(
        PreferencePair(place[p.chosen], place[p.rejected], p.weight)
        for g in groups
        for p in g.preferences
        if p.chosen in place and p.rejected in place
    )
    compared = {row for pair in pairs for row in (pair.chosen, pair.rejected)}
    offsets = [0]
    for row, (_, member) in enumerate(rows):
        offsets.append(columns.add(member, row in compared))
    names = sorted({name for _, m in rows for name in m.signals.rewards})
    return Batch(
        offsets=np.asarray(offsets, np.int64),
        groups=np.asarray([g for g, _ in rows], np.int32),
        group_ids=tuple(g.id for g in groups),
        rollout_ids=tuple(m.rollout.id for _, m in rows),
        normalise=normalise,
        constant=constant,
        round=round_number,
        version=version,
        preferences=pairs,
        rewards={n: np.asarray([_nan(m.signals.rewards.get(n)) for _, m in rows], np.float32) for n in names},
        media={i: media for i, (g, _) in enumerate(rows) if (media := _media(groups[g]))},
        **columns.arrays(),
    )


def _packed_batch(
    groups: Sequence[Group], normalise: Normalise, constant: float | None, round_number: int, version: int
) -> Batch:
    rows = [(g, row) for g, group in enumerate(groups) if (row := packed_row(group, normalise)) is not None]
    columns = _Columns(sum(len(row.parents) for _, row in rows))
    offsets = [0]
    for _, row in rows:
        for segment, same_context in zip(row.segments, row.same_context):
            span = columns.segment(segment, same_context)
            if segment.role is LossRole.RL:
                columns.loss(span, row.advantages[span.start - offsets[-1] : span.stop - offsets[-1]], 1.0)
        offsets.append(columns.at)

    def joined(arrays: list[np.ndarray], dtype: type) -> np.ndarray:
        return np.concatenate(arrays).astype(dtype) if arrays else np.empty(0, dtype)

    return Batch(
        offsets=np.asarray(offsets, np.int64),
        groups=np.asarray([g for g, _ in rows], np.int32),
        group_ids=tuple(g.id for g in groups),
        rollout_ids=tuple("+".join(row.rollout_ids) for _, row in rows),
        normalise=normalise,
        constant=constant,
        round=round_number,
        version=version,
        parents=joined([row.parents for _, row in rows], np.int32),
        multiplicity=joined([row.multiplicity for _, row in rows], np.float32),
        leaves=np.asarray([row.leaves for _, row in rows], np.int32),
        preferences=(),
        rewards={},
        media={i: media for i, (g, _) in enumerate(rows) if (media := _media(groups[g]))},
        **columns.arrays(),
    )


class _Columns:
    """Per-token arrays being filled, in place: one allocation per batch."""

    def __init__(self, n: int) -> None:
        self.at = 0
        self.input_ids = np.zeros(n, np.int32)
        self.rl_mask = np.zeros(n, bool)
        self.ce_weights = np.zeros(n, np.float32)
        self.versions = np.full(n, -1, np.int32)
        self.floats = {name: np.full(n, np.nan, np.float32) for name in _FLOATS}
        self.pair_mask: np.ndarray | None = None
        self.token_rewards: np.ndarray | None = None

    def add(self, member: Member, compared: bool = False) -> int:
        """Append a member's row; returns the offset after it. `compared`: a preference pair names it."""
        credit = member.credit
        assert credit is not None
        start = self.at
        for node in member.rollout.trained_path:
            span = self.segment(node.segment, member.rollout.train_path is None)
            own = node.segment.role is LossRole.RL
            if own and credit.reinforces:
                value = np.nan if credit.advantage is None else credit.advantage
                self.loss(
                    span,
                    value[span.start - start : span.stop - start] if isinstance(value, np.ndarray) else value,
                    credit.weight,
                )
                if credit.rewards is not None:
                    self.token_rewards = self._made(self.token_rewards, np.nan, np.float32)
                    self.token_rewards[span] = credit.rewards[span.start - start : span.stop - start]
            elif own or node.segment.role is LossRole.CE:
                self.ce_weights[span] = credit.ce_weight
            if compared and node.segment.role is not LossRole.NONE:
                self.pair_mask = self._made(self.pair_mask, False, np.bool_)
                self.pair_mask[span] = True
        return self.at

    def _made(self, array: np.ndarray | None, fill: float, dtype: type) -> np.ndarray:
        """The optional column, made when it is first needed."""
        return np.full(len(self.input_ids), fill, dtype) if array is None else array

    def segment(self, segment: Segment, same_context: bool) -> slice:
        """Append a segment's tokens and what is known of them, without any loss."""
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
        return span

    def loss(self, span: slice, advantage: float | np.ndarray, weight: float) -> None:
        """Give these tokens an RL loss."""
        self.rl_mask[span] = True
        self.floats["rl_weights"][span] = weight
        self.floats["advantages"][span] = advantage

    def arrays(self) -> dict[str, Any]:
        return {
            "input_ids": self.input_ids,
            "rl_mask": self.rl_mask,
            "ce_weights": self.ce_weights,
            "versions": self.versions,
            "pair_mask": self.pair_mask,
            "token_rewards": self.token_rewards,
            **self.floats,
        }


def score_item(rollout: Rollout) -> ScoreItem:
    """The rollout's trained path, to be scored where a policy sampled it, each part under its own law."""
    spans, offset = [], 0
    for node in rollout.trained_path:
        end = offset + len(node.segment)
        if node.segment.sampling is not None and end > offset:
            spans.append((offset, end, node.segment.sampling))
        offset = end
    return ScoreItem(rollout.id, path_ids(rollout.trained_path), tuple(spans))


def rescored(rollout: Rollout, logprobs: np.ndarray) -> Rollout:
    """The rollout with `logprobs` (float32 over the trained path's tokens) as its actions' `proximal` track, marked as
    replayed."""
    path, offset = [], 0
    for node in rollout.trained_path:
        end = offset + len(node.segment)
        if node.segment.sampling is not None:
            tracks = {**node.segment.tracks, "proximal": logprobs[offset:end]}
            node = replace(node, segment=replace(node.segment, tracks=tracks, source=TokenSource.REPLAYED))
        path.append(node)
        offset = end
    return replace(rollout, path=tuple(path)) if rollout.train_path is None else replace(rollout, train_path=tuple(path))


def _media(group: Group) -> tuple[str, ...]:
    prompt = group.task.prompt
    if isinstance(prompt, str):
        return ()
    return tuple(part.uri or "" for message in prompt for part in message.parts if part.kind is not PartKind.TEXT)


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value


__all__ = ["build_batch", "rescored", "score_item"]
