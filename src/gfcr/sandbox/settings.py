"""Limits and kinds of sandboxes. Invariant: every limit is finite."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from gfcr.registry import FrozenModel


class Limits(FrozenModel):
    """What one judged answer may use. A task's own `limits` (`time_s`, `memory_mb`, `procs`, `file_mb`) go before these."""

    seconds: float = Field(10.0, gt=0, le=3600)
    """Wall time of one case: a call, a program run, a test script."""
    total_seconds: float = Field(60.0, gt=0, le=36000)
    """Wall time of all cases of an answer together."""
    memory_mb: int = Field(512, ge=64)
    """Address space of one process (MiB), and what all processes of a run hold in memory together."""
    procs: int = Field(64, ge=1)
    """Processes and threads at once."""
    file_mb: int = Field(16, ge=0)
    """Largest file (MiB)."""
    scratch_mb: int = Field(64, ge=1)
    """The scratch space, which is in memory (MiB)."""
    output_kb: int = Field(1024, ge=1)
    """What a program may print to its standard output and error together (KiB), what is kept of what calls and test scripts print (they
    may print 64 times as much), and the longest value a call may return."""
    open_files: int = Field(128, ge=16)
    """Open files of one process."""


class Sandbox(FrozenModel):
    """Where judged code runs."""

    @model_validator(mode="before")
    @classmethod
    def _a_kind(cls, value: Any) -> Any:
        """`sandbox = "weak"` is `sandbox = { kind = "weak" }`."""
        return {"kind": value} if isinstance(value, str) else value

    kind: Literal["bwrap", "weak"] = "bwrap"
    """`bwrap`: bubblewrap, in namespaces of its own; refused where bubblewrap does not work. `weak` accepts far less, in so many words:
    a plain process of this user with resource limits, which can read what this user reads, write what this user writes and, unless
    the kernel lets it be cut off, use the network. For programs that you would start by hand."""
    bwrap: str = "bwrap"
    """The bubblewrap program: a name on the path or a path."""
    paths: tuple[str, ...] = ()
    """Directories of importable packages (say, a `site-packages` with numpy), mounted read-only and put on the module path. Without
    them there is the standard library only."""
    warm: int = Field(0, ge=0, le=64)
    """Sandboxes kept started in advance. Each is used for one answer and thrown away, so answers stay as isolated as without."""
