"""Training an adapter instead of the model: LoRA (arXiv:2106.09685, equation 3: W + (alpha / r) B A).

Invariants: only adapter tensors are trained and saved; the base weights never change, and a state is restored onto the base it was
trained on or refused; published weights are the merged sums under the model's own names, so an engine needs no adapter code; the
start (A uniform within 1/sqrt(inputs), B zero: the base policy itself) depends on the run's seed only.
"""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from gfcr.errors import ConfigError, MissingExtra
from gfcr.run.seeds import generator
from gfcr.train.settings import LoraSettings

NAME = "default"
FILE, CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"
"""Names under which peft finds an adapter: `PeftModel.from_pretrained(base_model, directory)` loads a checkpoint."""
_PREFIX = "base_model.model."


class Adapter:
    """LoRA layers put into a model, in place: the model keeps its class and its other names."""

    def __init__(self, model: Any, settings: LoraSettings, run_seed: int) -> None:
        """Raises MissingExtra without peft, ConfigError for targets that are not there or that hold tied embeddings."""
        try:
            from peft import LoraConfig, inject_adapter_in_model
            from peft.tuners.lora import LoraLayer
        except ImportError:
            raise MissingExtra("peft", "lora", "train.lora") from None
        self.model = model
        self.digest = _digest(model)
        """Of the base weights: uint8[16]."""
        targets: Any = settings.targets[0] if settings.targets == ("all-linear",) else list(settings.targets)
        self._config = LoraConfig(r=settings.r, lora_alpha=settings.alpha, target_modules=targets, bias="none")
        draw = int(generator(run_seed, "lora").integers(2**62))
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a Conv1D stores its matrix transposed, which peft then sees to
                torch.manual_seed(draw)
                inject_adapter_in_model(self._config, model, NAME)
        except ValueError as error:
            linear = (nn.Linear, Conv1D)
            names = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, linear)})
            raise ConfigError(
                f"train.lora.targets = {list(settings.targets)}: {str(error).splitlines()[0][:200]}",
                f"name modules of this model ({', '.join(names)}), or 'all-linear'",
            ) from error
        self.layers = {name: m for name, m in model.named_modules() if isinstance(m, LoraLayer)}
        tied = getattr(model.config, "tie_word_embeddings", False)
        for layer in self.layers.values():
            if layer is model.get_input_embeddings() or (tied and layer is model.get_output_embeddings()):
                raise ConfigError(
                    f"train.lora.targets = {list(settings.targets)} names the token embeddings"
                    + (", which this model ties to its head: an adapter on one side would untie them" if tied else ""),
                    "leave them out of train.lora.targets",
                )
        self.reference: Any = None
        """The frozen start policy, when somebody asked for it."""

    def tensors(self) -> dict[str, Tensor]:
        """What is trained, by its name in the model."""
        return {name: t for name, t in self.model.state_dict().items() if ".lora_" in name}

    @torch.no_grad()
    def merged(self) -> dict[str, Tensor]:
        """The policy as full weights under the model's names before the adapter; adapted matrices are new tensors."""
        out = {n.replace(".base_layer.", "."): t for n, t in self.model.state_dict().items() if ".lora_" not in n}
        for name, layer in self.layers.items():
            out[f"{name}.weight"] = layer.base_layer.weight + layer.get_delta_weight(NAME)
        return out

    def frozen(self) -> Any:
        """The policy as it is now, frozen; it shares the base weights with the model."""
        shared = {id(p): p for n, p in self.model.named_parameters() if ".lora_" not in n}
        self.reference = copy.deepcopy(self.model, shared).requires_grad_(False)
        return self.reference

    def config(self) -> str:
        """peft's adapter_config.json."""
        data = self._config.to_dict()
        data["target_modules"] = sorted({name.rpartition(".")[2] for name in self.layers})
        return json.dumps(data, indent=2, sort_keys=True, default=str) + "\n"

    @staticmethod
    def outward(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Names as peft writes them."""
        return {_PREFIX + name.replace(f".{NAME}.", "."): t for name, t in tensors.items()}

    @staticmethod
    def inward(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Inverse of `outward`."""
        return {_inner(name.removeprefix(_PREFIX)): t for name, t in tensors.items()}

    def write_config(self, directory: Path) -> Path:
        path = directory / CONFIG_FILE
        path.write_text(self.config(), encoding="utf-8")
        return path


def _inner(name: str) -> str:
    stem, dot, last = name.rpartition(".")
    return f"{stem}.{NAME}{dot}{last}"


def _digest(model: Any) -> Tensor:
    """uint8[16] over names and bytes of all parameters."""
    found = hashlib.blake2b(digest_size=16)
    for name, parameter in model.named_parameters():
        found.update(name.encode())
        found.update(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return torch.frombuffer(bytearray(found.digest()), dtype=torch.uint8)
