"""Models and tokenizers from directories on this machine. Invariant: nothing is fetched from a network; what cannot be read
is a ConfigError that names the directory. Imports torch and transformers when called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gfcr.errors import ConfigError


def load_model(path: str | Path, device: str = "cpu", dtype: str = "float32") -> Any:
    """A Hugging Face causal LM in eval mode. Raises ConfigError for a directory that holds none."""
    import torch
    from transformers import AutoModelForCausalLM

    _directory(path, "config.json", "model")
    try:
        model = AutoModelForCausalLM.from_pretrained(str(path), dtype=getattr(torch, dtype), local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise ConfigError(f"the model in {str(path)!r} cannot be read: {error}",
                          "save it with model.save_pretrained(directory), complete with its safetensors files") from error
    module: Any = model
    return module.to(device).eval()


def load_tokenizer(path: str | Path) -> Any:
    """A Hugging Face tokenizer. Raises ConfigError for a directory that holds none."""
    from transformers import AutoTokenizer

    _directory(path, "tokenizer_config.json", "tokenizer")
    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise ConfigError(f"the tokenizer in {str(path)!r} cannot be read: {error}",
                          "save it with tokenizer.save_pretrained(directory)") from error


def _directory(path: str | Path, needed: str, what: str) -> None:
    place = Path(path)
    if not place.is_dir():
        raise ConfigError(f"no {what} directory at {str(path)!r}", "give a directory written by save_pretrained")
    if not (place / needed).is_file():
        raise ConfigError(f"the directory {str(path)!r} holds no {needed}, so no {what}",
                          "give a directory written by save_pretrained")
