"""The reference trainer: a batch in, changed weights and what happened out.

Invariants: the loss of an update is sum(w * loss) with w from the whole minibatch, so micro-batches change nothing; a step is
a pure function of (weights, optimiser state, batch, progress, run seed), so replaying stored batches gives the same weights
bit for bit (one thread, one kind of device); an update whose loss or gradient is not finite leaves weights and optimiser
state untouched and is reported; numbers outside the masks never reach the arithmetic.

The trainer's law is softmax(logits / temperature). Where sampling also truncated (top-p, top-k), `behaviour` is renormalised
over the kept set and pi / behaviour is biased by the kept mass: the recipe's composition check refuses that, not the trainer.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfcr.run.seeds import generator
from gfcr.train import state
from gfcr.train.check import check_batch
from gfcr.train.forward import PolicyForward
from gfcr.train.lora import Adapter
from gfcr.train.losses import effective_sample_size, k3, policy_loss, truncated_weights
from gfcr.train.micro import MicroBatch, micro_batches
from gfcr.train.settings import TrainSettings
from gfcr.types.batch import Batch

_SUMS = ("loss", "tokens", "low", "high", "dual", "ratio", "kl", "entropy", "weights", "squares", "weighed")


@dataclass(frozen=True, slots=True)
class StepStats:
    """What one `Trainer.step` did. Means run over the RL tokens of all updates made; None = there was nothing to average."""

    loss: float | None
    """Mean over the updates made; 0 for a batch without loss tokens, None when every update was skipped."""
    grad_norm: float | None
    """Global norm before clipping, mean over the updates made."""
    lr: float
    """Learning rate of the last update tried."""
    clip_low: float | None
    """Share of RL tokens held by the lower clip."""
    clip_high: float | None
    clip_dual: float | None
    ratio: float | None
    """Mean of pi / base."""
    kl: float | None
    """Mean k3 against the reference in nats; None without a reference."""
    entropy: float | None
    """Mean entropy of the sampling law (at its temperature) in nats."""
    ess: float | None
    """Effective sample size of the importance weights pi_prox / pi_behave (truncated ones with `tis_cap`), in (0, 1]."""
    tokens: int
    """Tokens run through the models, without padding: policy, proximal and reference passes."""
    rl_tokens: int
    """Tokens with an RL loss in the batch."""
    updates: int
    """Optimiser updates made."""
    skipped: str | None
    """Why one or more updates were left out; None = all were made."""
    seconds: float
    """Wall time."""


class Trainer:
    """AdamW on the clipped policy-gradient and cross-entropy losses of a `Batch`; one process, one device."""

    def __init__(self, model: Any, settings: TrainSettings, run_seed: int = 0, reference: Any = None) -> None:
        """`model`: an `AutoModelForCausalLM`, owned from now on; `reference`: the frozen policy of the KL term, by default a
        copy of `model` as it is now (made only when `settings.kl` > 0)."""
        self.settings = settings
        self.run_seed = run_seed
        wide = torch.float64 if settings.dtype == "float64" else torch.float32
        self.adapter = None if settings.lora is None else Adapter(model, settings.lora, run_seed)
        """What is trained instead of the model's own weights; None = those are."""
        self.model = model.to(device=settings.device, dtype=wide)
        self.reference: Any = None
        if settings.kl > 0:
            start = copy.deepcopy(self.model) if self.adapter is None else self.adapter.frozen()
            frozen = start if reference is None else reference.to(settings.device)
            self.reference = frozen.requires_grad_(False)
        self.policy = PolicyForward(self.model, settings.logits_chunk, settings.dtype)
        if settings.checkpoint_layers:
            self.policy.checkpoint_layers()
        self._reference: PolicyForward | None = None
        if self.reference is not None:
            self._reference = PolicyForward(self.reference, settings.logits_chunk, settings.dtype)
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        flat = [p for p in self.parameters.values() if p.ndim < 2]
        decayed = [p for p in self.parameters.values() if p.ndim >= 2]
        groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": flat, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(
            [g for g in groups if g["params"]], lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True
        )
        self.steps = 0
        """Steps taken, skipped ones too."""
        self.updates = 0
        """Optimiser updates made."""

    @property
    def tokens(self) -> int:
        """Tokens run through the models since this object was made, without padding (start-up probes included)."""
        return self.policy.tokens + (self._reference.tokens if self._reference else 0)

    def step(self, batch: Batch, progress: float = 0.0) -> StepStats:
        """Train on `batch`; `progress` in [0, 1] is the share of the token budget spent (for the schedule).

        Raises DataError (naming row and value) for numbers inside the masks that are not finite, ConfigError for batches of a
        kind this trainer has no loss for. Rows without a loss token take no part.
        """
        began, counted = time.perf_counter(), self.tokens
        check_batch(batch, self.policy.vocabulary, self.settings.kl)
        lr = self.settings.learning_rate(progress, self.updates)
        needed = batch.rl_mask | (batch.ce_weights != 0)
        active = np.flatnonzero(np.bincount(batch.row_of_token()[needed], minlength=len(batch)))
        self.steps += 1
        if not len(active):
            return StepStats(
                loss=0.0,
                grad_norm=0.0,
                lr=lr,
                clip_low=None,
                clip_high=None,
                clip_dual=None,
                ratio=None,
                kl=None,
                entropy=None,
                ess=None,
                tokens=0,
                rl_tokens=0,
                updates=0,
                skipped="no RL or CE tokens",
                seconds=time.perf_counter() - began,
            )
        minibatches = self._minibatches(batch, active)
        reference = self._reference_logps(batch)
        proximal = self._proximal_logps(batch, minibatches)
        sums, norms, losses, reasons = np.zeros(len(_SUMS)), [], [], []
        for number, rows in enumerate(minibatches):
            lr = self.settings.learning_rate(progress, self.updates)
            found = self._accumulate(batch, rows, proximal, reference)
            norm = self._norm()
            if not (math.isfinite(found[0]) and math.isfinite(norm)):
                reasons.append(f"update {number + 1} of {len(minibatches)}: loss {found[0]:.6g}, gradient norm {norm:.6g}")
                self.optimizer.zero_grad(set_to_none=True)
                continue
            self._apply(norm, lr)
            sums += found
            norms.append(norm)
            losses.append(found[0])
        at = dict(zip(_SUMS, sums, strict=True))
        n = at["tokens"]

        def mean(name: str) -> float | None:
            return at[name] / n if n else None

        return StepStats(
            loss=float(np.mean(losses)) if losses else None,
            grad_norm=float(np.mean(norms)) if norms else None,
            lr=lr,
            clip_low=mean("low"),
            clip_high=mean("high"),
            clip_dual=mean("dual"),
            ratio=mean("ratio"),
            kl=mean("kl") if reference is not None else None,
            entropy=mean("entropy"),
            ess=effective_sample_size(at["weights"], at["squares"], at["weighed"]),
            tokens=self.tokens - counted,
            rl_tokens=int(np.count_nonzero(batch.rl_mask)),
            updates=len(losses),
            skipped="; ".join(reasons) + " (weights and optimiser state left as they were)" if reasons else None,
            seconds=time.perf_counter() - began,
        )

    def _minibatches(self, batch: Batch, active: np.ndarray) -> list[np.ndarray]:
        """Row indices of every update: each epoch shuffles the rows that have a loss and splits them evenly."""
        out = []
        for epoch in range(self.settings.epochs):
            draw = generator(self.run_seed, self.settings.seed_purpose, batch.round, epoch)
            parts = np.array_split(draw.permutation(active), min(self.settings.minibatches, len(active)))
            out += [np.sort(part) for part in parts]
        return out

    def _logps(self, forward: PolicyForward, batch: Batch, needed: np.ndarray) -> np.ndarray:
        """float32[N] log-probabilities where `needed`, NaN elsewhere; no gradient."""
        out = np.full(len(needed), np.nan, np.float64 if self.settings.dtype == "float64" else np.float32)
        with torch.no_grad():
            for micro in micro_batches(batch, needed, self.settings.micro_tokens):
                logp, _ = forward(micro, batch.input_ids[micro.tokens], batch.temperature[micro.tokens], entropy=False)
                out[micro.tokens] = logp.cpu().numpy()
        return out

    def _reference_logps(self, batch: Batch) -> np.ndarray | None:
        """The batch's own where it has them, else the reference model's; None when no KL is wanted or reported."""
        missing = batch.rl_mask & np.isnan(batch.reference)
        if self._reference is None:
            return None if missing.any() or not batch.rl_mask.any() else batch.reference
        if not missing.any():
            return batch.reference
        return np.where(missing, self._logps(self._reference, batch, missing), batch.reference)

    def _proximal_logps(self, batch: Batch, minibatches: list[np.ndarray]) -> np.ndarray:
        """Log-probabilities under the weights before this step, where they can't be had for free.

        NaN is left for the rows of the first update: there the weights are still those, so the current log-probabilities are
        the proximal ones, and `_accumulate` writes them down for later epochs. One update a step thus costs no extra pass.
        """
        missing = batch.rl_mask & np.isnan(batch.proximal)
        if self.settings.ratio_base == "behaviour":  # the proximal then only stands in for tokens that nobody sampled
            missing &= np.isnan(batch.behaviour)
        first = np.zeros(len(batch), bool)
        first[minibatches[0]] = True
        missing &= ~first[batch.row_of_token()]
        out = batch.proximal.astype(np.float64 if self.settings.dtype == "float64" else np.float32)
        return np.where(missing, self._logps(self.policy, batch, missing), out) if missing.any() else out

    def _accumulate(self, batch: Batch, rows: np.ndarray, proximal: np.ndarray, reference: np.ndarray | None) -> np.ndarray:
        """Gradients of one minibatch's loss into `.grad`; returns the sums of `_SUMS` over its RL tokens."""
        part = batch.rows(rows)
        place = np.concatenate([np.arange(batch.offsets[i], batch.offsets[i + 1]) for i in rows])
        rl, ce = part.token_weights(), part.token_weights(ce=True) * part.ce_weights
        needed = part.rl_mask | (part.ce_weights != 0)
        total: Tensor | None = None
        for micro in micro_batches(part, needed, self.settings.micro_tokens):
            where = micro.tokens
            logp, entropy = self.policy(micro, part.input_ids[where], part.temperature[where])
            at = place[where]
            known = proximal[at]
            if (fresh := np.isnan(known) & part.rl_mask[where]).any():
                known = np.where(fresh, logp.detach().cpu().numpy(), known)
                proximal[at] = known
            loss, sums = self._loss(part, micro, logp, entropy, known, None if reference is None else reference[at], rl, ce)
            loss.backward()
            total = sums if total is None else total + sums
        assert total is not None
        return total.cpu().numpy()

    def _loss(
        self,
        part: Batch,
        micro: MicroBatch,
        logp: Tensor,
        entropy: Tensor | None,
        proximal: np.ndarray,
        reference: np.ndarray | None,
        rl: np.ndarray,
        ce: np.ndarray,
    ) -> tuple[Tensor, Tensor]:
        """The micro-batch's share of the minibatch loss, and its `_SUMS`."""
        s, where = self.settings, micro.tokens
        mask = part.rl_mask[where]

        def send(values: np.ndarray, fill: float) -> Tensor:  # outside the RL mask stand harmless constants, never a NaN
            return torch.as_tensor(np.where(mask, values, fill), dtype=logp.dtype, device=logp.device)

        # the weight goes into the advantage: for a negative one (noise correction) the clip must see the sign it ends up with
        advantages = send(part.advantages[where] * np.where(mask, part.rl_weights[where], 0.0), 0.0)
        sampled = part.behaviour[where]
        behaviour = send(sampled, np.nan)
        near = send(proximal, 0.0)
        base = torch.where(torch.isnan(behaviour), near, behaviour) if s.ratio_base == "behaviour" else near
        is_rl = torch.as_tensor(mask, device=logp.device)
        current = torch.where(is_rl, logp, torch.zeros_like(logp))
        base = torch.where(is_rl, base, torch.zeros_like(base))
        terms = policy_loss(current, base, advantages, clip_low=s.clip_low, clip_high=s.clip_high, dual_clip=s.dual_clip)
        weights = truncated_weights(current.detach() if s.ratio_base == "behaviour" else near, behaviour, s.tis_cap)
        per_token = terms.loss if s.tis_cap is None else terms.loss * weights
        kl = torch.zeros_like(logp)
        if reference is not None:
            kl = torch.where(is_rl, k3(current, send(reference, 0.0)), kl)
            if s.kl:  # not times the RL weights: those correct the reward's gradient, the KL holds wherever the policy spoke
                leaves = 1.0 if part.multiplicity is None else send(part.multiplicity[where], 0.0)
                per_token = per_token + s.kl * kl * leaves
        w = torch.as_tensor(rl[where], dtype=logp.dtype, device=logp.device)
        loss = (w * per_token).sum()
        if ce.any():
            loss = loss - (torch.as_tensor(ce[where], dtype=logp.dtype, device=logp.device) * logp).sum()
        with torch.no_grad():
            weighed = is_rl & ~torch.isnan(behaviour)
            used = torch.where(weighed, weights, torch.zeros_like(weights))
            assert entropy is not None
            wide = torch.float32 if logp.device.type == "mps" else torch.float64  # mps has no float64
            sums = torch.stack(
                [
                    x.to(wide).sum()
                    for x in (
                        loss,
                        is_rl,
                        terms.clipped_low,
                        terms.clipped_high,
                        terms.clipped_dual,
                        torch.where(is_rl, terms.ratio, 0.0),
                        kl,
                        torch.where(is_rl, entropy, 0.0),
                        used,
                        used * used,
                        weighed,
                    )
                ]
            )
        return loss, sums

    def _norm(self) -> float:
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads))

    def _apply(self, norm: float, lr: float) -> None:
        if (limit := self.settings.grad_clip) is not None:
            with_grad = [p for p in self.parameters.values() if p.grad is not None]
            torch.nn.utils.clip_grads_with_norm_(with_grad, limit, torch.tensor(norm, device=self.settings.device))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1

    def weights(self) -> dict[str, Tensor]:
        """Snapshot of the policy for `engine.load`: the model's own `state_dict` names, copies that training won't change; an
        adapter is merged in.

        Tied weights appear under each of their names and share one tensor.
        """
        return state.snapshot(self.model.state_dict() if self.adapter is None else self.adapter.merged())

    def state_dict(self) -> dict[str, Tensor]:
        """Everything a step depends on, as flat name -> tensor without shared storage (fit for safetensors)."""
        return state.dump(self)

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of `state_dict`; raises DataError naming what is missing, unknown or of another shape."""
        state.restore(self, tensors)

    def save(self, directory: str | Path) -> list[Path]:
        """Write `model.safetensors` (loadable by Hugging Face beside its config) and `trainer.safetensors`; the paths written.
        With an adapter: `adapter_model.safetensors` and `adapter_config.json` (loadable by peft) in place of the first.

        The caller owns atomicity: write into a fresh directory, then commit it.
        """
        return state.save(self, Path(directory))

    def load(self, directory: str | Path) -> None:
        """Inverse of `save`."""
        state.load(self, Path(directory))
