"""What the reference trainer can be told. Invariants: no torch import (a recipe is read without it); every combination that
would train on the wrong quantity is refused when the settings are made, not when the first step runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gfcr.errors import ConfigError, leave_out
from gfcr.registry import FrozenModel


class LoraSettings(FrozenModel):
    """Train an adapter instead of the model's own weights: LoRA (arXiv:2106.09685). Needs `gfcr[lora]`."""

    r: int = Field(16, ge=1)
    """Rank of each adapted matrix's change."""
    alpha: float = Field(32.0, gt=0)
    """The change is alpha / r times B A."""
    targets: tuple[Annotated[str, Field(min_length=1)], ...] = Field(("all-linear",), min_length=1)
    """Names of the modules to adapt (`q_proj`, `c_attn`, ...), or `all-linear`: every linear layer but the head."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Must be 0: with dropout the loss would be taken on another policy than the one that answered."""

    @model_validator(mode="after")
    def _no_dropout(self) -> Self:
        if self.dropout:
            raise ConfigError(
                f"train.lora.dropout = {self.dropout}: the ratio would compare the policy that answered with another one at every"
                " pass",
                "set train.lora.dropout = 0; use train.weight_decay or a smaller train.lora.r against overfitting",
            )
        return self


class LossSettings(FrozenModel):
    """Which loss the reference trainer minimises. Tokens with an advantage, with a cross-entropy weight and preference pairs
    are three kinds of data; `wants` says which one the kind is for (cross-entropy tokens may stand beside the others)."""

    kind: Literal["ppo", "cispo", "gspo", "gspo-token", "dpo", "ipo", "sft"] = "ppo"
    """`ppo`: clipped token ratio (arXiv:1707.06347; clips in [train]). `cispo`: clipped, detached importance weight times
    log-probability (arXiv:2506.13585). `gspo`: clipped ratio of the whole answer (arXiv:2507.18071), `gspo-token` its form for
    advantages that differ within an answer. `dpo` (arXiv:2305.18290), `ipo` (arXiv:2310.12036): preference pairs. `sft`:
    cross-entropy alone."""
    cispo_low: float = Field(0.0, ge=0, le=1)
    """CISPO: smallest importance weight (1 - eps_low); 0 = no lower bound, as in the paper."""
    cispo_high: float = Field(5.0, ge=1)
    """CISPO: largest importance weight. The paper tunes 1 + eps_high and does not print it; 5 is ScaleRL's (arXiv:2510.13786)
    and TRL's advice."""
    beta: float = Field(0.1, gt=0)
    """DPO: strength of the pull to the reference; IPO: its tau."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """DPO: assumed share of pairs labelled the wrong way round (conservative DPO)."""
    pair_reference: Literal["start", "behaviour"] = "start"
    """Reference of DPO and IPO: a frozen copy of the weights the run started from, or the law that sampled each token (online
    preference tuning; no second model)."""
    pair_length: Literal["sum", "mean"] | None = None
    """Log-probability of an answer: the sum over its tokens or their mean; None = sum for `dpo`, mean for `ipo` (the form of
    the IPO paper's results, says TRL, who asked; its text has the sum)."""
    demo_shaping: float | None = Field(None, gt=0)
    """Tokens of a demonstration (nobody sampled them) get f(p) = p / (p + this) in the ratio's place, without a clip (LUFFY,
    arXiv:2504.14945: 0.1); None = a ratio like the others', which starts at 1."""

    @property
    def wants(self) -> Literal["advantages", "pairs", "cross-entropy"]:
        """The credit this kind is for."""
        return "pairs" if self.kind in ("dpo", "ipo") else "cross-entropy" if self.kind == "sft" else "advantages"

    @property
    def by_sequence(self) -> bool:
        """Whether an answer has one ratio for all its tokens."""
        return self.kind in ("gspo", "gspo-token")

    @property
    def mean_of_tokens(self) -> bool:
        """Whether a pair compares means instead of sums of log-probabilities."""
        return self.pair_length == "mean" or (self.pair_length is None and self.kind == "ipo")


class ValueSettings(FrozenModel):
    """A value head on the policy's trunk, and GAE (arXiv:1506.02438) on its values: the critic of PPO."""

    gamma: float = Field(1.0, ge=0, le=1)
    """Discount per own token."""
    lam: float = Field(0.95, ge=0, le=1)
    """Lambda of GAE; 1 = return minus value, 0 = one-step error."""
    turn_gamma: float | None = Field(None, ge=0, le=1)
    """Discount per turn of bi-level GAE: first over turns (the recorded ones, `Batch.turns`), then inside each (RAGEN, arXiv:2504.20073;
    official .95). None = one level, over tokens."""
    whiten: bool = True
    """Advantages get mean 0 and variance 1 over the batch's RL tokens (unbiased variance + 1e-8, as in verl)."""
    lr: float | None = Field(None, gt=0)
    """Peak learning rate of the head, on the policy's schedule; None = the policy's own."""
    coef: float = Field(0.1, ge=0)
    """Factor of the value loss 0.5 (V - return)^2 (TRL's 0.1)."""
    clip: float | None = Field(0.2, gt=0)
    """A new value counts at most this far from the one before the step, where that makes the loss larger (TRL's 0.2); None = off."""
    detach: bool = False
    """The value loss trains the head only, never the trunk."""


class TrainSettings(FrozenModel):
    """Settings of `gfcr.train.trainer.Trainer`. Defaults are those the lab was measured with (one update a step)."""

    lr: float = Field(6e-4, gt=0)
    """Peak learning rate of AdamW. 6e-4 suits the 85k-parameter lab model; a billion parameters want about 1e-6."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Shape of the learning rate over the run's `progress` in [0, 1], the share of the token budget spent."""
    lr_floor: float = Field(0.1, ge=0, le=1)
    """Share of `lr` left at progress 1, for `linear` and `cosine`."""
    warmup_steps: int = Field(0, ge=0)
    """Optimiser updates over which the rate rises linearly to its schedule; 0 = none."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's decay rates of the first and second moment."""
    eps: float = Field(1e-8, gt=0)
    """AdamW's term in the denominator."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay, on matrices only (norm gains and biases are never decayed)."""
    grad_clip: float | None = Field(1.0, gt=0)
    """Largest global gradient norm; None = not clipped."""
    minibatches: int = Field(1, ge=1)
    """Optimiser updates per epoch: the batch's rows are shuffled and split evenly."""
    epochs: int = Field(1, ge=1)
    """Passes over the batch."""
    micro_tokens: int = Field(16384, ge=1)
    """Most padded tokens in one forward pass; a longer row goes alone. Bounds memory, never changes the loss."""
    logits_chunk: int | None = Field(None, ge=1)
    """Tokens whose vocabulary logits exist at once; None = as many as make 2**24 logits (64 MiB in float32)."""
    checkpoint_layers: bool = False
    """Recompute each layer in the backward pass instead of keeping its activations: a third more time, far less memory."""
    clip_low: float = Field(0.2, ge=0, le=1)
    """The ratio is clipped below at 1 - clip_low (PPO, arXiv:1707.06347)."""
    clip_high: float = Field(0.28, ge=0)
    """The ratio is clipped above at 1 + clip_high (clip-higher, DAPO, arXiv:2503.14476)."""
    dual_clip: float | None = Field(None, gt=1)
    """Bound c of the loss of a bad token, at most c * |advantage| (dual clip, arXiv:1912.09729); None = unbounded."""
    kl: float = Field(0.0, ge=0)
    """Coefficient of the k3 estimate of KL(policy || reference) in the loss (GRPO, arXiv:2402.03300); 0 = no reference."""
    tis_cap: float | None = Field(None, gt=0)
    """Cap C of truncated importance sampling: each token's loss times min(pi_prox / pi_behave, C), detached; None = off."""
    ratio_base: Literal["proximal", "behaviour"] = "proximal"
    """Denominator of the clipped ratio: the weights before this step (decoupled), or the law that sampled the token
    (bypass: no extra forward pass, and the ratio itself carries the off-policy correction)."""
    lora: LoraSettings | None = None
    """Train an adapter, not the weights; about ten times the `lr` of full training. None = train all weights."""
    value: ValueSettings | None = None
    """The critic of `credit = {name = "gae"}`; None = none."""
    device: str = "cpu"
    """Where the model trains, in torch's words: `cpu`, `cuda`, `cuda:1`, `mps`."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Arithmetic of the transformer. `bfloat16` keeps parameters and optimiser state in float32 and autocasts; the softmax is
    at least float32 always."""
    seed_purpose: str = "train"
    """Purpose under which the minibatch shuffle draws from the run's seed (`gfcr.run.seeds.generator`)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.tis_cap is not None and self.ratio_base == "behaviour":
            raise ConfigError(
                f"train.tis_cap = {self.tis_cap} with train.ratio_base = 'behaviour': the ratio already holds"
                " pi/pi_behave, so the off-policy correction would be counted twice",
                "set train.ratio_base = 'proximal' (decoupled), or leave train.tis_cap out (bypass)",
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"train.betas = {self.betas}: a decay rate lies in [0, 1)", "use for example [0.9, 0.95]")
        return self

    @property
    def updates_per_step(self) -> int:
        """Optimiser updates one batch gives when it has rows enough."""
        return self.minibatches * self.epochs

    def learning_rate(self, progress: float, updates: int) -> float:
        """Learning rate of the next update.

        `progress`: share of the run's token budget spent, clamped to [0, 1]; `updates`: optimiser updates made so far.
        """
        if math.isnan(progress):
            raise ConfigError("train.step was given progress = nan", "pass the share of the token budget spent, 0 to 1")
        progress = min(max(progress, 0.0), 1.0)
        shape = 1.0
        if self.schedule == "linear":
            shape = 1.0 - (1.0 - self.lr_floor) * progress
        elif self.schedule == "cosine":
            shape = self.lr_floor + (1.0 - self.lr_floor) * 0.5 * (1.0 + math.cos(math.pi * progress))
        warm = min(1.0, (updates + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        return self.lr * shape * warm


_POLICY = ("ppo", "cispo", "gspo", "gspo-token")
_CLIPPED = ("ppo", "gspo", "gspo-token")
_PAIRS = ("dpo", "ipo")
READERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "train.clip_low": (_CLIPPED, "bounds a clipped ratio"),
    "train.clip_high": (_CLIPPED, "bounds a clipped ratio"),
    "train.dual_clip": (_CLIPPED, "bounds a clipped ratio"),
    "train.kl": (_POLICY, "acts on tokens that have an advantage"),
    "train.tis_cap": (("ppo", "cispo"), "weighs single tokens that have an advantage"),
    "train.ratio_base": (_POLICY, "is the denominator of a ratio"),
    "train.value": (("ppo", "cispo", "gspo-token"), "gives every token its own advantage"),
    "loss.cispo_low": (("cispo",), "bounds CISPO's weight"),
    "loss.cispo_high": (("cispo",), "bounds CISPO's weight"),
    "loss.demo_shaping": (("ppo", "cispo"), "shapes single tokens that have an advantage"),
    "loss.beta": (_PAIRS, "scales a preference loss"),
    "loss.label_smoothing": (("dpo",), "smooths the logistic loss of 'dpo'"),
    "loss.pair_reference": (_PAIRS, "is the reference of preference pairs"),
    "loss.pair_length": (_PAIRS, "says how preference pairs count length"),
}
"""Setting -> kinds of loss that read it, and what it is there for; what is not named here every loss reads (`loss.normalise`:
cross-entropy tokens may stand beside preference pairs)."""
_INSTEAD = {
    ("train.clip_low", "cispo"): "it clips a weight: loss.cispo_low",
    ("train.clip_high", "cispo"): "it clips a weight: loss.cispo_high",
    ("train.dual_clip", "cispo"): "it clips a weight: loss.cispo_high",
    ("train.kl", "dpo"): "its own pull to the reference is loss.beta",
    ("train.kl", "ipo"): "its own pull to the reference is loss.beta",
    ("loss.label_smoothing", "ipo"): "its loss is squared",
    **{(f"loss.cispo_{end}", kind): f"it clips a ratio: train.clip_{end}" for end in ("low", "high") for kind in _CLIPPED},
}


def mismatch(train: TrainSettings, loss: LossSettings) -> tuple[str, str] | None:
    """(why, remedy) when settings of the trainer and of the loss contradict each other, or one would be ignored; None = they go
    together. A setting at its default says nothing."""
    kind = f"loss.kind = {loss.kind!r}"
    if loss.by_sequence and train.tis_cap is not None:
        return (
            f"train.tis_cap weighs single tokens and {kind} whole answers: the two corrections do not multiply to a ratio",
            leave_out("train.tis_cap") + "; train.ratio_base = 'behaviour' makes the answer's own ratio the correction",
        )
    if loss.kind == "gspo" and train.value is not None:
        return f"train.value gives every token its own advantage, and {kind} has one per answer", "set loss.kind = 'gspo-token'"
    for key, (kinds, purpose) in READERS.items():
        section, name = (train, key.removeprefix("train.")) if key.startswith("train.") else (loss, key.removeprefix("loss."))
        usual = type(section).model_fields[name].default
        if loss.kind in kinds or getattr(section, name) == usual:
            continue
        instead = _INSTEAD.get((key, loss.kind))
        return f"{key} {purpose}, and {kind} has none" + (f" ({instead})" if instead else ""), leave_out(key, usual)
    if train.schedule == "constant" and train.lr_floor != TrainSettings.model_fields["lr_floor"].default:
        return (
            f"train.lr_floor = {train.lr_floor:g} is where a falling learning rate ends, and train.schedule = 'constant' does not"
            " fall",
            "set train.schedule = 'linear' or 'cosine', or "
            + leave_out("train.lr_floor", TrainSettings.model_fields["lr_floor"].default),
        )
    return None
