"""Loading weights into the engine's own module, and proving which weights answer.

Invariants: nothing is copied before everything is checked, so a refused load leaves the old weights whole; tensors are
copied, never aliased, so a trainer's next step does not change the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfcr.engine.contract import WeightsRef
from gfcr.engine.embedded.model import Model
from gfcr.errors import ConfigError, DataError


def file_digest(path: Path) -> str:
    """sha256 (hex) of a safetensors file; of a directory: of its one file, or of its files' digests joined in name order."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    digests = []
    for file in files:
        with file.open("rb") as handle:
            digests.append(hashlib.file_digest(handle, "sha256").hexdigest())
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def read_weights(ref: WeightsRef) -> dict[str, Tensor]:
    """Tensors of the file or directory `ref.uri`. Raises DataError when there are none, or their digest is another."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(ref.uri.removeprefix("file://"))
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    if not files:
        raise DataError(
            f"weights version {ref.version}: no safetensors file at {ref.uri!r}",
            "give a .safetensors file or a directory that holds some",
        )
    if ref.sha256 and (digest := file_digest(path)) != ref.sha256:
        raise DataError(
            f"weights version {ref.version}: {ref.uri!r} has sha256 {digest}, expected {ref.sha256}",
            "publish the weights again; the file was changed or cut off",
        )
    try:
        return {name: tensor for file in files for name, tensor in load_file(file).items()}
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"weights version {ref.version}: {ref.uri!r} cannot be read: {error}", "publish the weights again"
        ) from error


def load_weights(module: Any, ref: WeightsRef, tensors: Mapping[str, Any] | None) -> None:
    """Copy weights into `module`. Raises ConfigError for another kind than `full`, DataError for names or shapes that do
    not fit."""
    if ref.kind != "full":
        raise ConfigError(
            f"weights version {ref.version}: kind {ref.kind!r}; the embedded engine loads full weights",
            "publish full weights (merge the adapter first)",
        )
    if tensors is None:
        if ref.uri == "memory:":
            raise ConfigError(
                f"weights version {ref.version}: uri is 'memory:' and no tensors were handed over",
                "pass tensors=, or the uri of a safetensors file",
            )
        tensors = read_weights(ref)
    own: dict[str, Tensor] = module.state_dict(keep_vars=True)
    given = {name: t if isinstance(t, Tensor) else torch.from_numpy(np.asarray(t)) for name, t in tensors.items()}
    if unknown := sorted(given.keys() - own.keys()):
        raise DataError(
            f"weights version {ref.version}: the model has no tensor {unknown[0]!r} ({len(unknown)} unknown names)",
            "publish the state dict of the same architecture",
        )
    covered = {own[name].data_ptr() for name in given}
    if missing := sorted(name for name, t in own.items() if name not in given and t.data_ptr() not in covered):
        raise DataError(
            f"weights version {ref.version}: tensor {missing[0]!r} is missing ({len(missing)} in all)",
            "publish every tensor; tied ones may be left out",
        )
    first: dict[int, str] = {}
    for name, tensor in given.items():
        if tensor.shape != own[name].shape:
            raise DataError(
                f"weights version {ref.version}: {name!r} has shape {tuple(tensor.shape)}, the model's is "
                f"{tuple(own[name].shape)}",
                "publish the state dict of the same architecture",
            )
        twin = first.setdefault(own[name].data_ptr(), name)
        if twin != name and not _same(given[twin], tensor):
            raise DataError(
                f"weights version {ref.version}: {twin!r} and {name!r} are tied in the model but differ",
                "train with the embeddings tied, or start the engine with an untied model",
            )
    with torch.no_grad():
        for name, tensor in given.items():
            own[name].copy_(tensor)


def _same(a: Tensor, b: Tensor) -> bool:
    """Equal, NaN to NaN: weights that training broke are still tied."""
    return a.data_ptr() == b.data_ptr() or bool(torch.isclose(a, b, rtol=0, atol=0, equal_nan=True).all())


def fingerprint(model: Model) -> str:
    """Hex digest of the float32 log-probabilities on a fixed probe of 2 x 8 tokens; computed anew at every call."""
    probe = (np.arange(16, dtype=np.int64) * 7919 + 1).reshape(2, 8) % model.vocabulary
    values = torch.log_softmax(model.logits(probe), -1).cpu().numpy()
    return hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()
