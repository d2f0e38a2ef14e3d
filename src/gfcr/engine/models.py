"""Models and tokenizers from directories on this machine. Invariant: nothing is fetched from a network; what cannot be read
is a ConfigError that names the directory. Imports torch and transformers when called."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gfcr.engine.smollm2 import smollm2_directory
from gfcr.errors import ConfigError

_SAVE_MODEL = "save it with model.save_pretrained(directory), complete with its safetensors files"


def load_model(path: str | Path, device: str = "cpu", dtype: str = "float32") -> Any:
    """A Hugging Face causal LM in eval mode. `dtype`: a torch name, or `auto` for what the files hold. Raises ConfigError for a
    directory that holds none."""
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    check_directory(path, "config.json", "model")
    try:
        module: Any
        module, found = AutoModelForCausalLM.from_pretrained(
            str(path),
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        raise ConfigError(f"the model in {str(path)!r} cannot be read: {_brief(error)}", _SAVE_MODEL) from error
    # transformers fills such weights with random numbers and only warns
    missing = sorted(map(str, found.get("missing_keys", ())))
    mismatched = sorted(str(key[0] if isinstance(key, tuple) else key) for key in found.get("mismatched_keys", ()))
    for names, what in ((missing, "lack"), (mismatched, "have other shapes than config.json says for")):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise ConfigError(f"the weights in {str(path)!r} {what} {', '.join(names[:3])}{more}", _SAVE_MODEL)
    try:
        return module.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"the model cannot be put on the device {device!r}: {_brief(error)}",
            "set train.device and engine.device to one that this machine and this build of torch have, e.g. cpu",
        ) from error


def load_ends(path: str | Path) -> Any:
    """Something that has a model's `generation_config`, without its weights: for models that run elsewhere. Raises ConfigError."""
    from transformers import AutoConfig, GenerationConfig

    check_directory(path, "config.json", "model")
    try:
        if (Path(path) / "generation_config.json").is_file():
            found = GenerationConfig.from_pretrained(str(path), local_files_only=True)
        else:
            found = GenerationConfig.from_model_config(AutoConfig.from_pretrained(str(path), local_files_only=True))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the model in {str(path)!r} cannot be read: {_brief(error)}", _SAVE_MODEL) from error
    return SimpleNamespace(generation_config=found)


def load_tokenizer(path: str | Path) -> Any:
    """A Hugging Face tokenizer. Raises ConfigError for a directory that holds none."""
    from transformers import AutoTokenizer

    check_directory(path, "tokenizer_config.json", "tokenizer")
    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exceptions
        raise ConfigError(
            f"the tokenizer in {str(path)!r} cannot be read: {_brief(error)}",
            "save it with tokenizer.save_pretrained(directory)",
        ) from error


def vocabulary_of(path: str | Path) -> int:
    """Tokens of the model's vocabulary, by its config.json. Raises ConfigError for a directory without one."""
    check_directory(path, "config.json", "model")
    try:
        config = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the model in {str(path)!r} has a config.json that cannot be read: {error}", _SAVE_MODEL) from error
    found = config.get("vocab_size", (config.get("text_config") or {}).get("vocab_size"))
    if type(found) is not int or found < 2:
        raise ConfigError(f"the config.json in {str(path)!r} has vocab_size = {found!r}", _SAVE_MODEL)
    return found


def _brief(error: BaseException) -> str:
    """An error of another library in one line."""
    text = f"{error}".strip()
    line = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {line[:300]}" if len(line) < 40 else line[:300]


def check_directory(path: str | Path, needed: str, what: str) -> None:
    """Refuse a path that is no directory with the file `needed`. Imports nothing."""
    place = Path(path)
    if not place.is_dir():
        raise ConfigError(
            f"no model directory at {str(path)!r}" + (": it is a file" if place.exists() else ""),
            "give a directory written by save_pretrained",
        )
    if not (place / needed).is_file():
        raise ConfigError(
            f"the directory {str(path)!r} holds no {needed}, so no {what}", "give a directory written by save_pretrained"
        )


def model_path(path: str) -> Path:
    """The directory of a model; `lab` is the shipped checkpoint, `smollm2` what `make smollm2` wrote. Raises ConfigError."""
    if path == "smollm2":
        return smollm2_directory()
    return Path(str(resources.files("gfcr") / "domains" / "programs" / "checkpoint")) if path == "lab" else Path(path)
