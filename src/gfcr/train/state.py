"""The trainer's state as safetensors. Invariants: no pickle; all of it or an error (nothing is filled in silently); a tied
weight is stored once; loading copies into the existing parameters, so optimiser and model keep pointing at the same tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gfcr.errors import DataError
from gfcr.train import lora
from gfcr.train.lora import Adapter

if TYPE_CHECKING:
    from gfcr.train.trainer import Trainer

MODEL_FILE, TRAINER_FILE = "model.safetensors", "trainer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def snapshot(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detached copies; names that share one tensor share one copy."""
    copies: dict[tuple[int, torch.Size], Tensor] = {}
    out = {}
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tensor.shape)
        if key not in copies or not tensor.numel():
            copies[key] = tensor.detach().clone(memory_format=torch.contiguous_format)
        out[name] = copies[key]
    return out


def _once(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors under `prefix`, of those that share storage only the first."""
    seen: set[int] = set()
    out = {}
    for name, tensor in tensors.items():
        if tensor.numel() and tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        out[prefix + name] = tensor
    return out


def _moments(trainer: Trainer) -> dict[str, Tensor]:
    out = {}
    for name, parameter in trainer.parameters.items():
        for key, value in trainer.optimizer.state.get(parameter, {}).items():
            out[f"optimizer.{key}.{name}"] = value
    return out


def _weights(trainer: Trainer) -> dict[str, Tensor]:
    """Of an adapter only what it adds: base and start policy come with the model, and `base` says which one that was."""
    adapter = trainer.adapter
    out = _once(trainer.model.state_dict() if adapter is None else adapter.tensors(), "model.")
    if trainer.reference is not None and (adapter is None or trainer.reference is not adapter.reference):
        out |= _once(trainer.reference.state_dict(), "reference.")
    if trainer.value is not None:
        out |= _once(trainer.value.state_dict(), "value.")
    return out


def dump(trainer: Trainer) -> dict[str, Tensor]:
    """`model.*`, `reference.*` and `value.*` (when the trainer has them), `optimizer.<moment>.<parameter>`, `counters`
    (steps, updates), `base` (digest of the weights under an adapter)."""
    out = _weights(trainer)
    out |= _moments(trainer)
    out["counters"] = torch.tensor([trainer.steps, trainer.updates], dtype=torch.int64)
    if trainer.adapter is not None:
        out["base"] = trainer.adapter.digest
    return snapshot(out)


def _check(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str) -> None:
    missing, unknown = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    wrong = [
        f"{n}: {tuple(found[n].shape)} for {tuple(wanted[n].shape)}"
        for n in wanted
        if n in found and found[n].shape != wanted[n].shape
    ]
    if missing or unknown or wrong:
        raise DataError(
            f"the {what} in the trainer's state do not fit: missing {missing[:3]}, unknown {unknown[:3]}, shapes {wrong[:3]}",
            "load a state written by a trainer with the same model and settings (kl > 0 and preference losses add the reference, train.value the value head)",
        )


def _check_base(trainer: Trainer, tensors: Mapping[str, Tensor]) -> None:
    """An adapter fits one base only; other weights under it would be another policy without a sign."""
    found = tensors.get("base")
    if (found is None) != (trainer.adapter is None):
        raise DataError(
            f"the trainer's state holds {'all weights' if found is None else 'an adapter'}, the trainer trains"
            f" {'all weights' if trainer.adapter is None else 'an adapter'}",
            "load it with the train.lora of the run that wrote it",
        )
    if found is not None and trainer.adapter is not None and not torch.equal(found.cpu(), trainer.adapter.digest):
        raise DataError(
            "the adapter in the trainer's state was trained on other base weights than this model's",
            "give the model directory of the run that wrote it, unchanged (model.path)",
        )


def restore(trainer: Trainer, tensors: Mapping[str, Tensor]) -> None:
    """Copy `tensors` (as `dump` names them) into the trainer. Raises DataError and changes nothing when they do not fit."""
    model = _weights(trainer)
    _check_base(trainer, tensors)
    if "counters" not in tensors:
        raise DataError("the trainer's state has no 'counters'", "load a state written by Trainer.state_dict or Trainer.save")
    steps, updates = map(int, tensors["counters"])
    moments = {name: t for name, t in tensors.items() if name.startswith("optimizer.")}
    _check({n: t for n, t in tensors.items() if n not in ("counters", "base") and n not in moments}, model, "model weights")
    kept = {n.split(".", 2)[2] for n in moments}  # a parameter no loss has reached yet has no moments
    shapes = {
        f"optimizer.{key}.{name}": torch.zeros(()) if key == "step" else parameter
        for name, parameter in trainer.parameters.items()
        if name in kept
        for key in _MOMENTS
    }
    _check(moments, shapes, "optimiser moments")
    with torch.no_grad():
        for name, target in model.items():
            target.copy_(tensors[name])
    trainer.optimizer.state.clear()
    for name, parameter in trainer.parameters.items():
        if name in kept:
            trainer.optimizer.state[parameter] = {
                key: moments[f"optimizer.{key}.{name}"].to(
                    device=parameter.device, dtype=torch.float32 if key == "step" else parameter.dtype, copy=True
                )
                for key in _MOMENTS
            }
    trainer.steps, trainer.updates = steps, updates


def save(trainer: Trainer, directory: Path) -> list[Path]:
    """Write the files into `directory` (made if need be); returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    adapter = trainer.adapter
    tensors = {name: t.cpu() for name, t in dump(trainer).items()}
    model = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    rest = {name: t for name, t in tensors.items() if not name.startswith("model.")}
    paths = [directory / (MODEL_FILE if adapter is None else lora.FILE), directory / TRAINER_FILE]
    _write(model if adapter is None else adapter.outward(model), paths[0], {"format": "pt"})
    _write(rest, paths[1])
    return paths if adapter is None else [*paths, adapter.write_config(directory)]


def _write(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Raises OSError for what the file system refuses (a full disk, say); safetensors has an error of its own for it."""
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        if (code := re.search(r"os error (\d+)", str(error))) is None:
            raise
        raise OSError(int(code.group(1)), str(error)) from error


def load(trainer: Trainer, directory: Path) -> None:
    """Read what `save` wrote. Raises DataError when a file is missing or does not fit."""
    file = MODEL_FILE if trainer.adapter is None else lora.FILE
    for name in (file, TRAINER_FILE):
        if not (directory / name).is_file():
            raise DataError(
                f"no {name} in {directory}", "point to a directory written by Trainer.save with the same train.lora"
            )
    tensors = load_file(directory / file)
    model = {f"model.{name}": t for name, t in (tensors if trainer.adapter is None else Adapter.inward(tensors)).items()}
    restore(trainer, model | load_file(directory / TRAINER_FILE))
