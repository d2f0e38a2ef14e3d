"""Settings of the host that environments live in. Invariant: every wait is bounded."""

from __future__ import annotations

from pydantic import Field

from gfcr.registry import FrozenModel


class HostSettings(FrozenModel):
    """How environments are played; quick ones (no waiting, no processes) are played at once and read none of it."""

    seconds: float = Field(60.0, gt=0, le=36_000)
    """Longest one act may take (a turn, a reset, a verdict), from when it is begun; its session is lost then."""
    workers: int = Field(8, ge=1, le=1024)
    """Acts at once; what they say does not depend on their number."""
