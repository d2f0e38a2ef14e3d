"""What a batch must hold before it may change weights. Invariant: a number that would reach the loss is finite, or the error
names the row, the rollout, the token, the value and the remedy; NaN stands for a log-probability nobody knows, and is one only
where it may be unknown; an infinite one is refused on every token that counts; numbers outside the masks are never looked at.
"""

from __future__ import annotations

import numpy as np

from gfcr.errors import ConfigError, DataError
from gfcr.train.preference import pair_tokens
from gfcr.train.settings import LossSettings
from gfcr.types.batch import Batch, Normalise


def _refuse(batch: Batch, bad: np.ndarray, field: str, value: object, remedy: str) -> None:
    if not len(bad):
        return
    token = int(bad[0])
    row = int(batch.row_of_token()[token])
    raise DataError(
        f"batch.{field} is {value} at token {token - int(batch.offsets[row])} of row {row} (rollout"
        f" {batch.rollout_ids[row]}, round {batch.round}); {len(bad)} such token(s) in the batch",
        remedy,
    )


def check_batch(batch: Batch, vocabulary: int, kl: float = 0.0, loss: LossSettings | None = None, critic: bool = False) -> None:
    """Raise DataError or ConfigError unless every number that reaches the loss is usable.

    `vocabulary`: size of the model's output in tokens; `kl`: coefficient of the KL term; `loss`: None = `ppo`; `critic`: the
    trainer has a value head.
    """
    loss = loss or LossSettings()
    _check_kind(batch, loss, critic)
    if kl and batch.multiplicity is not None and batch.normalise is Normalise.SEQUENCE_MEAN:
        raise ConfigError(
            f"train.kl = {kl} on packed trees under sequence-mean: a shared token's KL would need the length of each leaf",
            "set loss.normalise = 'token-mean' or 'constant', or hand out trees per leaf instead of packed",
        )
    if batch.media:
        raise ConfigError(
            f"the batch holds media for rows {sorted(batch.media)[:5]}; the reference trainer reads text only",
            "train multimodal rows in a trainer that reads media",
        )
    paired = pair_tokens(batch)
    needed = batch.rl_mask | (batch.ce_weights != 0) | paired
    local = np.arange(len(needed)) - batch.offsets[:-1][batch.row_of_token()]
    before = local - 1 if batch.parents is None else batch.parents
    late = np.flatnonzero((before >= local) | (before < -1))
    _refuse(batch, late, "parents", before[late[0]] if len(late) else None, "store every token after the one it continues")
    orphans = np.flatnonzero(needed & (before < 0))
    _refuse(
        batch,
        orphans,
        "rl_mask, ce_weights or pair_mask",
        "on, without a token before it to give its probability,",
        "start every prompt with at least one token (a beginning-of-text id)",
    )
    given = batch.rl_mask if batch.token_rewards is None else np.zeros_like(batch.rl_mask)
    for field, mask, remedy in (
        ("advantages", given, "drop the member or mask its tokens: an undefined advantage is no zero"),
        ("rl_weights", batch.rl_mask, "give every RL token a finite weight; 1 where nothing corrects it"),
        ("ce_weights", batch.ce_weights != 0, "give every token a finite cross-entropy weight; 0 where none"),
        ("token_rewards", batch.rl_mask & ~given, "give every RL token a reward; 0 where none came with it"),
        (
            "behaviour",
            paired & (loss.pair_reference == "behaviour"),
            "set loss.pair_reference = 'start': nobody sampled the token, or not under this context",
        ),
    ):
        values = getattr(batch, field)
        if values is None:
            continue
        bad = np.flatnonzero(mask & ~np.isfinite(values))
        _refuse(batch, bad, field, values[bad[0]] if len(bad) else None, remedy)
    for field, mask in (
        ("behaviour", batch.rl_mask),
        ("proximal", batch.rl_mask),
        ("reference", batch.rl_mask | (paired & (loss.pair_reference == "start"))),
    ):
        values = getattr(batch, field)
        bad = np.flatnonzero(mask & np.isinf(values))
        _refuse(
            batch,
            bad,
            field,
            values[bad[0]] if len(bad) else None,
            "leave the rollout out: under that law the token cannot occur (was it scored under a truncated law, or by another"
            " model?); NaN where nobody knows the log-probability",
        )
    outside = np.flatnonzero((batch.input_ids < 0) | (batch.input_ids >= vocabulary))
    _refuse(
        batch,
        outside,
        "input_ids",
        batch.input_ids[outside[0]] if len(outside) else None,
        f"token ids lie in [0, {vocabulary}); was the batch made with another tokenizer?",
    )
    cold = np.flatnonzero((batch.rl_mask | paired | (batch.ce_weights > 0)) & (batch.temperature <= 0))
    _refuse(
        batch,
        cold,
        "temperature",
        batch.temperature[cold[0]] if len(cold) else None,
        "a greedy law has no gradient: sample at a temperature above 0, or keep greedy tokens out of the RL mask",
    )


