"""One copy of a model's tensors for all processes.

Invariants: the memory has no name, so nothing can be left behind: it goes with the last process that maps it, however that
ends; a module taken apart here and put together in another process reads the very same bytes, tied tensors stay tied;
writing is the owner's business, at a moment when nobody computes.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from typing import Any

import torch
from torch import Tensor

from gfcr.errors import ConfigError

ALIGN = 64
"""Bytes; what torch aligns its own tensors to."""


class SharedWeights:
    """A module's state (what a checkpoint holds) in anonymous shared memory; the module itself goes on using it. Buffers that no
    checkpoint holds stay each process's own: some modules change them as they compute."""

    def __init__(self, module: Any) -> None:
        """Move the tensors of `module` (on the CPU) into shared memory. Raises ConfigError when there is not enough of it."""
        tensors: list[Tensor] = list({id(t): t for t in module.state_dict(keep_vars=True).values()}.values())
        offsets: dict[int, int] = {}
        self.size = 0
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in offsets:
                offsets[storage.data_ptr()] = self.size
                self.size += -(-storage.nbytes() // ALIGN) * ALIGN
        self.fd, self._keep = _memory(self.size)
        self.bytes = _map(self.fd, self.size)
        with torch.no_grad():
            for tensor in tensors:
                storage = tensor.untyped_storage()
                if storage.nbytes():
                    start = offsets[storage.data_ptr()]
                    place = self.bytes[start : start + storage.nbytes()]
                    place.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
                    view = place.view(tensor.dtype)
                    first = view.storage_offset() + tensor.storage_offset()
                    tensor.data = view.as_strided(tensor.shape, tensor.stride(), first)

    def dumps(self, module: Any) -> bytes:
        """The module without the bytes of its shared tensors."""
        out = io.BytesIO()
        _Pickler(out, self.bytes).dump(module)
        return out.getvalue()

    def close(self) -> None:
        """Let go of the descriptor; the memory lives on under the module's tensors."""
        if self.fd >= 0:
            self._keep.close()
            self.fd = -1


def loads(data: bytes, fd: int, size: int) -> Any:
    """The module of `SharedWeights.dumps`, on the same memory."""
    return _Unpickler(io.BytesIO(data), _map(fd, size)).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, memory: Tensor) -> None:
        super().__init__(file, protocol=5)
        self._start, self._end = memory.data_ptr(), memory.data_ptr() + len(memory)

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is not Tensor or not self._start <= obj.data_ptr() < self._end:
            return None
        return obj.data_ptr() - self._start, str(obj.dtype).removeprefix("torch."), tuple(obj.shape), obj.stride()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, memory: Tensor) -> None:
        super().__init__(file)
        self._memory = memory

    def persistent_load(self, pid: Any) -> Tensor:
        start, dtype, shape, stride = pid
        kind: torch.dtype = getattr(torch, dtype)
        room = self._memory[start:]
        return room[: len(room) // kind.itemsize * kind.itemsize].view(kind).as_strided(shape, stride)


def _memory(size: int) -> tuple[int, Any]:
    """(descriptor, its owner) of `size` bytes of memory without a name."""
    if hasattr(os, "memfd_create"):
        owner: Any = os.fdopen(os.memfd_create("gfcr-weights"), "w+b", buffering=0)
    else:  # a file already unlinked; the page cache is the memory
        owner = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (it lives as long as the weights)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(owner.fileno(), 0, size)
        else:
            os.ftruncate(owner.fileno(), size)
    except OSError as error:
        owner.close()
        raise ConfigError(
            f"engine.workers: {size / 2**20:,.0f} MiB of shared memory for the weights are not to be had: {error.strerror}",
            "free memory, or set engine.workers = 1",
        ) from error
    return owner.fileno(), owner


def _map(fd: int, size: int) -> Tensor:
    """uint8[size]: the shared bytes."""
    return torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)
