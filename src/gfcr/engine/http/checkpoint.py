"""Published weights as a directory that servers read. Invariant: a directory is whole before anybody is told of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gfcr.errors import ConfigError


class Checkpoints:
    """A folder with the weights that are served now."""

    def __init__(self, folder: str | None) -> None:
        """Raises ConfigError for a folder that cannot be written."""
        self._own = folder is None
        try:
            if folder is not None:
                Path(folder).mkdir(parents=True, exist_ok=True)
            self.place = Path(tempfile.mkdtemp(prefix="gfcr-weights-", dir=folder))
            self.place.chmod(0o755)  # a server may be another user's
        except OSError as error:
            raise ConfigError(
                f"weights cannot be written to {folder!r}: {error.strerror}",
                "give engine.http.weights a folder that can be written",
            ) from error

    def write(self, name: str, tensors: Mapping[str, Any]) -> Path:
        """A directory with `model.safetensors`; tied tensors stand there under each of their names, because a server may serve them
        untied."""
        unfinished, place = self.place / f".{name}", self.place / name
        unfinished.mkdir(exist_ok=True)
        save(tensors, unfinished / "model.safetensors")
        shutil.rmtree(place, ignore_errors=True)
        os.replace(unfinished, place)
        return place

    def keep_only(self, place: Path) -> None:
        """Remove what was published before."""
        for other in self.place.iterdir():
            if other != place:
                shutil.rmtree(other, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)


def save(tensors: Mapping[str, Any], file: Path) -> None:
    """Every tensor under its name, also those that share their numbers."""
    import torch
    from safetensors.torch import save_file

    own: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, value in tensors.items():
        tensor = (value if isinstance(value, torch.Tensor) else torch.as_tensor(value)).detach().cpu().contiguous()
        own[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    save_file(own, file, metadata={"format": "pt"})
