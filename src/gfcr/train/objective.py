"""What a minibatch minimises, one micro-batch at a time.

Invariants: the minibatch's loss is the sum of its micro-batches' shares, with weights of the whole minibatch; numbers outside
the masks never reach the arithmetic (they are replaced by harmless constants, not multiplied by 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gfcr.train.losses import (
    PolicyTerms,
    cispo_loss,
    k3,
    policy_loss,
    sequence_loss,
    shaped_loss,
    truncated_weights,
    value_loss,
)
from gfcr.train.micro import MicroBatch
from gfcr.train.preference import Pairs
from gfcr.train.settings import LossSettings, TrainSettings
from gfcr.train.value import Critic
from gfcr.types.batch import Batch

SUMS = (
    "loss",
    "tokens",
    "low",
    "high",
    "dual",
    "ratio",
    "kl",
    "entropy",
    "weights",
    "squares",
    "weighed",
    "value",
    "nll",
    "ce_tokens",
    "pair_right",
    "pair_margin",
    "pairs",
)
"""What is summed over a minibatch, in this order; the last three are the whole minibatch's."""


@dataclass(slots=True, eq=False)
class Objective:
    """The loss of one minibatch, all but its log-probabilities; arrays run over the minibatch's tokens."""

    train: TrainSettings
    loss: LossSettings
    part: Batch
    reference: np.ndarray | None = None
    """Log-probabilities under the reference policy, of RL tokens and of pairs; None = no KL is wanted or reported."""
    critic: Critic | None = None
    pairs: Pairs | None = None
    """None until the pairs' rows have been run, or without pairs."""
    _rl: np.ndarray = field(init=False)
    _ce: np.ndarray = field(init=False)
    _rows: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._rl = self.part.token_weights()
        self._ce = self.part.token_weights(ce=True) * self.part.ce_weights
        self._rows = self.part.row_of_token()

    def share(
        self, micro: MicroBatch, logp: Tensor, entropy: Tensor, proximal: np.ndarray, values: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The micro-batch's share of the loss, with gradient, and of `SUMS` (float64).

        `logp`, `entropy`, `values`: of the micro-batch's n wanted tokens; `proximal`: float[n], known on RL tokens.
        """
        s, part, where = self.train, self.part, micro.tokens
        mask = part.rl_mask[where]

        def send(numbers: np.ndarray, fill: float, inside: np.ndarray = mask) -> Tensor:
            return torch.as_tensor(np.where(inside, numbers, fill), dtype=logp.dtype, device=logp.device)

        # the weight goes into the advantage: for a negative one (noise correction) the clip must see the sign it ends up with
        advantages = send(part.advantages[where] * np.where(mask, part.rl_weights[where], 0.0), 0.0)
        behaviour = send(part.behaviour[where], np.nan)
        near = send(proximal, 0.0)
        base = torch.where(torch.isnan(behaviour), near, behaviour) if s.ratio_base == "behaviour" else near
        is_rl = torch.as_tensor(mask, device=logp.device)
        zero = torch.zeros_like(logp)
        current = torch.where(is_rl, logp, zero)
        base = torch.where(is_rl, base, zero)
        terms = self._shaped(self._policy(current, base, advantages, is_rl, where), current, advantages, where)
        weights = truncated_weights(current.detach() if s.ratio_base == "behaviour" else near, behaviour, s.tis_cap)
        per_token = terms.loss if s.tis_cap is None else terms.loss * weights
        kl = zero
        if self.reference is not None and mask.any():
            kl = torch.where(is_rl, k3(current, send(self.reference[where], 0.0)), zero)
            if s.kl:  # not times the RL weights: those correct the reward's gradient, the KL holds wherever the policy spoke
                leaves = 1.0 if part.multiplicity is None else send(part.multiplicity[where], 0.0)
                per_token = per_token + s.kl * kl * leaves
        worth = zero
        if self.critic is not None and values is not None and s.value is not None:
            old, returns = send(self.critic.values[where], 0.0), send(self.critic.returns[where], 0.0)
            worth = value_loss(torch.where(is_rl, values.to(logp.dtype), zero), old, returns, s.value.clip)
            per_token = per_token + s.value.coef * worth
        w = torch.as_tensor(self._rl[where], dtype=logp.dtype, device=logp.device)
        loss = (w * per_token).sum()
        taught = part.ce_weights[where] != 0
        is_ce = torch.as_tensor(taught, device=logp.device)
        nll = torch.where(is_ce, -logp, zero)
        if taught.any():
            loss = loss + (send(self._ce[where], 0.0, taught) * nll).sum()
        if self.pairs is not None:
            slope = self.pairs.slopes[where]
            paired = torch.as_tensor(slope != 0, device=logp.device)
            moved = torch.where(paired, logp - logp.detach(), zero)  # worth 0: the pairs' loss itself is added once, whole
            loss = loss + (torch.as_tensor(slope, dtype=logp.dtype, device=logp.device) * moved).sum()
        with torch.no_grad():
            weighed = is_rl & ~torch.isnan(behaviour)
            used = torch.where(weighed, weights, zero)
            wide = torch.float32 if logp.device.type == "mps" else torch.float64  # mps has no float64
            sums = (
                loss,
                is_rl,
                terms.clipped_low & is_rl,
                terms.clipped_high & is_rl,
                terms.clipped_dual & is_rl,
                torch.where(is_rl, terms.ratio, zero),
                kl,
                torch.where(is_rl, entropy, zero),
                used,
                used * used,
                weighed,
                torch.where(is_rl, worth, zero),
                nll,
                is_ce,
            )
            total = torch.stack([x.to(wide).sum() for x in sums])
        return loss, torch.cat([total, total.new_zeros(len(SUMS) - len(sums))])

    def _policy(self, current: Tensor, base: Tensor, advantages: Tensor, is_rl: Tensor, where: np.ndarray) -> PolicyTerms:
        s, kind = self.train, self.loss.kind
        clips = {"clip_low": s.clip_low, "clip_high": s.clip_high, "dual_clip": s.dual_clip}
        if kind == "cispo":
            return cispo_loss(current, base, advantages, low=self.loss.cispo_low, high=self.loss.cispo_high)
        if not self.loss.by_sequence:
            return policy_loss(current, base, advantages, **clips)  # type: ignore[arg-type]
        rows = torch.as_tensor(np.unique(self._rows[where], return_inverse=True)[1], device=current.device)
        per_token = kind == "gspo-token"
        return sequence_loss(current, base, advantages, rows, is_rl, per_token=per_token, **clips)  # type: ignore[arg-type]

    def _shaped(self, terms: PolicyTerms, current: Tensor, advantages: Tensor, where: np.ndarray) -> PolicyTerms:
        """The same, with a loss of their own for demonstrations (RL tokens that no policy produced)."""
        shown = self.part.rl_mask[where] & (self.part.versions[where] < 0)
        if self.loss.demo_shaping is None or self.loss.by_sequence or not shown.any():
            return terms
        is_shown = torch.as_tensor(shown, device=current.device)
        own = shaped_loss(current, advantages, self.loss.demo_shaping)
        return PolicyTerms(*(torch.where(is_shown, getattr(own, f), getattr(terms, f)) for f in PolicyTerms.__slots__))

    def whole(self) -> np.ndarray:
        """float64: `SUMS` of what belongs to the minibatch as a whole: the pairs."""
        out = np.zeros(len(SUMS))
        if self.pairs is not None:
            out[0] = self.pairs.loss
            out[-3:] = self.pairs.right, self.pairs.margin, len(self.part.preferences)
        return out
