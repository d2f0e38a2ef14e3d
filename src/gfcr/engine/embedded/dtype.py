"""Which number type the embedded engine computes in. Invariants: log-probabilities are float32 whatever it is; a cast changes
parameters only: buffers (rotary frequencies) keep their precision, in which positions are told apart.
"""

from __future__ import annotations

from typing import Any

import torch

LARGE = 10_000_000
"""Parameters from which bfloat16 pays. Measured on a CPU with AMX, one thread: 9.9M parameters 2.5 times faster at 32 and 128
streams, 0.8M slower at every number of streams."""
MANY = 32
"""Streams from which it pays on a CPU."""


def native_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 by itself; elsewhere it is emulated and slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    asked = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    return any(ask is not None and ask() for ask in asked)


def choose_dtype(asked: str, parameters: int, slots: int, device: str | torch.device) -> tuple[str, str]:
    """(number type, why). `asked`: `auto` or a torch name; `slots`: streams decoded at once."""
    device = torch.device(device)
    if asked != "auto":
        return asked, "asked for"
    if not native_bfloat16(device):
        return "float32", f"this {device.type} has no bfloat16 arithmetic of its own"
    if parameters < LARGE:
        return "float32", f"{parameters:,} parameters; bfloat16 pays from {LARGE:,}"
    if device.type == "cpu" and slots < MANY:
        return "float32", f"{slots} streams at once; bfloat16 pays from {MANY} on a CPU"
    return "bfloat16", f"{parameters:,} parameters on a {device.type} with bfloat16 arithmetic"


def cast(module: Any, dtype: torch.dtype, device: str | torch.device) -> Any:
    """The module on `device` with its parameters in `dtype`, in place."""
    module.to(device)
    for parameter in module.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
    return module
