"""Log-probabilities and entropies of given tokens under a Hugging Face causal model.

Invariants: log-softmax in float32 or better; the law is softmax(logits / temperature) with the token's own temperature;
dropout is off; the [tokens, vocabulary] logits exist one chunk at a time, in the backward pass too (recomputed); logits are
computed only where a log-probability is wanted; every token run through the model is counted.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from gfcr.errors import ConfigError
from gfcr.train.flat_forward import FlatForward, proven
from gfcr.train.micro import FEWEST, SPLIT_COST, MicroBatch, ancestors

CHUNK_LOGITS = 2**24
"""Logits that exist at once when `logits_chunk` is None: 64 MiB in float32."""
_HEAD_TRICKS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
"""Configuration fields by which known architectures change logits after the head."""


class PolicyForward:
    """Runs micro-batches of one model. `tokens` and `padded` count what went through it, without and with padding."""

    def __init__(self, model: Any, logits_chunk: int | None = None, dtype: str = "float32") -> None:
        """`model`: an `AutoModelForCausalLM`, put into eval mode; `logits_chunk`, `dtype`: as in `TrainSettings`."""
        self.model = model.eval()
        self.tokens = 0
        self.padded = 0
        self.autocast = torch.bfloat16 if dtype == "bfloat16" else None
        config = model.config.get_text_config()
        self.vocabulary = int(config.vocab_size)
        self.chunk = logits_chunk or max(1, CHUNK_LOGITS // self.vocabulary)
        self.layer_types = set(getattr(config, "layer_types", None) or ("full_attention",))
        self.window = getattr(config, "sliding_window", None)
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self.head: nn.Module | None = self._find_head(config)
        self.flat: FlatForward | None = None
        """What runs micro-batches without padding and repetition; None = the model itself."""
        if self.head is not None and self.autocast is None:
            self.flat, probed = proven(self.model)
            self.tokens += probed
            self.padded += probed

    @property
    def split_cost(self) -> int:
        """Padding, in tokens, worth one more forward pass."""
        return SPLIT_COST if self.flat is None or not self.flat.free else FEWEST

    def _find_head(self, config: Any) -> nn.Module | None:
        """The output layer, when logits are exactly head(hidden states); None = only the full forward pass is right.

        Known tricks are read from the configuration (a soft cap is invisible on small logits), unknown ones are caught by
        comparing both ways on a probe.
        """
        head = self.model.get_output_embeddings()
        if head is None or self.model.base_model is self.model:
            return None
        if any(getattr(config, name, None) not in (None, 1, 1.0) for name in _HEAD_TRICKS):
            return None
        device = next(self.model.parameters()).device
        ids = (torch.arange(4, device=device) % self.vocabulary)[None]
        with torch.no_grad():
            full = self.model(input_ids=ids, use_cache=False).logits
            split = head(self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state)
        self.tokens += 8
        self.padded += 8
        return head if torch.equal(full, split) else None

    def _mask(self, micro: MicroBatch, device: torch.device) -> Any:
        """Attention mask: 2-D for chains; for packed trees an additive float mask [B, 1, T, T], one per attention type."""
        if micro.parents is None:
            return torch.as_tensor(micro.attention, device=device)
        implementation = getattr(self.model.config, "_attn_implementation", None)
        odd = self.layer_types - {"full_attention", "sliding_attention"}
        if odd or implementation not in ("eager", "sdpa") or not self.takes_positions:
            raise ConfigError(
                f"packed trees need plain attention with explicit positions and masks; this model has layers"
                f" {sorted(self.layer_types)}, attention implementation {implementation!r}",
                "load the model with attn_implementation='sdpa', or hand out trees per leaf instead of packed",
            )
        seen = ancestors(micro.parents)

        def additive(allowed: np.ndarray) -> Tensor:
            mask = torch.zeros(allowed.shape, device=device)
            return mask.masked_fill_(torch.as_tensor(~allowed, device=device), torch.finfo(torch.float32).min)[:, None].to(
                next(self.model.parameters()).dtype
            )

        if "sliding_attention" not in self.layer_types or not self.window:
            return additive(seen)
        near = micro.positions[:, :, None] - micro.positions[:, None, :] < self.window
        return {"full_attention": additive(seen), "sliding_attention": additive(seen & near)}

    def checkpoint_layers(self) -> None:
        """Keep no activations inside layers. Raises ConfigError for a model whose layers cannot be recomputed."""
        layers = [m for m in self.model.modules() if isinstance(m, GradientCheckpointingLayer)]
        if not layers or not self.model.supports_gradient_checkpointing:
            raise ConfigError(
                f"train.checkpoint_layers: {type(self.model).__name__} has no layers that can be recomputed",
                "set train.checkpoint_layers = false and lower train.micro_tokens",
            )
        new = "activation_checkpointing_enable"  # later transformers; the old name warns there
        getattr(self.model, new if hasattr(self.model, new) else "gradient_checkpointing_enable")({"use_reentrant": False})
        for layer in layers:  # transformers recomputes in training mode only; the flag on the layer itself leaves dropout off
            layer.training = True

    def __call__(
        self, micro: MicroBatch, targets: np.ndarray, temperature: np.ndarray, entropy: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """(log-probabilities, entropies) of the micro-batch's n wanted tokens, in nats; the first with gradient.

        `targets`: int[n] their ids; `temperature`: float[n], NaN = 1. `entropy` False spares its computation (None).
        """
        logp, found, _ = self.with_values(micro, targets, temperature, None, entropy)
        return logp, found

    def with_values(
        self,
        micro: MicroBatch,
        targets: np.ndarray,
        temperature: np.ndarray,
        value: nn.Module | None,
        entropy: bool = True,
        detach: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """As a call, and the values, float[n] with gradient, that the head `value` reads where the log-probabilities come
        from; `detach`: their gradient stops at the head. None without a head."""
        device = next(self.model.parameters()).device
        target = torch.as_tensor(targets.astype(np.int64), device=device)
        heat = np.where(np.isnan(temperature), 1.0, temperature)
        scale = None if (heat == 1.0).all() else torch.as_tensor(heat, device=device, dtype=torch.float32)
        with torch.autocast(device.type, dtype=self.autocast or torch.bfloat16, enabled=self.autocast is not None):
            states, hidden = self._states(micro, value is not None)
            logp, found = self._chunks(states, target, scale, entropy)
        if value is None or hidden is None:
            return logp, found, None
        return logp, found, value(hidden.detach() if detach else hidden)

    def values(self, micro: MicroBatch, value: nn.Module) -> Tensor:
        """Values alone, float[n]: no logits are computed."""
        device = next(self.model.parameters()).device
        with torch.autocast(device.type, dtype=self.autocast or torch.bfloat16, enabled=self.autocast is not None):
            _, hidden = self._states(micro, True)
        assert hidden is not None
        found: Tensor = value(hidden)
        return found

    def _states(self, micro: MicroBatch, hidden: bool) -> tuple[Tensor, Tensor | None]:
        """(what `_law` reads: hidden states, or logits without a known head; hidden states when wanted), at the n places."""
        if self.flat is not None and micro.parents is None and self.flat.free:
            states, through = self.flat(micro)
            self.tokens += through
            self.padded += through
            return states, states
        device = next(self.model.parameters()).device
        inputs: dict[str, Any] = {
            "input_ids": torch.as_tensor(micro.input_ids, device=device),
            "attention_mask": self._mask(micro, device),
            "use_cache": False,
        }
        if self.takes_positions:
            inputs["position_ids"] = torch.as_tensor(micro.positions, device=device)
        self.tokens += micro.real
        self.padded += micro.input_ids.size
        source = torch.as_tensor(micro.sources, device=device)
        if self.head is not None:
            states = self.model.base_model(**inputs).last_hidden_state.flatten(0, 1)[source]
            return states, states
        out = self.model(**inputs, output_hidden_states=hidden)
        return out.logits.flatten(0, 1)[source], out.hidden_states[-1].flatten(0, 1)[source] if hidden else None

    def _chunks(self, values: Tensor, target: Tensor, scale: Tensor | None, entropy: bool) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities from hidden states (or logits), a chunk at a time; several are recomputed in backward."""
        n = len(target)
        if n <= self.chunk:
            return self._law(values, target, scale, entropy)
        parts = []
        for start in range(0, n, self.chunk):
            piece = slice(start, start + self.chunk)
            arguments = (values[piece], target[piece], None if scale is None else scale[piece], entropy)
            if torch.is_grad_enabled():
                parts.append(checkpoint(self._law, *arguments, use_reentrant=False, preserve_rng_state=False))
            else:
                parts.append(self._law(*arguments))
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]) if entropy else None

    def _law(self, values: Tensor, target: Tensor, scale: Tensor | None, entropy: bool) -> tuple[Tensor, Tensor | None]:
        logits = values if self.head is None else self.head(values)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if scale is not None:
            logits = logits / scale[:, None]
        logs = torch.log_softmax(logits, dim=-1)
        picked = logs.gather(1, target[:, None])[:, 0]
        if not entropy:
            return picked, None
        with torch.no_grad():
            return picked, -(logs.exp() * logs).sum(-1)
