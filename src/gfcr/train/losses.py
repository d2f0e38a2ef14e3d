"""Per-token losses on flat tensors. Invariants: pure functions, no reduction (the caller weights and sums, so micro-batches
change nothing); ratios are formed in log space and clamped to [-20, 20]; whatever serves as a constant (base, advantage,
importance weight, reference) carries no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Bound of every log ratio: exp(20) is about 5e8, still finite when squared in float32."""
K3_LIMIT = 10.0
"""Bound of one token's k3 (verl's `kl_penalty` clamps alike): one surprising token must not own the gradient."""


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """What `policy_loss` found, per token."""

    loss: Tensor
    """float[n], with gradient."""
    ratio: Tensor
    """float[n], detached."""
    clipped_low: Tensor
    """bool[n]: the lower clip holds (advantage < 0, ratio below it), so the token has no gradient."""
    clipped_high: Tensor
    """bool[n]: the upper clip holds (advantage > 0, ratio above it)."""
    clipped_dual: Tensor
    """bool[n]: the dual clip holds (advantage < 0, ratio above c)."""


def log_ratio(logp: Tensor, base: Tensor) -> Tensor:
    """log(pi / base) in [-20, 20], float[n]; beyond the limits it has no gradient."""
    return (logp - base).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def policy_loss(
    logp: Tensor, base: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> PolicyTerms:
    """Clipped policy-gradient loss per token, to be minimised.

    -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) with r = exp(logp - base): PPO, arXiv:1707.06347 eq. 7; separate clips,
    DAPO, arXiv:2503.14476 eq. 10. With `dual_clip` c and A < 0 the loss is at most -c A: arXiv:1912.09729 eq. 5.
    `logp`, `base`, `advantages`: float[n] in nats and in units of the advantage.
    """
    return _clipped(log_ratio(logp, base.detach()).exp(), advantages, clip_low, clip_high, dual_clip)


def _clipped(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, dual_clip: float | None) -> PolicyTerms:
    """The clipped loss of given ratios, float[n] with gradient."""
    advantages = advantages.detach()
    fixed = ratio.detach()
    loss = torch.maximum(-ratio * advantages, -ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages)
    bad, good = advantages < 0, advantages > 0
    dual = torch.zeros_like(bad)
    if dual_clip is not None:
        loss = torch.where(bad, torch.minimum(loss, -advantages * dual_clip), loss)
        dual = bad & (fixed > dual_clip)
    return PolicyTerms(
        loss=loss,
        ratio=fixed,
        clipped_low=bad & (fixed < 1.0 - clip_low),
        clipped_high=good & (fixed > 1.0 + clip_high),
        clipped_dual=dual,
    )


def shaped_loss(logp: Tensor, advantages: Tensor, gamma: float) -> PolicyTerms:
    """-f(p) A per token with f(p) = p / (p + gamma), p = exp(logp): for tokens that no policy sampled, whose probability under the
    teacher counts as 1, no clip (LUFFY, arXiv:2504.14945; gamma = .1). A token of low probability keeps a large gradient."""
    p = logp.clamp(min=-LOG_RATIO_LIMIT).exp()
    none = torch.zeros_like(logp, dtype=torch.bool)
    return PolicyTerms(-(p / (p + gamma)) * advantages.detach(), p.detach(), none, none, none)


def sequence_loss(
    logp: Tensor,
    base: Tensor,
    advantages: Tensor,
    rows: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    per_token: bool = False,
) -> PolicyTerms:
    """`policy_loss` with the ratio of the whole answer, s = exp(mean over its tokens of logp - base), on each of its tokens.

    GSPO, arXiv:2507.18071 eq. 5 to 7; its clips are of the order 3e-4. Under sequence-mean weights the sum over an answer is
    its one loss. `per_token` (GSPO-token, eq. 13 and 14): s keeps its value, and the gradient of a token's loss runs through
    that token alone, so advantages may differ within an answer.
    `rows`: int64[n], 0 to R - 1, the answer of each token, all of whose tokens are here; `mask`: bool[n], tokens that count.
    """
    steps = torch.where(mask, logp - base.detach(), torch.zeros_like(logp))
    none = steps.new_zeros(int(rows.max()) + 1 if len(rows) else 1)
    count = none.index_add(0, rows, mask.to(steps.dtype)).clamp(min=1)
    logs = (none.index_add(0, rows, steps) / count)[rows]
    if per_token:
        logs = logs.detach() + (steps - steps.detach())
    return _clipped(logs.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp(), advantages, clip_low, clip_high, dual_clip)


def cispo_loss(logp: Tensor, base: Tensor, advantages: Tensor, *, low: float, high: float) -> PolicyTerms:
    """-sg(clip(r, low, high)) A logp per token: the weight is clipped, the token keeps its gradient.

    CISPO, MiniMax-M1, arXiv:2506.13585 eq. 4 and 5 (there low = 1 - eps_low = 0, high = 1 + eps_high). `clipped_low` and
    `clipped_high` say where the weight was cut, whatever the advantage's sign.
    """
    ratio = log_ratio(logp.detach(), base.detach()).exp()
    loss = -ratio.clamp(low, high) * advantages.detach() * logp
    return PolicyTerms(
        loss=loss, ratio=ratio, clipped_low=ratio < low, clipped_high=ratio > high, clipped_dual=torch.zeros_like(ratio > high)
    )


def preference_loss(margin: Tensor, reference: Tensor, *, beta: float, squared: bool, smoothing: float = 0.0) -> Tensor:
    """Loss per preference pair, float[p], from log p(chosen) - log p(rejected) under the policy and under the reference.

    With h their difference: -(1 - s) log sigma(beta h) - s log sigma(-beta h), DPO, arXiv:2305.18290 eq. 7, with a share s of
    wrong labels (conservative DPO); `squared`: (h - 1 / (2 beta))^2, IPO, arXiv:2310.12036 eq. 17.
    """
    h = margin - reference.detach()
    if squared:
        return (h - 1.0 / (2.0 * beta)) ** 2
    loss = -torch.nn.functional.logsigmoid(beta * h)
    return loss if not smoothing else (1.0 - smoothing) * loss - smoothing * torch.nn.functional.logsigmoid(-beta * h)


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """0.5 max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2) per token, float[n] (PPO's own code; TRL, verl)."""
    loss = (values - returns) ** 2
    if clip is not None:
        near = old + (values - old).clamp(-clip, clip)
        loss = torch.maximum(loss, (near - returns) ** 2)
    return 0.5 * loss


def k3(logp: Tensor, reference: Tensor) -> Tensor:
    """k3 estimate of KL(policy || reference) per token, float[n] >= 0, with gradient.

    exp(d) - d - 1 with d = reference - logp (GRPO, arXiv:2402.03300 eq. 4); d clamped to [-20, 20], k3 to at most 10.
    """
    d = log_ratio(reference.detach(), logp)
    return (d.exp() - d - 1.0).clamp(max=K3_LIMIT)


def truncated_weights(proximal: Tensor, behaviour: Tensor, cap: float | None) -> Tensor:
    """Importance weight min(pi_prox / pi_behave, cap) per token, float[n], detached; 1 where nobody sampled the token (NaN).

    Truncated importance sampling of decoupled PPO (arXiv:2505.24298 eq. 5; FlashRL). `cap` None = not truncated.
    """
    weights = log_ratio(proximal, behaviour).exp().detach()
    weights = torch.where(torch.isnan(behaviour), torch.ones_like(weights), weights)
    return weights if cap is None else weights.clamp(max=cap)


def effective_sample_size(total: float, squares: float, n: float) -> float | None:
    """ESS of importance weights as a share in (0, 1]: (sum w)^2 / (n sum w^2); None without weights."""
    return total * total / (n * squares) if n and squares else None
