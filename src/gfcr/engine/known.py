"""Models whose layers and head we know part by part, so that they may be written in fewer operations: Llama, Qwen2, Qwen3, Mistral.

Invariant: a module is known only if every part of its trunk, and its head, is of the class that transformers puts in that place,
with no hook and no forward of its own: whatever else somebody put there runs as they wrote it.
"""

from __future__ import annotations

from typing import Any

from torch import nn

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
_GROWING = ("dynamic", "longrope")
"""Rotary frequencies that depend on the longest sequence."""
_PLAIN = (nn.Linear, nn.Embedding, nn.ModuleList, nn.SiLU)


def known(module: Any) -> bool:
    """Whether trunk and head of this causal LM are those of one of FAMILIES as transformers makes them."""
    kind, base = getattr(module.config, "model_type", ""), getattr(module, "base_model", module)
    home = f"transformers.models.{kind}.modeling_{kind}"
    if kind not in FAMILIES or base is module or type(module).__module__ != home or type(base).__module__ != home:
        return False
    for part in (*base.modules(), module.get_output_embeddings()):  # not the whole: trainers give it a forward of their own
        own = type(part) in _PLAIN or type(part).__module__ in (home, "transformers.activations")
        if not own or "forward" in vars(part) or (type(part) is nn.Embedding and _tricked(part)):
            return False
    rope = getattr(base.rotary_emb, "rope_type", None)
    config = module.config
    return (
        config.hidden_act == "silu"
        and rope not in (None, *_GROWING)
        and not getattr(config, "attention_dropout", 0)
        and not hooked(module)
    )


def _tricked(table: nn.Embedding) -> bool:
    """Whether a lookup does more than read rows: no probe of its values would see what becomes of the gradients."""
    return table.max_norm is not None or table.scale_grad_by_freq or table.sparse


def hooked(module: Any) -> bool:
    """Whether somebody watches or changes what goes through a part of it."""
    return any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
        for part in module.modules()
    )


def window_of(config: Any, attention: Any) -> int | None:
    """Positions that a query of this attention sees, its own included; None = all before it."""
    if config.model_type == "mistral":
        return getattr(config, "sliding_window", None)
    return getattr(attention, "sliding_window", None)
