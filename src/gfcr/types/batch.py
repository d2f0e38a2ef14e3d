"""The batch handed to an optimiser.

Layout: rows are concatenated, row i is `[offsets[i], offsets[i+1])` of every per-token array; entry t describes token t
given the tokens before it (no shift anywhere). Invariants: undefined numbers are NaN and never reach a sum
(`masked_sum`); RL weight stands only where `rl_mask` is true; a denominator counts the same tokens as its numerator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np


class Normalise(StrEnum):
    """How per-token losses become one number; see `Batch.token_weights`."""

    SEQUENCE_MEAN = "sequence-mean"
    """Mean over tokens, then over rows (GRPO, arXiv:2402.03300)."""
    TOKEN_MEAN = "token-mean"
    """One mean over all tokens (DAPO, arXiv:2503.14476)."""
    CONSTANT = "constant"
    """Sum over tokens / (rows * constant) (Dr.GRPO, arXiv:2503.20783)."""


@dataclass(frozen=True, slots=True, eq=False)
class PreferencePair:
    chosen: int
    """Row."""
    rejected: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One optimiser step's data; R rows, N tokens in all."""

    offsets: np.ndarray
    """int64[R+1]."""
    input_ids: np.ndarray
    """int32[N]."""
    rl_mask: np.ndarray
    """bool[N]: tokens with an RL loss."""
    advantages: np.ndarray
    """float32[N]; NaN outside `rl_mask`."""
    rl_weights: np.ndarray
    """float32[N]: factor on the RL loss (off-policy, noise, share of leaves); NaN outside `rl_mask`."""
    ce_weights: np.ndarray
    """float32[N]: cross-entropy weight, 0 where none."""
    behaviour: np.ndarray
    """float32[N]: log-probability under the law that sampled the token, before truncation (the kept mass is put back: this is the law a
    trainer computes); NaN where nobody sampled it, under penalties, or where the kept mass is unknown."""
    proximal: np.ndarray
    """float32[N]: log-probability under the weights before this update; NaN = not computed yet."""
    reference: np.ndarray
    """float32[N]: log-probability under the reference policy; NaN = none."""
    temperature: np.ndarray
    """float32[N]: temperature of the sampling law; NaN where nobody sampled the token."""
    versions: np.ndarray
    """int32[N]: weights that produced the token, -1 where no policy did."""
    groups: np.ndarray
    """int32[R]: index into `group_ids`."""
    group_ids: tuple[str, ...]
    rollout_ids: tuple[str, ...]
    """[R]; rows of a packed tree name their leaves joined by `+`."""
    normalise: Normalise = Normalise.TOKEN_MEAN
    constant: float | None = None
    """Denominator of CONSTANT, in tokens; None for the other modes."""
    parents: np.ndarray | None = None
    """int32[N]: index within the row of the token before this one, -1 at a root; None when every row is a chain.
    With shared tree tokens stored once, `advantages` hold the sum of the leaves' weighted advantages."""
    multiplicity: np.ndarray | None = None
    """float32[N]: how many leaves' rows a token of a packed tree stands for; None = 1 everywhere."""
    leaves: np.ndarray | None = None
    """int32[R]: leaves of each row; None = 1 everywhere."""
    preferences: tuple[PreferencePair, ...] = ()
    pair_mask: np.ndarray | None = None
    """bool[N]: tokens whose log-probabilities a preference pair compares; None without pairs."""
    token_rewards: np.ndarray | None = None
    """float32[N]: reward that comes with the token, NaN outside `rl_mask`; a critic makes advantages of them (`advantages` are
    NaN until then). None = the advantages are given."""
    turns: np.ndarray | None = None
    """int32[N]: turn that the token was written in (`Segment.turn`), -1 where it has no reward; None without `token_rewards`."""
    rewards: Mapping[str, np.ndarray] = field(default_factory=dict)
    """float32[R] by reward name; NaN = None."""
    media: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Row -> media references of its prompt, in order."""
    round: int = 0
    version: int = 0
    """Weights the batch was collected for."""

    def __post_init__(self) -> None:
        n = int(self.offsets[-1])
        for name in TOKEN_FIELDS:
            array = getattr(self, name)
            if array is not None and len(array) != n:
                raise ValueError(f"batch.{name} has {len(array)} entries, input_ids has {n}")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def rows(self, index: Sequence[int] | np.ndarray) -> Batch:
        """The batch of these rows, in this order. Preference pairs with a missing row are left out."""
        index = np.asarray(index, dtype=np.int64)
        spans = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in index]
        tokens = np.concatenate(spans) if spans else np.empty(0, np.int64)
        place = {int(row): i for i, row in enumerate(index)}
        cut = {name: getattr(self, name)[tokens] for name in TOKEN_FIELDS if getattr(self, name) is not None}
        return replace(
            self,
            offsets=np.concatenate([[0], np.cumsum(self.lengths[index])]).astype(np.int64),
            groups=self.groups[index],
            leaves=None if self.leaves is None else self.leaves[index],
            rollout_ids=tuple(self.rollout_ids[i] for i in index),
            preferences=tuple(
                PreferencePair(place[p.chosen], place[p.rejected], p.weight)
                for p in self.preferences
                if p.chosen in place and p.rejected in place
            ),
            rewards={k: v[index] for k, v in self.rewards.items()},
            media={place[r]: m for r, m in self.media.items() if r in place},
            **cut,
        )

    def row_of_token(self) -> np.ndarray:
        """int64[N]: the row each token lies in."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def position_ids(self) -> np.ndarray:
        """int64[N]: position of each token on its own path."""
        if self.parents is None:
            return np.arange(int(self.offsets[-1])) - np.repeat(self.offsets[:-1], self.lengths)
        out = np.zeros(len(self.input_ids), np.int64)
        for row in range(len(self)):
            start = self.offsets[row]
            for t in range(int(self.lengths[row])):
                parent = self.parents[start + t]
                out[start + t] = 0 if parent < 0 else out[start + parent] + 1
        return out

    def token_weights(self, ce: bool = False) -> np.ndarray:
        """float64[N]: w such that the loss is sum(w * per-token loss), over this batch (or minibatch) as a whole.

        Rows without a token in the mask count in no denominator. An all-masked batch gives weights 0, not a division by 0.
        """
        mask = self.ce_weights != 0 if ce else self.rl_mask
        rows = self.row_of_token()
        count = None if self.multiplicity is None else self.multiplicity[mask]
        per_row = np.bincount(rows[mask], count, minlength=len(self)).astype(np.float64)
        active = float(np.count_nonzero(per_row) if self.leaves is None else self.leaves[per_row > 0].sum())
        if not active:
            return np.zeros(len(mask))
        if self.normalise is Normalise.TOKEN_MEAN:
            weights = np.full(len(mask), 1.0 / per_row.sum())
        elif self.normalise is Normalise.SEQUENCE_MEAN:
            # A packed tree's advantages already hold each leaf's 1/length (filter/assemble.py).
            weights = 1.0 / (active * np.maximum(per_row if self.leaves is None else np.ones(len(self)), 1.0))[rows]
        elif self.constant is None:
            raise ValueError("constant normalisation needs its constant (loss.constant, usually the longest answer in tokens)")
        else:
            weights = np.full(len(mask), 1.0 / (active * self.constant))
        return np.where(mask, weights, 0.0)


TOKEN_FIELDS = (
    "input_ids",
    "rl_mask",
    "advantages",
    "rl_weights",
    "ce_weights",
    "behaviour",
    "proximal",
    "reference",
    "temperature",
    "versions",
    "parents",
    "multiplicity",
    "pair_mask",
    "token_rewards",
    "turns",
)


def masked_sum(values: np.ndarray, mask: np.ndarray) -> float:
    """Sum of `values` where `mask`; NaN elsewhere does no harm (a product with 0 would keep it)."""
    return float(np.sum(values, where=mask, initial=0.0, dtype=np.float64))


def masked_mean(values: np.ndarray, mask: np.ndarray) -> float | None:
    """Mean where `mask`; None for an empty mask."""
    count = int(np.count_nonzero(mask))
    return masked_sum(values, mask) / count if count else None
