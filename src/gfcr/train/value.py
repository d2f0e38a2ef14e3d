"""The critic of PPO: a value head on the policy's trunk, and generalised advantage estimation.

Invariants: V of a token is the value of the state before it (read where its log-probability comes from); own tokens only, in
order, so prompts, observations and guidance between turns are skipped and the value after the last own token is 0; estimates
are float64 and made once a step, before the first update, so minibatches and micro-batches change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gfcr.errors import DataError
from gfcr.train.settings import ValueSettings
from gfcr.types.batch import Batch

WHITEN_EPS = 1e-8
"""Added to the variance (verl's masked_whiten)."""


class ValueHead(nn.Module):
    """hidden[n, width] -> value[n]; starts at 0 everywhere, so the first advantages are the returns themselves."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, width))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):  # values are no place for bfloat16
            return nn.functional.linear(hidden.to(self.weight.dtype), self.weight, self.bias)[:, 0]


@dataclass(frozen=True, slots=True, eq=False)
class Critic:
    """What the value head said before this step; float64[N], NaN outside the RL mask."""

    values: np.ndarray
    returns: np.ndarray
    """What the head is trained towards: advantage (before whitening) + value."""
    explained: float | None
    """1 - Var(return - value) / Var(return); None where all returns are one number."""

    def cut(self, place: np.ndarray) -> Critic:
        """Of the tokens at `place`."""
        return Critic(self.values[place], self.returns[place], self.explained)


def gae(rewards: np.ndarray, values: np.ndarray, lengths: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    """Advantages, float64[n], of rows of own tokens laid end to end (arXiv:1506.02438 eq. 16, finite and terminal).

    delta_t = r_t + gamma V_(t+1) - V_t, A_t = delta_t + gamma lam A_(t+1), both 0 after a row's last token. `rewards`,
    `values`: float[n]; `lengths`: int[R], n in all.
    """
    width = int(lengths.max()) if len(lengths) else 0
    row = np.repeat(np.arange(len(lengths)), lengths)
    column = width - np.repeat(lengths, lengths) + np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    reward, value, out = (np.zeros((len(lengths), width)) for _ in range(3))
    reward[row, column], value[row, column] = rewards, values
    after, running = np.zeros(len(lengths)), np.zeros(len(lengths))
    for t in range(width - 1, -1, -1):  # rows end together at the right
        running = reward[:, t] + gamma * after - value[:, t] + gamma * lam * running
        out[:, t], after = running, value[:, t]
    return out[row, column]


def bilevel_gae(
    rewards: np.ndarray, values: np.ndarray, lengths: np.ndarray, ends: np.ndarray, gamma: float, lam: float, turn_gamma: float
) -> np.ndarray:
    """Advantages, float64[n], over turns and then inside them (bi-level GAE: RAGEN, arXiv:2504.20073).

    First GAE over each row's turns: reward of a turn, V at its last token, `turn_gamma`. Then GAE inside each turn by itself, with the
    turn's return (advantage + V at its end) as the reward of its last token. `ends`: bool[n], last tokens of turns, among them
    every row's last; a reward of exactly 0 at an end is a reward (the official code finds ends by non-zero rewards).
    """
    turn = np.cumsum(ends) - ends  # the turn each token lies in
    last = np.flatnonzero(ends)
    per_turn = np.bincount(turn, rewards, minlength=len(last)) if len(last) else np.zeros(0)
    row = np.repeat(np.arange(len(lengths)), lengths)
    turns_of_row = np.bincount(row[last], minlength=len(lengths)).astype(np.int64)
    high = gae(per_turn, values[last], turns_of_row[turns_of_row > 0], turn_gamma, lam)
    inner = np.zeros(len(values))
    inner[last] = high + values[last]
    return gae(inner, values, np.diff(np.concatenate([[-1], last])), gamma, lam)


def whitened(values: np.ndarray) -> np.ndarray:
    """Mean 0 and unbiased variance 1; a single number, or equal ones, become 0."""
    if len(values) < 2:
        return np.zeros_like(values)
    centred = values - values.mean()
    return np.asarray(centred / np.sqrt(centred.var(ddof=1) + WHITEN_EPS))


def criticise(batch: Batch, values: np.ndarray, settings: ValueSettings) -> tuple[np.ndarray, Critic]:
    """(advantages float64[N], NaN outside the RL mask; what the value loss needs). `values`: float64[N] on the RL mask."""
    mask = batch.rl_mask
    assert batch.token_rewards is not None
    lengths = np.bincount(batch.row_of_token()[mask], minlength=len(batch))
    known, rewards = values[mask], batch.token_rewards[mask].astype(np.float64)
    if settings.turn_gamma is None:
        raw = gae(rewards, known, lengths, settings.gamma, settings.lam)
    else:
        raw = bilevel_gae(rewards, known, lengths, _turn_ends(batch), settings.gamma, settings.lam, settings.turn_gamma)
    returns, advantages = np.full(len(mask), np.nan), np.full(len(mask), np.nan)
    returns[mask] = raw + known
    advantages[mask] = whitened(raw) if settings.whiten else raw
    spread = float(np.var(returns[mask])) if mask.any() else 0.0
    return advantages, Critic(values, returns, 1.0 - float(np.var(raw)) / spread if spread > 0 else None)


def _turn_ends(batch: Batch) -> np.ndarray:
    """bool[own tokens]: whether the next own token is of another turn, or the row ends."""
    if batch.turns is None:
        raise DataError(
            "train.value.turn_gamma discounts by turn, and the batch does not say which turn a token was written in (batch.turns is None)",
            "make the batch with filter.credit = 'gae', set batch.turns, or leave train.value.turn_gamma out",
        )
    own = np.flatnonzero(batch.rl_mask)
    row, turn = batch.row_of_token()[own], batch.turns[own]
    same = (np.diff(turn) == 0) & (np.diff(row) == 0)
    return np.concatenate([~same, np.ones(min(len(own), 1), bool)])
