"""Which architectures the embedded engine serves, and the proof at start-up that it serves this one right.

Invariant: an engine that starts has reproduced the logits of the plain full forward pass through prefill, prefix copy and
decoding over the pool.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gfcr.engine.embedded.core import Core
from gfcr.engine.embedded.model import Model
from gfcr.errors import ConfigError

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
"""Largest difference of logits up to magnitude 10, relative above; half precisions get 0.1."""
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


def refuse_architecture(module: Any) -> None:
    """Raises ConfigError, naming the reason, for a model whose state is not plain attention keys and values."""
    config = module.config
    kind = getattr(config, "model_type", type(module).__name__)
    layers = set(getattr(config, "layer_types", None) or ())
    reason = ""
    if getattr(config, "is_encoder_decoder", False):
        reason = "is an encoder-decoder"
    elif kind.startswith(RECURRENT):
        reason = "keeps recurrent state"
    elif odd := layers - PLAIN:
        reason = f"has layers of type {sorted(odd)[0]!r}; served are {', '.join(sorted(PLAIN))}"
    elif getattr(config, "num_kv_shared_layers", 0):
        reason = "shares keys and values between layers"
    elif getattr(config, "kv_lora_rank", None):
        reason = "compresses keys and values (latent attention)"
    elif getattr(config, "attn_logit_softcapping", None):
        reason = "caps attention scores, which block attention does not"
    elif getattr(config, "alibi", False):
        reason = "biases attention by distance (ALiBi)"
    elif not getattr(module, "_supports_attention_backend", False):
        reason = "does not go through transformers' AttentionInterface"
    elif module.get_output_embeddings() is None:
        reason = "has no language-model head"
    if reason:
        raise ConfigError(
            f"the embedded engine cannot serve a {kind!r} model: it {reason}",
            "use a model with plain attention (Llama, Qwen3, ...) or the HTTP engine",
        )


def self_check(model: Model, core: Core) -> float:
    """Largest difference between the logits of the pool machinery and those of the plain model on a short probe.

    Raises ConfigError when it exceeds TOLERANCE. Non-finite logits are left to the streams, which end FAILED.
    """
    probe = (np.arange(26, dtype=np.int64) * 7919 + 3) % model.vocabulary
    a, b = probe[:13], np.concatenate([probe[:9], probe[13:17]])  # share nine tokens
    module = model.module
    kept = module.config._attn_implementation
    module.set_attn_implementation("sdpa")
    try:
        want = torch.stack([module(torch.from_numpy(x)[None].to(model.device)).logits[0].float() for x in (a, b)])
    finally:
        module.set_attn_implementation(kept)
    core.prefill([0], [a[:9].astype(np.int32)], [None], 1 << 30)
    core.prefill([1], [b[:10].astype(np.int32)], [(0, 9)], 1 << 30)
    got, expected = [], []
    for t in range(10, 13):
        if t == 10:  # slot 0 is one behind
            core_hidden = core.decode(np.array([0, 1]), np.array([9, 10]), np.array([a[9], b[10]]), 1 << 30)
            expected.append(torch.stack([want[0, 9], want[1, 10]]))
        else:
            core_hidden = core.decode(np.array([1, 0]), np.array([t, t - 1]), np.array([b[t], a[t - 1]]), 1 << 30)
            expected.append(torch.stack([want[1, t], want[0, t - 1]]))
        got.append(model.head(core_hidden))
    core.pool = None
    reference = torch.stack(expected)
    if not bool(torch.isfinite(reference).all()):
        return float("nan")
    difference = float((torch.stack(got) - reference).abs().max())
    allowed = TOLERANCE.get(model.dtype, 0.1) * max(1.0, float(reference.abs().max()) / 10)
    if not difference <= allowed:
        raise ConfigError(
            f"start-up check: decoding over the block pool differs from the model's full forward pass by {difference:.3g} "
            f"in the logits, allowed is {allowed:.3g} in {model.dtype}",
            "the architecture needs something block attention does not do; use the HTTP engine, and report its config.json",
        )
    return difference
