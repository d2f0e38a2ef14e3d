"""A foreign trainer's weights for our engine. Invariants: the engine serves a module of its own, made from the model's configuration;
what is handed over are plain full weights (an adapter is merged for the moment of the copy, and taken out again).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from gfcr.build_engine import embedded_engine
from gfcr.engine.contract import Engine
from gfcr.errors import ConfigError
from gfcr.recipe import Recipe


def twin_engine(recipe: Recipe, model: Any, decode: Any) -> Engine:
    """An embedded engine for models like `model`, with weights of its own (any until the first publication)."""
    if recipe.engine.name != "embedded":
        raise ConfigError(
            f"engine.name = {recipe.engine.name!r}: inside a foreign trainer only the embedded engine can follow its weights",
            "set engine.name = 'embedded'",
        )
    base = plain(model)
    config = copy.deepcopy(base.config)
    config._attn_implementation = "sdpa"  # the trainer's may be one that only the trainer can feed
    twin = type(base)._from_config(config, dtype=base.dtype).eval()
    with torch.no_grad(), full_weights(model) as tensors:
        for name, tensor in twin.state_dict().items():
            if name in tensors:
                tensor.copy_(tensors[name])
    return embedded_engine(recipe, twin, decode)


def plain(model: Any) -> Any:
    """The Hugging Face model under a peft wrapper."""
    return model.get_base_model() if hasattr(model, "peft_config") and hasattr(model, "get_base_model") else model


@contextmanager
def full_weights(model: Any) -> Iterator[Mapping[str, Any]]:
    """The model's state dict under the names of a model without adapters; valid inside the context only."""
    if plain(model) is model:
        yield model.state_dict()
        return
    base = {n: p.detach().clone() for n, p in model.named_parameters() if ".base_layer." in n}
    model.merge_adapter()
    try:
        yield {
            name.removeprefix("base_model.model.").replace(".base_layer", "").replace("modules_to_save.default.", ""): tensor
            for name, tensor in model.state_dict().items()
            if model.prefix not in name and "original_module" not in name
        }
    finally:
        model.unmerge_adapter()
        with torch.no_grad():  # taking the adapter out again rounds; over a run the frozen weights would drift
            for name, parameter in model.named_parameters():
                if name in base:
                    parameter.copy_(base[name])
