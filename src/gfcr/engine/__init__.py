"""Engines: what samples and scores tokens."""

from __future__ import annotations

_COMMON = frozenset(
    {
        "cancel",
        "resume",
        "fork",
        "score",
        "processed_logprobs",
        "kept_mass",
        "entropy",
        "stop_strings",
        "versions",
        "fingerprint",
        "deterministic",
        "laws",
    }
)
FEATURES: dict[str, frozenset[str]] = {"embedded": _COMMON | {"penalties"}, "scripted": _COMMON}
"""What each engine offers, for the composition check before an engine exists; each engine's test holds it to its word."""


def features_of(name: str) -> frozenset[str]:
    """Features of an engine by recipe name (`Capabilities.features`)."""
    return FEATURES[name]
