"""Groups to batch.

Invariant: RL mask only on tokens whose segment's role is RL, of members in the loss (filter/columns.py has the arrays').
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gfcr.engine.contract import ScoreItem
from gfcr.filter.columns import Columns
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
    TokenSource,
    path_ids,
)


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
    columns = Columns()
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
    columns = Columns()
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
