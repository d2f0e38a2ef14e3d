"""The reference trainer: a batch in, changed weights and what happened out.

Invariants: the loss of an update is sum(w * loss) with w from the whole minibatch, so micro-batches change nothing; a step is
a pure function of (weights, optimiser state, batch, progress, run seed), so replaying stored batches gives the same weights
bit for bit (one thread, one kind of device); an update whose loss or gradient is not finite leaves weights and optimiser
state untouched and is reported; numbers outside the masks never reach the arithmetic.

The trainer's law is softmax(logits / temperature). Where sampling also truncated (top-p, top-k), `behaviour` comes with the kept mass put
back (filter/columns.py), so that pi / behaviour compares like with like; where that mass is unknown, or sampling penalised, `behaviour` is
NaN, which counts in no weight.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfcr.errors import ConfigError
from gfcr.run.seeds import generator
from gfcr.train import state
from gfcr.train.check import check_batch
from gfcr.train.forward import PolicyForward
from gfcr.train.lora import Adapter
from gfcr.train.losses import effective_sample_size
from gfcr.train.micro import MicroBatch, micro_batches
from gfcr.train.objective import SUMS, Objective
from gfcr.train.preference import compare, pair_tokens, pair_units
from gfcr.train.settings import LossSettings, TrainSettings, mismatch
from gfcr.train.value import Critic, ValueHead, criticise
from gfcr.types.batch import Batch


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
    """Effective sample size of the importance weights pi_prox / pi_behave (truncated ones with `tis_cap`), in (0, 1], over the tokens
    whose pi_behave is known; None where none is."""
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
    nll: float | None = None
    """Mean -log p of the tokens with a cross-entropy weight, in nats, unweighted."""
    pairs: int | None = None
    """Preference pairs trained, over all updates made."""
    pair_accuracy: float | None = None
    """Share of them whose chosen answer gained more over the reference than the rejected one, before each update."""
    pair_margin: float | None = None
    """Mean of beta times the difference of those gains, in nats."""
    value_loss: float | None = None
    """Mean over RL tokens, before `value.coef`."""
    explained_variance: float | None = None
    """Of the returns by the value head before this step: 1 - Var(return - value) / Var(return)."""


class Trainer:
    """AdamW on the policy-gradient, cross-entropy and preference losses of a `Batch`; one process, one device."""

    def __init__(
        self,
        model: Any,
        settings: TrainSettings,
        run_seed: int = 0,
        reference: Any = None,
        loss: LossSettings | None = None,
    ) -> None:
        """`model`: an `AutoModelForCausalLM`, owned from now on; `reference`: the frozen policy of the KL term and of
        preference losses, by default a copy of `model` as it is now (made only when one is needed); `loss`: None = `ppo`."""
        self.settings = settings
        self.loss = loss or LossSettings()
        if wrong := mismatch(settings, self.loss):
            raise ConfigError(*wrong)
        self.run_seed = run_seed
        wide = torch.float64 if settings.dtype == "float64" else torch.float32
        self.adapter = None if settings.lora is None else Adapter(model, settings.lora, run_seed)
        """What is trained instead of the model's own weights; None = those are."""
        self.model = model.to(device=settings.device, dtype=wide)
        self.reference: Any = None
        if settings.kl > 0 or (self.loss.wants == "pairs" and self.loss.pair_reference == "start"):
            start = copy.deepcopy(self.model) if self.adapter is None else self.adapter.frozen()
            frozen = start if reference is None else reference.to(settings.device)
            self.reference = frozen.requires_grad_(False)
        self.policy = PolicyForward(self.model, settings.logits_chunk, settings.dtype)
        if settings.checkpoint_layers:
            self.policy.checkpoint_layers()
        self._reference: PolicyForward | None = None
        if self.reference is not None:
            self._reference = PolicyForward(self.reference, settings.logits_chunk, settings.dtype)
        self.value: ValueHead | None = None
        if settings.value is not None:
            self.value = ValueHead(int(model.config.get_text_config().hidden_size)).to(settings.device, wide)
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        flat = [p for p in self.parameters.values() if p.ndim < 2]
        decayed = [p for p in self.parameters.values() if p.ndim >= 2]
        groups: list[dict[str, Any]] = [
            {"params": decayed, "weight_decay": settings.weight_decay, "pace": 1.0},
            {"params": flat, "weight_decay": 0.0, "pace": 1.0},
        ]
        if self.value is not None and settings.value is not None:
            pace = 1.0 if settings.value.lr is None else settings.value.lr / settings.lr
            groups.append({"params": list(self.value.parameters()), "weight_decay": 0.0, "pace": pace})
            self.parameters |= {f"value_head.{name}": p for name, p in self.value.named_parameters()}
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
        check_batch(batch, self.policy.vocabulary, self.settings.kl, self.loss, self.value is not None)
        lr = self.settings.learning_rate(progress, self.updates)
        needed = batch.rl_mask | (batch.ce_weights != 0) | pair_tokens(batch)
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
                skipped="no RL or CE tokens" + (" and no pairs" if self.loss.wants == "pairs" else ""),
                seconds=time.perf_counter() - began,
            )
        batch, critic = self._criticise(batch)
        minibatches = self._minibatches(batch, active)
        reference = self._reference_logps(batch)
        proximal = self._proximal_logps(batch, minibatches)
        sums, norms, losses, reasons = np.zeros(len(SUMS)), [], [], []
        for number, rows in enumerate(minibatches):
            lr = self.settings.learning_rate(progress, self.updates)
            found = self._accumulate(batch, rows, proximal, reference, critic)
            norm = self._norm()
            if not (math.isfinite(found[0]) and math.isfinite(norm)):
                reasons.append(f"update {number + 1} of {len(minibatches)}: loss {found[0]:.6g}, gradient norm {norm:.6g}")
                self.optimizer.zero_grad(set_to_none=True)
                continue
            self._apply(norm, lr)
            sums += found
            norms.append(norm)
            losses.append(found[0])
        at = dict(zip(SUMS, sums, strict=True))

        def mean(name: str, over: str = "tokens") -> float | None:
            return at[name] / at[over] if at[over] else None

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
            nll=mean("nll", "ce_tokens"),
            pairs=int(at["pairs"]) if self.loss.wants == "pairs" else None,
            pair_accuracy=mean("pair_right", "pairs"),
            pair_margin=mean("pair_margin", "pairs"),
            value_loss=mean("value") if critic else None,
            explained_variance=critic.explained if critic else None,
        )

    def _cut(self, batch: Batch, needed: np.ndarray) -> list[MicroBatch]:
        return micro_batches(batch, needed, self.settings.micro_tokens, self.policy.split_cost)

    def _minibatches(self, batch: Batch, active: np.ndarray) -> list[np.ndarray]:
        """Row indices of every update: each epoch shuffles the rows that have a loss and splits them evenly (rows joined by
        preference pairs together)."""
        out = []
        units = pair_units(batch, active)
        for epoch in range(self.settings.epochs):
            draw = generator(self.run_seed, self.settings.seed_purpose, batch.round, epoch)
            parts = np.array_split(draw.permutation(len(units)), min(self.settings.minibatches, len(units)))
            out += [np.sort(np.concatenate([units[i] for i in part])) for part in parts]
        return out

    def _criticise(self, batch: Batch) -> tuple[Batch, Critic | None]:
        """The batch with advantages made of its rewards and of the values under the weights before this step."""
        if batch.token_rewards is None or self.value is None or self.settings.value is None:
            return batch, None
        values = np.full(len(batch.rl_mask), np.nan)
        with torch.no_grad():
            for micro in self._cut(batch, batch.rl_mask):
                values[micro.tokens] = self.policy.values(micro, self.value).double().cpu().numpy()
        advantages, critic = criticise(batch, values, self.settings.value)
        return replace(batch, advantages=advantages.astype(np.float32)), critic

    def _logps(self, forward: PolicyForward, batch: Batch, needed: np.ndarray) -> np.ndarray:
        """float32[N] log-probabilities where `needed`, NaN elsewhere; no gradient."""
        out = np.full(len(needed), np.nan, np.float64 if self.settings.dtype == "float64" else np.float32)
        with torch.no_grad():
            for micro in self._cut(batch, needed):
                logp, _ = forward(micro, batch.input_ids[micro.tokens], batch.temperature[micro.tokens], entropy=False)
                out[micro.tokens] = logp.cpu().numpy()
        return out

    def _reference_logps(self, batch: Batch) -> np.ndarray | None:
        """The batch's own where it has them, else the reference model's (or, for pairs, the law that sampled the tokens); None
        when no KL is wanted or reported."""
        pairs = pair_tokens(batch)
        if pairs.any() and self.loss.pair_reference == "behaviour":
            return batch.behaviour
        wanted = batch.rl_mask | pairs
        missing = wanted & np.isnan(batch.reference)
        if self._reference is None:
            return None if missing.any() or not wanted.any() else batch.reference
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

    def _accumulate(
        self,
        batch: Batch,
        rows: np.ndarray,
        proximal: np.ndarray,
        reference: np.ndarray | None,
        critic: Critic | None = None,
    ) -> np.ndarray:
        """Gradients of one minibatch's loss into `.grad`; returns its `SUMS`."""
        part = batch.rows(rows)
        place = np.concatenate([np.arange(batch.offsets[i], batch.offsets[i + 1]) for i in rows])
        known_reference = None if reference is None else reference[place]
        objective = Objective(self.settings, self.loss, part, known_reference, critic and critic.cut(place))
        paired = pair_tokens(part)
        micros = self._cut(part, part.rl_mask | (part.ce_weights != 0) | paired)
        if paired.any() and len(micros) > 1:  # a pair's rows may lie in different micro-batches
            assert known_reference is not None
            objective.pairs = compare(part, self._logps(self.policy, part, paired), known_reference, self.loss)
        detach = self.settings.value is not None and self.settings.value.detach
        total = torch.from_numpy(np.zeros(len(SUMS)))
        for micro in micros:
            where = micro.tokens
            logp, entropy, values = self.policy.with_values(
                micro, part.input_ids[where], part.temperature[where], self.value, detach=detach
            )
            assert entropy is not None
            at = place[where]
            known = proximal[at]
            if (fresh := np.isnan(known) & part.rl_mask[where]).any():
                known = np.where(fresh, logp.detach().cpu().numpy(), known)
                proximal[at] = known
            if paired.any() and objective.pairs is None:
                assert known_reference is not None
                seen = np.full(len(paired), np.nan)
                seen[where] = logp.detach().cpu().numpy()
                objective.pairs = compare(part, seen, known_reference, self.loss)
            loss, sums = objective.share(micro, logp, entropy, known, values)
            loss.backward()
            total += sums.cpu()
        return total.numpy() + objective.whole()

    def _norm(self) -> float:
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads))

    def _apply(self, norm: float, lr: float) -> None:
        if (limit := self.settings.grad_clip) is not None:
            with_grad = [p for p in self.parameters.values() if p.grad is not None]
            torch.nn.utils.clip_grads_with_norm_(with_grad, limit, torch.tensor(norm, device=self.settings.device))
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["pace"]
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