def _check_kind(batch: Batch, loss: LossSettings, critic: bool) -> None:
    """Whether the batch holds what this loss trains, in a shape it can."""
    kind, whole_rows = f"loss.kind = {loss.kind!r}", batch.parents is None and batch.multiplicity is None
    if batch.preferences and loss.wants != "pairs":
        raise ConfigError(
            f"the batch holds {len(batch.preferences)} preference pairs; {kind} has no preference loss",
            "set loss.kind = 'dpo' or 'ipo', or use a credit method that yields advantages",
        )
    if batch.rl_mask.any() and loss.wants != "advantages":
        raise ConfigError(
            f"the batch holds {np.count_nonzero(batch.rl_mask)} tokens with an advantage; {kind} trains {loss.wants}",
            "set loss.kind = 'ppo' (or another policy loss), or use a credit method that yields " + loss.wants,
        )
    if critic != (batch.token_rewards is not None) and batch.rl_mask.any():
        raise ConfigError(
            "train.value is set, and the batch brings advantages, no rewards for a critic"
            if critic
            else "the batch brings rewards for a critic, and train.value is not set",
            "use filter.credit = {name = 'gae'} with [train.value], or neither",
        )
    for what, there in (
        ("preference pairs", bool(batch.preferences)),
        (f"{kind}, one ratio per answer", loss.by_sequence),
        ("values along an answer", batch.token_rewards is not None),
    ):
        if there and not whole_rows:
            raise ConfigError(
                f"packed trees hold several answers in one row; {what} cannot be taken apart there",
                "hand out trees per leaf instead of packed",
            )
    if loss.kind == "gspo":
        _check_one_advantage(batch)
    if batch.preferences:
        _check_pairs(batch)


def _check_one_advantage(batch: Batch) -> None:
    row = batch.row_of_token()[batch.rl_mask]
    value = (batch.advantages * batch.rl_weights)[batch.rl_mask]
    highest, lowest = np.full(len(batch), -np.inf), np.full(len(batch), np.inf)
    np.maximum.at(highest, row, value)
    np.minimum.at(lowest, row, value)
    if len(several := np.flatnonzero(highest > lowest)):
        raise ConfigError(
            f"row {several[0]} (rollout {batch.rollout_ids[several[0]]}) has several advantages; loss.kind = 'gspo' has one"
            " ratio and one advantage per answer",
            "set loss.kind = 'gspo-token'",
        )


def _check_pairs(batch: Batch) -> None:
    mask = np.zeros(len(batch.input_ids), bool) if batch.pair_mask is None else batch.pair_mask
    count = np.bincount(batch.row_of_token()[mask], minlength=len(batch))
    for number, pair in enumerate(batch.preferences):
        rows = (pair.chosen, pair.rejected)
        wrong = (
            "names a row the batch does not have"
            if not all(0 <= row < len(batch) for row in rows)
            else "compares a row with itself"
            if pair.chosen == pair.rejected
            else "has a row without a token in pair_mask"
            if not all(count[row] for row in rows)
            else f"has weight {pair.weight}"
            if not (np.isfinite(pair.weight) and pair.weight > 0)
            else ""
        )
        if wrong:
            raise DataError(
                f"batch.preferences[{number}] (rows {pair.chosen} and {pair.rejected}) {wrong}",
                "make pairs of two rows of the batch that have tokens of their own, with a weight above 0",
            )
