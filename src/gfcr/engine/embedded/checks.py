"""Which architectures the embedded engine serves, and the proof at start-up that it serves this one right.

Invariant: an engine that starts (with its check on) has reproduced the log-probabilities of the plain full forward pass through
scoring, prefill, prefix copy, extension and decoding over the pool, on rows longer than the attention window where
`check_tokens` allows rows that long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfcr.engine.embedded.core import Core
from gfcr.engine.embedded.law import Laws, log_law
from gfcr.engine.embedded.model import Model
from gfcr.errors import ConfigError
from gfcr.types import Sampling

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
"""Largest difference of log-probabilities down to -10, relative below; half precisions get `HALF`."""
HALF = 0.25
SHORTEST = 26
BEYOND = 17
"""Tokens of a row beyond the window."""
LAWS = (Sampling(), Sampling(temperature=0.7))
PLAIN = {"full_attention", "sliding_attention"}
RECURRENT = (
    "mamba",
    "rwkv",
    "xlstm",
    "recurrent_gemma",
    "jamba",
    "zamba",
    "bamba",
    "lfm2",
    "falcon_h1",
    "nemotron_h",
    "granitemoehybrid",
    "minimax",
    "qwen3_next",
    "kimi_linear",
)
SCALED = ("logit_scale", "logits_scaling", "lm_head_multiplier")
"""Configuration fields by which models change logits after the head."""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What the start-up check found."""

    difference: float
    """Largest difference of log-probabilities in nats; NaN = nothing to compare (weights that are not finite, or no check)."""
    allowed: float
    tokens: int
    """Longest row; 0 = the check was off."""
    beyond_window: bool
    """Whether the rows are longer than the attention window, or there is none."""
    few_operations: bool = False
    """Whether the layers run in few operations (`embedded.lean`) instead of as transformers has them."""


def refuse_architecture(module: Any) -> None:
    """Raises ConfigError, naming the reason, for a model whose state is not plain attention keys and values."""
    config = module.config
    kind = getattr(config, "model_type", type(module).__name__)
    if reason := _reason(module, config, kind):
        raise ConfigError(
            f"the embedded engine cannot serve a {kind!r} model: it {reason}",
            "use a model with plain attention (Llama, Qwen3, Gemma, ...) or the HTTP engine",
        )


def _reason(module: Any, config: Any, kind: str) -> str:
    layers = set(getattr(config, "layer_types", None) or ())
    scaled = [name for name in SCALED if getattr(config, name, None) not in (None, 1, 1.0)]
    if getattr(config, "is_encoder_decoder", False):
        return "is an encoder-decoder"
    if config.get_text_config() is not config:
        return "wraps its language model (images, audio); load the language model alone"
    if kind.startswith(RECURRENT) or getattr(module, "_is_stateful", False):
        return "keeps recurrent state"
    if "chunked_attention" in layers:
        return f"attends within chunks of {getattr(config, 'attention_chunk_size', None)} positions"
    if odd := layers - PLAIN:
        return f"has layers of type {sorted(odd)[0]!r}; served are {', '.join(sorted(PLAIN))}"
    if getattr(config, "num_kv_shared_layers", 0):
        return "shares keys and values between layers"
    if getattr(config, "kv_lora_rank", None):
        return "compresses keys and values (latent attention)"
    if getattr(config, "alibi", False):
        return "biases attention by distance (ALiBi)"
    if getattr(config, "use_bidirectional_attention", None):
        return "attends to later tokens (use_bidirectional_attention)"
    if not getattr(module, "_supports_attention_backend", False):
        return "does not go through transformers' AttentionInterface, so its attention cannot be rerouted"
    if module.get_output_embeddings() is None:
        return "has no language-model head"
    if scaled:
        return f"changes its logits after the head ({scaled[0]})"
    return ""


def longest(config: Any, asked: int | None) -> int:
    """Longest context plus answer in tokens. Raises ConfigError when nothing says it, or when keys stored for short sequences
    would be wrong for `asked` (rotary frequencies that change with the length of the batch)."""
    natural = getattr(config, "max_position_embeddings", None)
    if not (length := asked or natural):
        raise ConfigError("embedded engine: the model's configuration has no max_position_embeddings", "set max_length")
    rope = getattr(config, "rope_parameters", None) or {}
    for rule in (v for v in (rope, *rope.values()) if isinstance(v, Mapping)):
        if rule.get("rope_type") in ("dynamic", "longrope"):
            most = rule.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
            most = int(most or natural or length)
            if asked and asked > most:
                raise ConfigError(
                    f"embedded engine: max_length = {asked}, but beyond {most} positions this model's rotary frequencies"
                    f" change with the longest sequence of a batch ({rule['rope_type']}), and stored keys would be wrong",
                    f"set max_length to {most} or less",
                )
            length = min(length, most)
    return int(length)


