"""The hash chain over a run's steps.

Invariant: a step's head depends on every byte committed with it and on the head before it; the first head depends on the
recipe, so the steps of one run cannot be continued in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

LINKED = (
    "step",
    "round",
    "version",
    "progress",
    "payload_length",
    "payload_hash",
    "checkpoint",
    "metrics",
    "state_hash",
    "rows_hash",
)
"""Columns of `steps` that a head covers, in order."""


def genesis(recipe_hash: str, environment: str) -> str:
    """The head before the first step; `environment` is its JSON text."""
    return blake2b(f"gfcr run 1\n{recipe_hash}\n{environment}".encode(), digest_size=32).hexdigest()


def link(before: str, values: Sequence[Any]) -> str:
    """The head after a step with these values of `LINKED`."""
    return blake2b(f"{before}\n{tuple(values)!a}".encode(), digest_size=32).hexdigest()
