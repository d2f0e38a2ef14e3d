"""A batch's per-token arrays, collected segment by segment and made at once.

Invariants: RL mask only where `loss` said so, advantages and weights NaN elsewhere; a replayed answer's behaviour
log-probabilities are those recomputed for it where there are any (track `proximal`), never the ones of another context; behaviour
log-probabilities are of the law the trainer computes (TRL#6789), or NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gfcr.types import LossRole, Member, Segment, TokenSource

_NAN = float("nan")
_TRACKS = ("proximal", "reference")
_NO_LOSS = False, _NAN, _NAN, 0.0
_OPTIONAL: dict[str, tuple[Any, type]] = {
    "pair_mask": (False, np.bool_),
    "token_rewards": (_NAN, np.float32),
    "turns": (-1, np.int32),
}
"""Columns that most batches lack: (value where nothing is known, type)."""


def trainers(segment: Segment) -> np.ndarray | None:
    """float32[n]: a segment's log-probabilities as the trainer's law softmax(logits / temperature) has them. Those of a truncating law
    are renormalised over the kept set, whose mass is put back here, and unknown without it; those of a penalising one depend on
    counts that the trainer does not keep, so there are none. None = unknown."""
    law, mass = segment.sampling, segment.tracks.get("kept_mass")
    if segment.logprobs is None or law is None or law.plain:
        return segment.logprobs
    if law.penalised or mass is None:
        return None
    return segment.logprobs + np.log(mass)


class Columns:
    """Rows being appended. What is one value per segment stays one value until `arrays`: a numpy call per segment and column
    would cost more than all the rest."""

    def __init__(self) -> None:
        self.at = 0
        self._segments: list[Segment] = []
        self._behaviour: list[np.ndarray | None] = []
        self._losses: list[tuple[bool, float, float, float]] = []
        """(RL loss, advantage, its weight, cross-entropy weight) of each segment."""
        self._sparse: list[tuple[str, slice, Any]] = []
        """(column, tokens, values) beside the one value per segment."""

    def add(self, member: Member, compared: bool = False) -> int:
        """Append a member's row; returns the offset after it. `compared`: a preference pair names it."""
        credit, rollout = member.credit, member.rollout
        assert credit is not None
        start, same = self.at, rollout.train_path is None
        for node in rollout.trained_path:
            segment = node.segment
            role = segment.role
            span = self.segment(segment, same)
            if role is LossRole.NONE:
                continue
            if role is LossRole.RL and credit.reinforces:
                value = _NAN if credit.advantage is None else credit.advantage
                if isinstance(value, np.ndarray):
                    value = value[span.start - start : span.stop - start]
                self.loss(span, value, credit.weight)
                if credit.rewards is not None:
                    self._sparse.append(("token_rewards", span, credit.rewards[span.start - start : span.stop - start]))
                    self._sparse.append(("turns", span, segment.turn))
            else:
                self._losses[-1] = False, _NAN, _NAN, credit.ce_weight
            if compared:
                self._sparse.append(("pair_mask", span, True))
        return self.at

    def segment(self, segment: Segment, same_context: bool) -> slice:
        """Append a segment's tokens and what is known of them, without any loss."""
        tracks = segment.tracks
        span = slice(self.at, self.at + len(segment.ids))
        self.at = span.stop
        self._segments.append(segment)
        self._behaviour.append(trainers(segment) if same_context else None)
        self._losses.append(_NO_LOSS)
        if tracks:
            for name in _TRACKS:
                if name in tracks:
                    self._sparse.append((name, span, tracks[name]))
            if segment.source is TokenSource.REPLAYED and "proximal" in tracks:
                self._behaviour[-1] = tracks["proximal"]
        return span

    def loss(self, span: slice, advantage: float | np.ndarray, weight: float) -> None:
        """Give the tokens of the last segment an RL loss; `span` is where they are."""
        if isinstance(advantage, np.ndarray):
            self._sparse.append(("advantages", span, advantage))
            advantage = _NAN
        self._losses[-1] = True, advantage, weight, 0.0

    def arrays(self) -> dict[str, Any]:
        """Arguments of Batch."""
        segments = self._segments
        lengths = [len(s.ids) for s in segments]
        nothing = np.full(max(lengths, default=0), np.nan, np.float32)
        loss, advantages, weights, ce = zip(*self._losses) if self._losses else ((), (), (), ())

        def spread(values: Sequence[Any], dtype: type) -> np.ndarray:
            return np.repeat(np.asarray(values, dtype), lengths)

        def joined(arrays: list[Any], dtype: type) -> np.ndarray:
            return np.concatenate(arrays) if arrays else np.empty(0, dtype)

        out: dict[str, Any] = {
            "input_ids": joined([s.ids for s in segments], np.int32),
            "rl_mask": spread(loss, np.bool_),
            "ce_weights": spread(ce, np.float32),
            "versions": spread([-1 if s.version is None else s.version for s in segments], np.int32),
            "pair_mask": None,
            "token_rewards": None,
            "turns": None,
            "advantages": spread(advantages, np.float32),
            "rl_weights": spread(weights, np.float32),
            "behaviour": joined([nothing[:n] if b is None else b for b, n in zip(self._behaviour, lengths)], np.float32),
            "temperature": spread([_NAN if s.sampling is None else s.sampling.temperature for s in segments], np.float32),
            **{name: np.full(self.at, np.nan, np.float32) for name in _TRACKS},
        }
        for name, span, values in self._sparse:
            if out[name] is None:  # an optional column, made when it is first needed
                empty, dtype = _OPTIONAL[name]
                out[name] = np.full(self.at, empty, dtype)
            out[name][span] = values
        return out