@torch.inference_mode()
def start_check(model: Model, core: Core, most: int) -> SelfCheck:
    """`self_check`; a model that fails it in few operations runs from now on as transformers has it, and is checked again."""
    if model.lean is not None:
        try:
            check = self_check(model, core, most)
        except ConfigError:
            core.pool = None
        else:
            if check.difference <= check.allowed:  # not NaN: nothing was compared
                return replace(check, few_operations=True)
        model.lean = None
    return self_check(model, core, most)


def self_check(model: Model, core: Core, most: int) -> SelfCheck:
    """Compare the pool machinery with the plain model on two rows that share half their tokens.

    `most`: longest row. Raises ConfigError when a log-probability differs by more than allowed. Weights that are not finite are
    left to the streams, which end FAILED.
    """
    config = model.module.config
    window = getattr(config, "sliding_window", None) or 0
    places = getattr(config, "max_position_embeddings", None) or SHORTEST
    length = min(max(SHORTEST, window + BEYOND), most, places)
    if length < 8:
        return SelfCheck(float("nan"), float("nan"), 0, False)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, model.vocabulary, (2, length))
    shared = length // 2
    b[:shared] = a[:shared]
    want = [_plain(model, row) for row in (a, b)]
    got, expected = [model.logits(np.stack([a, b])).flatten(0, 1)], [torch.cat(want)]

    # the last tokens of both rows are decoded one by one, slot 0 one position behind slot 1
    ends = (length - 4, length - 3)
    rows = (a, b)
    last, _ = core.prefill([0], [a[: ends[0]].astype(np.int32)], [None], 1 << 30)
    got.append(model.head(last))
    last, _ = core.prefill([1], [b[: ends[1]].astype(np.int32)], [(0, shared)], 1 << 30)
    got.append(model.head(last))
    expected += [want[0][ends[0] - 1, None], want[1][ends[1] - 1, None]]
    for t in range(3):
        order = (0, 1) if t == 0 else (1, 0)
        at = [ends[i] + t for i in order]
        tokens = [rows[i][p] for i, p in zip(order, at)]
        hidden = core.decode(np.array(order), np.array(at), np.array(tokens), 1 << 30)
        got.append(model.head(hidden))
        expected.append(torch.stack([want[i][p] for i, p in zip(order, at)]))
    core.pool = None
    ours, theirs = torch.cat(got), torch.cat(expected)
    beyond = window < length
    if not bool(torch.isfinite(theirs).all()):
        return SelfCheck(float("nan"), float("nan"), length, beyond)
    difference, scale = 0.0, 1.0
    for law in LAWS:
        plain = torch.log_softmax(theirs / law.temperature, -1)
        difference = max(difference, float((_law(model, law, ours) - plain).abs().max()))
        scale = max(scale, float(plain.abs().max()) / 10)
    allowed = TOLERANCE.get(model.dtype, HALF) * scale
    if not difference <= allowed:
        raise ConfigError(
            f"start-up check: over the block pool this {config.model_type!r} model's log-probabilities differ from its full"
            f" forward pass by {difference:.3g} on rows of {length} tokens, allowed is {allowed:.3g} in {model.dtype}",
            "the architecture needs something block attention does not do; use the HTTP engine, and report its config.json",
        )
    return SelfCheck(difference, allowed, length, beyond)


def _plain(model: Model, row: np.ndarray) -> Tensor:
    """float32 [length, vocabulary]: logits as transformers' own code gives them."""
    module = model.module
    kept = module.config._attn_implementation
    module.set_attn_implementation("eager")
    try:
        return module(torch.from_numpy(row)[None].to(model.device), use_cache=False).logits[0].float()
    finally:
        module.set_attn_implementation(kept)


def _law(model: Model, law: Sampling, logits: Tensor) -> Tensor:
    laws = Laws(model.vocabulary, model.device)
    return log_law(logits, laws.rows(np.full(len(logits), laws.number(law))))[0]
