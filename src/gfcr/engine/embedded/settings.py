"""Settings of the embedded engine. Invariant: but for `dtype`, nothing here changes a draw; all
of it only changes speed and memory."""

from __future__ import annotations

from dataclasses import dataclass

from gfcr.errors import ConfigError

DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """How the embedded engine uses the machine. Raises ConfigError for a value out of range."""

    slots: int = 256
    """Streams decoded at once."""
    device: str = "cpu"
    dtype: str = "auto"
    """Of weights and keys and values; log-probabilities are float32 always. `auto`: bfloat16 from 10 million parameters where
    the device computes in it (on a CPU: and decodes 32 streams or more), else float32."""
    max_length: int | None = None
    """Longest context plus answer in tokens; None = what the model's configuration says."""
    block: int | None = None
    """Tokens per block of the key/value pool; None = by the first wave's contexts (`pool.block_size`)."""
    kv_tokens: int | None = None
    """Most positions the pool may grow to; requests wait while their worst case would not fit. None = no limit."""
    batch_tokens: int = 16384
    """Positions in one prefill or scoring forward pass, padding included (one sequence may be longer)."""
    min_shared: int = 8
    """Shortest common token prefix that a wave computes apart to share; equal contexts are shared at any length."""
    check_tokens: int = 1024
    """Longest row of the start-up check against the plain forward pass, in tokens; rows are a little longer than the attention
    window where this allows it. 0 = no check."""
    lean: bool = True
    """Small models of known families run in few operations, where the start-up check proves it for them."""
    retain_tokens: int = 65536
    """Positions kept of finished `retain` requests, the oldest dropped first; a later fork computes what was dropped."""

    @property
    def few_operations(self) -> bool:
        """Whether `lean` is on with a check to prove it."""
        return self.lean and self.check_tokens > 0

    def __post_init__(self) -> None:
        for name in ("slots", "max_length", "block", "kv_tokens", "batch_tokens", "min_shared"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"embedded engine: {name} = {value!r}", f"set {name} to 1 or more")
        if self.dtype not in DTYPES:
            raise ConfigError(f"embedded engine: dtype = {self.dtype!r}", f"choose one of {', '.join(DTYPES)}")
        for name in ("retain_tokens", "check_tokens"):
            if getattr(self, name) < 0:
                raise ConfigError(f"embedded engine: {name} = {getattr(self, name)}", "set it to 0 or more")
